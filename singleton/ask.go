package singleton

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/lease"
)

// Ask sends msg to the singleton, on the node that hosts it, and waits for one answer of type
// R until ctx ends; without a deadline in ctx, for as long as that takes. While there is no
// host, msg waits in the proxy's buffer. If it still waits there, or in that of another
// node, when ctx's deadline has passed, it is not delivered any more. msg is sent once: if
// there is no answer, it is not known whether it was handled.
//
// msg may be an *actor.MessageEnvelope, to send headers; its sender is replaced.
//
// Errors (errors.Is):
//   - context.Cause(ctx), if there was no answer before ctx ended; the text says what is
//     known to have hindered it: no host, a store that does not answer, a link that
//     broke, mail that waits;
//   - hosting.ErrUnconfirmed, at once, if msg had been sent to the host when the link to it
//     broke. Ask again if handling msg twice does no harm. Where another host is known by
//     then Ask waits on, for a minute at the most, as msg may have been forwarded; and msg
//     that could not be sent yet waits for the link, or for the next host. What a host has
//     forwarded while its own link held is waited for until ctx ends: this node does not
//     know by which links it went on;
//   - hosting.ErrUndeliverable: the proxy, here or at the host, could not hand msg over; at once
//     if the buffer is full, and the text says what the mail in it waits for;
//   - hosting.ErrUnexpectedAnswer: the answer is no R, and the text says what it is;
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
	send := func(e *actor.MessageEnvelope) { m.system.Root.Send(m.PID(), e) }
	answer, err := asker.Ask[R](ctx, m.system, &m.asked, send, msg)
	if err != nil {
		err = fmt.Errorf("singleton %.64q: %w", m.Name(), err)
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, hosting.ErrUnconfirmed) {
			if why := m.why(since); why != "" {
				err = fmt.Errorf("%w (%s)", err, why)
			}
		}
	}
	return answer, err
}
