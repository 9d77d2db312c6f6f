// Package asker is the asker's end of a message that wants an answer: a process that
// waits for one answer. The sender of the message to another node notes that (InFlight);
// if the link it went over breaks, the asker hears that no answer will come.
package asker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Question is the process whose PID an asked message has as its sender. It takes
// one answer. A future of protoactor would do as well, but for its timeout, and
// for what a second answer or a watcher does to it.
type Question struct {
	system *actor.ActorSystem
	answer chan any    // room for the one
	over   atomic.Bool // it came, or the asker gave up
	until  time.Time   // the asker's deadline; zero for none

	of atomic.Pointer[InFlight] // notes where it goes; may be nil
}

// Unconfirmed is the answer to a Question whose link broke, or whose message was not sent for
// sure.
type Unconfirmed struct{}

// Begin registers a Question. until is the asker's deadline, zero for none. of notes where it
// goes; nil if that is not noted, or Expect comes later. The caller must call End.
func Begin(system *actor.ActorSystem, until time.Time, of *InFlight) (*Question, *actor.PID) {
	q := &Question{system: system, answer: make(chan any, 1), until: until}
	q.of.Store(of)
	pid, _ := system.ProcessRegistry.Add(q, wire.NextAskID(system)) // the name is used once
	return q, pid
}

// Wait returns the answer; false if ctx ended before there was one.
func (q *Question) Wait(ctx context.Context) (answer any, ok bool) {
	select {
	case answer = <-q.answer:
	case <-ctx.Done():
		if q.over.CompareAndSwap(false, true) {
			return nil, false
		}
		answer = <-q.answer // at the last moment
	}
	return answer, true
}

// End takes the Question off the registry: an answer that comes later is a dead letter.
func (q *Question) End(pid *actor.PID) {
	q.over.Store(true)
	q.system.ProcessRegistry.Remove(pid)
	if u := q.of.Load(); u != nil {
		u.drop(q)
	}
}

// Patience implements wire.Asker.
func (q *Question) Patience() (left time.Duration, ok bool) {
	switch {
	case q.over.Load():
		return 0, true
	case q.until.IsZero():
		return 0, false
	}
	return max(0, time.Until(q.until)), true
}

// Unconfirmed implements wire.Asker.
func (q *Question) Unconfirmed() { q.take(Unconfirmed{}) }

// SendUserMessage implements actor.Process.
func (q *Question) SendUserMessage(pid *actor.PID, message any) {
	if !q.take(actor.UnwrapEnvelopeMessage(message)) {
		outlet.Of(q.system).DeadLetter(pid, message) // on the goroutine that reads a link
	}
}

// take has the asker go on with an answer; false if it does not wait for one.
func (q *Question) take(answer any) bool {
	first := q.over.CompareAndSwap(false, true)
	if first {
		q.answer <- answer
	}
	return first
}

// SendSystemMessage implements actor.Process. A Question is no actor: who watches
// it learns that there is none.
func (q *Question) SendSystemMessage(pid *actor.PID, message any) {
	outlet.Of(q.system).DeadSignal(pid, message)
}

// Stop implements actor.Process: only the asker ends a Question.
func (q *Question) Stop(pid *actor.PID) {
	outlet.Of(q.system).DeadSignal(pid, &actor.Stop{})
}

// Ask calls send once, with msg and the sender that the answer is to go to, and waits for
// one answer of type R until ctx ends. of notes where the question goes; nil if that is not
// noted, or Expect comes later. The errors are those of singleton.Ask: of the kind and the name of who
// is asked, and with what why returns, the Hindrance, where no answer came.
func Ask[R any](ctx context.Context, system *actor.ActorSystem, of *InFlight, send func(*actor.MessageEnvelope), msg any,
	kind, name string, why func() string) (R, error) {
	answer, err := ask[R](ctx, system, of, send, msg)
	if err == nil {
		return answer, nil
	}
	err = fmt.Errorf("%s %.64q: %w", kind, name, err)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, hosting.ErrUnconfirmed) {
		if text := why(); text != "" {
			err = fmt.Errorf("%w (%s)", err, text)
		}
	}
	return answer, err
}

func ask[R any](ctx context.Context, system *actor.ActorSystem, of *InFlight, send func(*actor.MessageEnvelope), msg any) (answer R, err error) {
	envelope, err := questionable(msg)
	if err != nil {
		return answer, err
	}
	if ctx.Err() != nil {
		return answer, fmt.Errorf("%T was not sent: %w", envelope.Message, context.Cause(ctx))
	}
	until, _ := ctx.Deadline()
	q, pid := Begin(system, until, of)
	defer q.End(pid)
	envelope = hosting.WithTrace(ctx, envelope).(*actor.MessageEnvelope)
	envelope.Sender = pid
	send(envelope)
	got, ok := q.Wait(ctx)
	if !ok {
		return answer, fmt.Errorf("no answer to %T: %w", envelope.Message, context.Cause(ctx))
	}
	return judge[R](envelope.Message, got)
}

// questionable returns msg in an envelope of its own, if it can be asked.
func questionable(msg any) (*actor.MessageEnvelope, error) {
	e := &actor.MessageEnvelope{Message: msg}
	if given, ok := msg.(*actor.MessageEnvelope); ok {
		e.Message = nil
		if given != nil {
			e.Message, e.Header = given.Message, given.Header
		}
	}
	switch e.Message.(type) {
	case nil:
		return nil, fmt.Errorf("message: %w: nil", lease.ErrInvalid)
	case actor.SystemMessage, actor.AutoReceiveMessage, actor.MailboxMessage:
		return nil, fmt.Errorf("message: %w: %T is protoactor's own, and not answered", lease.ErrInvalid, e.Message)
	}
	return e, nil
}

// judge turns what came back into the answer or an error.
func judge[R any](asked, got any) (answer R, err error) {
	switch got := got.(type) {
	case *actor.DeadLetterResponse:
		return answer, &hosting.UndeliverableError{Type: fmt.Sprintf("%T", asked)}
	case Unconfirmed:
		return answer, fmt.Errorf("%T: %w", asked, hosting.ErrUnconfirmed)
	case hosting.Undeliverable:
		notice := got.Notice()
		return answer, &hosting.UndeliverableError{Type: fmt.Sprintf("%T", asked), Notice: &notice}
	case R:
		return got, nil
	case error:
		return answer, fmt.Errorf("answered %T: %w", asked, got)
	}
	return answer, fmt.Errorf("%w to %T: %T, not %v", hosting.ErrUnexpectedAnswer, asked, got, reflect.TypeFor[R]())
}

// Hindrance says what stands between this node and a host: what the caller knows of it (texts that may
// be empty), a store that is not reached, no way to the host (broke is the address to which the link
// broke, that time ago; empty if none did), and messages that wait here. Empty if nothing is known.
func Hindrance(system *actor.ActorSystem, k *lease.Keeper, host lease.Owner, broke string, ago time.Duration, waits int, known ...string) string {
	if in := k.Info(); in.Failure != nil {
		known = append(known, fmt.Sprintf("the store has not been reached since %v: %.256s", in.Since.Format(time.RFC3339), in.Failure))
	}
	known = append(known, unreached(system, k.Owner(), host, broke, ago))
	if waits > 0 {
		known = append(known, fmt.Sprintf("%d messages wait here", waits))
	}
	return strings.Join(slices.DeleteFunc(known, func(text string) bool { return text == "" }), ", ")
}

// unreached says why nothing passes between the node own and the host: one of them has no address, no
// link could be made, or the one to the address broke, that time ago. Empty if nothing is known to
// hinder it; broke is empty if no link has.
func unreached(system *actor.ActorSystem, own, host lease.Owner, broke string, ago time.Duration) string {
	elsewhere := host.Incarnation != "" && host.Incarnation != own.Incarnation
	at := cmp.Or(broke, host.Address)
	switch why := actors.Unreached(system)[at]; {
	case elsewhere && own.Address == "":
		return fmt.Sprintf("this node has no address and exchanges nothing with the host %.64q", host.ID)
	case elsewhere && host.Address == "":
		return fmt.Sprintf("the host %.64q has no address", host.ID)
	case why != "":
		return fmt.Sprintf("the host at %.64s is not reached since %s", at, why)
	case broke != "":
		return fmt.Sprintf("the link to the host at %.64s broke %v ago", broke, ago.Round(time.Millisecond))
	}
	return ""
}

// InFlight is the Questions for one name that went to other nodes and have not ended.
// The zero value has none. Safe for concurrent use; it never blocks.
type InFlight struct {
	mu   sync.Mutex
	sent map[*Question]sentTo
}

// sentTo is where a Question went last.
type sentTo struct {
	to   string // the address of the node
	link uint64 // of the channel to that
}

// Sender is a PID, as actors or as messages between nodes have it.
type Sender interface {
	GetAddress() string
	GetId() string
}

// of returns the Question that sender stands for, if u notes where that goes.
func (u *InFlight) of(system *actor.ActorSystem, sender Sender) *Question {
	a, _ := wire.AskerOf(system, sender.GetAddress(), sender.GetId())
	if q, ok := a.(*Question); ok && q.of.Load() == u {
		return q
	}
	return nil
}

// Expect has u note where the Question goes that sender stands for. The sender
// calls it before it sends.
func (u *InFlight) Expect(system *actor.ActorSystem, sender Sender) {
	a, _ := wire.AskerOf(system, sender.GetAddress(), sender.GetId())
	if q, ok := a.(*Question); ok {
		q.of.CompareAndSwap(nil, u)
	}
}

// Went notes that what sender asked was sent to the node at the address to, on that link
// of the channel to it. Other senders' messages are of no account.
func (u *InFlight) Went(system *actor.ActorSystem, sender Sender, to string, link uint64) {
	q := u.of(system, sender)
	if q == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if q.over.Load() {
		return // drop was called, or will be
	}
	if u.sent == nil {
		u.sent = map[*Question]sentTo{}
	}
	u.sent[q] = sentTo{to, link}
}

// Came notes that what sender asked has come back to this node: no link matters to it.
func (u *InFlight) Came(system *actor.ActorSystem, sender Sender) {
	if q := u.of(system, sender); q != nil {
		u.drop(q)
	}
}

// patience is for how long what may have been forwarded is waited for: after that no node
// keeps it for another that does not take it.
const patience = time.Minute

// Broke answers, with Unconfirmed, what was sent to the node at address on a link before
// the present one: at once, or where moved says that it may have been forwarded by then, a
// minute later, if it has not ended, come back or gone elsewhere.
func (u *InFlight) Broke(clock store.Clock, address string, present uint64, moved bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for q, at := range u.sent {
		switch {
		case !at.wentBefore(address, present):
		case moved:
			clock.AfterFunc(patience, func() { u.Broke(clock, address, present, false) })
			return
		default:
			delete(u.sent, q)
			q.take(Unconfirmed{})
		}
	}
}

// wentBefore reports whether it was sent last to that address, on a link before the present one.
func (s sentTo) wentBefore(address string, present uint64) bool {
	return s.to == address && s.link < present
}

func (u *InFlight) drop(q *Question) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sent, q)
}
