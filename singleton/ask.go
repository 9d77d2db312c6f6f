package singleton

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/lease"
)

var (
	// ErrUndeliverable: what was asked came to nobody, and the asker was told so.
	// errors.As finds an *UndeliverableError, which says more.
	ErrUndeliverable = errors.New("message undeliverable")
	// ErrUnexpectedAnswer: the answer is of another type than was asked for.
	ErrUnexpectedAnswer = errors.New("unexpected answer")
	// ErrUnconfirmed: the link to the host, of the singleton or of an entity's shard, broke
	// when the message had been sent there. It is not known whether it was handled; if it
	// was, its answer is lost.
	ErrUnconfirmed = errors.New("not known to have been handled")
)

// UndeliverableError is an ErrUndeliverable.
type UndeliverableError struct {
	// Type is the Go type of what was asked.
	Type string
	// Notice tells what hindered it; nil if all that is known is that it went to
	// the dead letters: a buffer was full, or the actor had ended.
	Notice *Undeliverable
}

// Error says the reason, the type and the detail.
func (e *UndeliverableError) Error() string {
	n := e.Notice
	if n == nil {
		return fmt.Sprintf("%v: %s went to the dead letters", ErrUndeliverable, e.Type)
	}
	reason := strings.ReplaceAll(strings.TrimPrefix(n.GetReason().String(), "REASON_"), "_", " ")
	text := fmt.Sprintf("%v: %s: %s", ErrUndeliverable, e.Type, strings.ToLower(reason))
	if n.GetType() != "" && n.GetType() != e.Type {
		text += fmt.Sprintf(", sent as %.256q", n.GetType())
	}
	if n.GetDetail() != "" {
		text += ": " + n.GetDetail()
	}
	return text
}

// Is makes it an ErrUndeliverable.
func (e *UndeliverableError) Is(target error) bool { return target == ErrUndeliverable }

// Ask sends msg to the singleton, wherever it runs, and waits for one answer of
// type R until ctx ends; without a deadline in ctx, for as long as that takes.
// While there is no host, msg waits in the proxy's buffer; what still waits there, or in
// that of another node, when ctx's deadline has passed is not delivered any more. It is
// sent once: whether one that was not answered was handled is not known.
//
// msg may be an *actor.MessageEnvelope, to send headers; its sender is replaced.
//
// Errors (errors.Is):
//   - context.Cause(ctx), if there was no answer before ctx ended; the text says what is
//     known to have hindered it: no host, a store that does not answer, a link that
//     broke, mail that waits;
//   - ErrUnconfirmed, at once, if msg had been sent to the host when the link to it
//     broke. Ask again if handling msg twice does no harm. Where the host has moved
//     meanwhile Ask waits on, as msg may have been forwarded; and msg that could not be
//     sent yet waits for the link, or for the next host;
//   - ErrUndeliverable: the proxy, here or at the host, could not hand msg over; at once
//     if the buffer is full, and the text says what the mail in it waits for;
//   - ErrUnexpectedAnswer: the answer is no R, and the text says what it is;
//   - an answer that is an error, and no R, as it is;
//   - lease.ErrInvalid for a nil Manager or message, and for protoactor's own
//     messages, such as a PoisonPill, that no actor answers.
//
// Later answers to the same msg, and those that come after Ask returned, are dead
// letters. Safe for concurrent use. It blocks its goroutine: an actor that must go
// on meanwhile calls it from another one, and tells itself what came of it.
func Ask[R any](ctx context.Context, m *Manager, msg any) (R, error) {
	if m == nil {
		var none R
		return none, fmt.Errorf("singleton.Ask: manager: %w: nil", lease.ErrInvalid)
	}
	if err := m.check(ctx); err != nil {
		var none R
		return none, err
	}
	since := m.clock.Now().Mono
	answer, err := askBy[R](ctx, m.system, &m.asked, func(e *actor.MessageEnvelope) { m.system.Root.Send(m.PID(), e) }, msg)
	if err != nil {
		err = fmt.Errorf("singleton %.64q: %w", m.Name(), err)
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, ErrUnconfirmed) {
			if why := m.why(since); why != "" {
				err = fmt.Errorf("%w (%s)", err, why)
			}
		}
	}
	return answer, err
}

// AskPID is Ask for any actor: one of system, or one that system can reach. The
// *PID must have been made for system and no other.
func AskPID[R any](ctx context.Context, system *actor.ActorSystem, to *actor.PID, msg any) (answer R, err error) {
	switch {
	case system == nil:
		return answer, fmt.Errorf("singleton.AskPID: system: %w: nil", lease.ErrInvalid)
	case to == nil:
		return answer, fmt.Errorf("singleton.AskPID: to: %w: nil", lease.ErrInvalid)
	}
	if answer, err = AskBy[R](ctx, system, func(e *actor.MessageEnvelope) { system.Root.Send(to, e) }, msg); err != nil {
		err = fmt.Errorf("actor %s/%s: %w", to.Address, to.Id, err)
	}
	return answer, err
}

// AskBy is Ask for whatever send reaches: it is called once, with msg and the
// sender that the answer is to go to. lease.ErrInvalid if system or send is nil.
func AskBy[R any](ctx context.Context, system *actor.ActorSystem, send func(*actor.MessageEnvelope), msg any) (answer R, err error) {
	switch {
	case system == nil:
		return answer, fmt.Errorf("singleton.AskBy: system: %w: nil", lease.ErrInvalid)
	case send == nil:
		return answer, fmt.Errorf("singleton.AskBy: send: %w: nil", lease.ErrInvalid)
	}
	return askBy[R](ctx, system, nil, send, msg)
}

// askBy is AskBy; of notes where the question goes, if that is known from the start.
func askBy[R any](ctx context.Context, system *actor.ActorSystem, of *asker.UnderWay, send func(*actor.MessageEnvelope), msg any) (answer R, err error) {
	if err := lease.ValidateContext(ctx); err != nil {
		return answer, err
	}
	envelope, err := questionable(msg)
	if err != nil {
		return answer, err
	}
	if ctx.Err() != nil {
		return answer, fmt.Errorf("%T was not sent: %w", envelope.Message, context.Cause(ctx))
	}
	until, _ := ctx.Deadline()
	q, pid, err := asker.Begin(system, until, of)
	if err != nil {
		return answer, err
	}
	defer q.End(pid)
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
		return answer, &UndeliverableError{Type: fmt.Sprintf("%T", asked)}
	case asker.Unconfirmed:
		return answer, fmt.Errorf("%T: %w", asked, ErrUnconfirmed)
	case *Undeliverable:
		return answer, &UndeliverableError{Type: fmt.Sprintf("%T", asked), Notice: got}
	case R:
		return got, nil
	case error:
		return answer, fmt.Errorf("answered %T: %w", asked, got)
	}
	return answer, fmt.Errorf("%w to %T: %T, not %v", ErrUnexpectedAnswer, asked, got, reflect.TypeFor[R]())
}
