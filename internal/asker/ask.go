package asker

import (
	"context"
	"fmt"
	"reflect"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
)

// Ask calls send once, with msg and the sender that the answer is to go to, and waits for
// one answer of type R until ctx ends. of notes where the question goes; nil if that is not
// noted, or Expect comes later. The errors are those of singleton.Ask.
func Ask[R any](ctx context.Context, system *actor.ActorSystem, of *InFlight,
	send func(*actor.MessageEnvelope), msg any) (answer R, err error) {
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
	q, pid, err := Begin(system, until, of)
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
