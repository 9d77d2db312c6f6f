// Package faultstore puts faults between a Keeper and its store, as a network and a busy server would:
// requests that are late, lost, or applied although the caller was told that they failed.
//
//	s := faultstore.Wrap(memory.New())
//	s.SetRule(func(c faultstore.Call) faultstore.Fault {
//		if c.Op == faultstore.Renew {
//			return faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 7 * time.Second}
//		}
//		return faultstore.Fault{}
//	})
//
// A rule looks at every call as it is made and picks a Fault, or none. What becomes of a call, with the
// moments at which it may have to wait:
//
//	call ─▶ rule ─▶ partition healed? ─▶ Delay ─────────▶ partition healed? ─▶ the store ─▶ ReplyLate ─▶ partition healed? ─▶ reply
//	                                     Drop ──────────▶ ErrInjected        │
//	                                     Deny ──────────▶ ErrInjected        │   and store.ErrDenied
//	                                     LandLate ──────▶ ErrInjected        └─ ApplyThenFail ─▶ ErrInjected
//	                                        └─ a timer ──────────────────────▶ the store; the reply is dropped
//
// Every wait ends when the caller's context does, in an error, also if both end at one moment. All
// errors made here are ErrInjected, and the context's error and cause too where that ended the wait.
// What the inner store answers is never changed.
//
// List, ListSession and Watch apply nothing, so the kinds mean for them: Delay holds up the
// beginning; ReplyLate holds up the first value; Drop, Deny and LandLate fail before the first value;
// ApplyThenFail fails in the middle, a List after its first record, a Watch after store.EventSynced.
// Partition and CutWatches end the watches that run; SetLag makes them lag behind. What was read before
// a partition may still be listed.
//
// Late landings run on the goroutines of their timers, and Wait waits for them.
package faultstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// ErrInjected is every error that this package makes up.
var ErrInjected = errors.New("injected store fault")

// Op is a method of a store.
type Op uint8

// The methods of store.Store, store.Transferrer and store.Watcher. ListSession is a List of the
// records of one session.
const (
	OpenSession Op = iota + 1
	CloseSession
	Acquire
	Renew
	Release
	Transfer
	Get
	List
	Watch
	ListSession
	ops // one more than the last
)

var opNames = [ops]string{
	"none", "OpenSession", "CloseSession", "Acquire", "Renew",
	"Release", "Transfer", "Get", "List", "Watch", "ListSession",
}

func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Call is what a rule knows of a call.
type Call struct {
	Op Op
	// Names are those that the call is about; for List and Watch the prefix; nil
	// for calls about sessions.
	Names []string
	// Session is the caller's session, for OpenSession, CloseSession, ListSession and
	// Acquire, and for Renew the first of Sessions; else 0.
	Session store.SessionID
	// Sessions are all that a Renew is about; else nil.
	Sessions []store.SessionID
}

// Kind is what a Fault does to a call.
type Kind uint8

const (
	// None passes the call on.
	None Kind = iota
	// Delay passes the call on after Fault.Delay; never, if the context ends
	// before.
	Delay
	// Drop never passes the call on; the caller gets an error.
	Drop
	// ApplyThenFail passes the call on; the caller gets an error whatever came
	// of it.
	ApplyThenFail
	// ReplyLate passes the call on at once; the caller gets the answer after
	// Fault.Delay, or an error if the context ends before.
	ReplyLate
	// LandLate gives the caller an error; the call is passed on Fault.Delay after
	// it was sent, with a context that has the caller's values but no end. A
	// partition does not hold it up: it is on its way.
	LandLate
	// Deny never passes the call on; the caller gets an error that is store.ErrDenied, too,
	// at once.
	Deny
)

var kindNames = [...]string{"none", "delay", "drop", "apply then fail", "reply late", "land late", "deny"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Fault is what befalls one call. The zero value is no fault.
type Fault struct {
	Kind Kind
	// Delay is for the kinds Delay, ReplyLate and LandLate; none if not positive.
	Delay time.Duration
	// Hang makes the error of Drop, ApplyThenFail and LandLate come when the
	// caller's context ends, as from a peer that fell silent; else it comes at
	// once. A context without an end then waits for ever.
	Hang bool
}

// trip is one call on its way.
type trip struct {
	store   *Store
	ctx     context.Context
	op      Op
	fault   Fault
	counted bool
}

// begin asks the rule, and takes a call to the store when the way is free. late, if any, is what
// lands late of it.
func (s *Store) begin(ctx context.Context, call Call, late func(context.Context)) (*trip, error) {
	s.mu.Lock()
	rule := s.rule
	s.mu.Unlock()
	t := &trip{store: s, ctx: ctx, op: call.Op}
	if rule != nil {
		t.fault = rule(call)
	}
	if t.fault.Kind != None {
		t.count()
	}
	if err := t.pass(); err != nil {
		return nil, err
	}
	switch t.fault.Kind {
	case Deny:
		return nil, t.denied()
	case LandLate:
		if late != nil && ctx.Err() == nil { // else it was never sent
			s.land(ctx, t.fault.Delay, late)
		}
		return nil, t.fail()
	case Drop:
		return nil, t.fail()
	case Delay:
		if err := t.sleep(t.fault.Delay); err != nil {
			return nil, err
		}
		return t, t.pass()
	}
	return t, nil
}

// do takes one call through its fault.
func do[T any](ctx context.Context, s *Store, call Call, apply func(context.Context) (T, error)) (T, error) {
	var none T
	t, err := s.begin(ctx, call, func(ctx context.Context) { _, _ = apply(ctx) })
	if err != nil {
		return none, err
	}
	v, err := apply(ctx)
	if t.fault.Kind == ApplyThenFail {
		return none, t.fail()
	}
	if back := t.inbound(); back != nil {
		return none, back
	}
	return v, err
}

// inbound holds the reply up.
func (t *trip) inbound() error {
	if t.fault.Kind == ReplyLate {
		if err := t.sleep(t.fault.Delay); err != nil {
			return err
		}
	}
	return t.pass()
}

// pass waits for the end of the partition, if there is one.
func (t *trip) pass() error {
	for {
		t.store.mu.Lock()
		healed := t.store.healed
		t.store.mu.Unlock()
		if healed == nil {
			return nil
		}
		if err := t.await(healed); err != nil {
			t.count()
			return err
		}
	}
}

// await waits for c; a context that is done comes first.
func (t *trip) await(c <-chan struct{}) error {
	select {
	case <-c:
	case <-t.ctx.Done():
	}
	return t.live()
}

func (t *trip) live() error {
	if t.ctx.Err() != nil {
		return t.error()
	}
	return nil
}

func (t *trip) sleep(d time.Duration) error {
	rest(t.ctx, d)
	return t.live()
}

// rest sleeps, or until the end of a context, which comes first if both end at one moment.
func rest(ctx context.Context, d time.Duration) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		<-ctx.Done()
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// fail is the end of a call that gets no answer.
func (t *trip) fail() error {
	if t.fault.Hang {
		<-t.ctx.Done()
	}
	return t.error()
}

// denied is the answer of a store that refuses for good.
func (t *trip) denied() error { return fmt.Errorf("%w: %w", t.error(), store.ErrDenied) }

func (t *trip) count() {
	if t.counted {
		return
	}
	t.counted = true
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.store.injected[t.op]++
}

// error is ErrInjected, together with how the context ended if it did.
func (t *trip) error() error {
	what := t.fault.Kind.String()
	if t.fault.Kind == None {
		what = "cut off"
	}
	if t.ctx.Err() == nil {
		return fmt.Errorf("faultstore: %s: %w: %s", t.op, ErrInjected, what)
	}
	return fmt.Errorf("faultstore: %s: %w: %s: %w", t.op, ErrInjected, what, boundary.Ended(t.ctx))
}

// land applies a call later; its answer is dropped.
func (s *Store) land(ctx context.Context, in time.Duration, apply func(context.Context)) {
	s.mu.Lock()
	s.landing++
	s.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	time.AfterFunc(max(in, 0), func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.landing--; s.landing == 0 {
				s.landed.Broadcast()
			}
		}()
		apply(ctx)
	})
}
