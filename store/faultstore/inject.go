package faultstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// trip is one call on its way.
type trip struct {
	store   *Store
	ctx     context.Context
	op      Op
	fault   Fault
	counted bool
}

// depart asks the rule, and waits for the way to be free.
func (s *Store) depart(ctx context.Context, call Call) (*trip, error) {
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
	return t, t.pass()
}

// do takes one call through its fault.
func do[T any](ctx context.Context, s *Store, call Call, apply func(context.Context) (T, error)) (T, error) {
	var none T
	t, err := s.depart(ctx, call)
	if err != nil {
		return none, err
	}
	switch t.fault.Kind {
	case Deny:
		return none, t.denied()
	case Drop:
		return none, t.fail()
	case LandLate:
		if ctx.Err() == nil { // else it was never sent
			s.land(ctx, t.fault.Delay, func(ctx context.Context) { _, _ = apply(ctx) })
		}
		return none, t.fail()
	}
	if err := t.outbound(); err != nil {
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

// outbound holds the call up before the store gets it.
func (t *trip) outbound() error {
	if t.fault.Kind != Delay {
		return nil // depart has just found the way free
	}
	if err := t.sleep(t.fault.Delay); err != nil {
		return err
	}
	return t.pass()
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
	err, cause := t.ctx.Err(), context.Cause(t.ctx)
	switch {
	case err == nil:
		return fmt.Errorf("faultstore: %s: %w: %s", t.op, ErrInjected, what)
	case errors.Is(cause, err):
		return fmt.Errorf("faultstore: %s: %w: %s: %w", t.op, ErrInjected, what, cause)
	default:
		return fmt.Errorf("faultstore: %s: %w: %s: %w: %w", t.op, ErrInjected, what, err, cause)
	}
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
