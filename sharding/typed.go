package sharding

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/asker"
)

// Typed is a Region for messages of type M.
type Typed[M any] struct{ r *Region }

// For makes a Typed of r.
func For[M any](r *Region) Typed[M] { return Typed[M]{r} }

// Region returns what it was made of.
func (t Typed[M]) Region() *Region { return t.r }

// Tell is Region.Tell.
func (t Typed[M]) Tell(id string, msg M) error { return t.r.Tell(id, msg) }

// Request is Region.Request.
func (t Typed[M]) Request(id string, msg M, sender *actor.PID) error {
	return t.r.Request(id, msg, sender)
}

// Ask sends msg to the entity id, wherever it runs, and waits for one answer of type
// R until ctx ends. Everything else is as with singleton.Ask, its errors included:
//   - if there was no answer in time, the text says what is known to have hindered it, such
//     as that no node hosts the shard, a store that is not reached, a link that broke, mail
//     that waits;
//   - hosting.ErrUnconfirmed, at once, if msg had been sent to the host of the entity's
//     shard when the link to that broke. It is not known whether msg was handled. Where
//     another host is known by then Ask waits on, for a minute at the most, as msg may have
//     been forwarded; and msg that could not be sent yet waits for the link, or for the next
//     host. An entity on this node is behind no link.
func Ask[R any](ctx context.Context, r *Region, id string, msg any) (R, error) {
	var none R
	if err := r.may(ctx); err != nil {
		return none, err
	}
	if err := r.check(id, msg); err != nil {
		return none, err
	}
	since := r.elapsed()
	answer, err := asker.Ask[R](ctx, r.system, nil, func(envelope *actor.MessageEnvelope) { r.ask(id, envelope) }, msg)
	if err != nil {
		err = fmt.Errorf("%s %.64q: %w", r.typ.Name, id, err)
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, hosting.ErrUnconfirmed) {
			if why := r.why(id, since); why != "" {
				err = fmt.Errorf("%w (%s)", err, why)
			}
		}
	}
	return answer, err
}

// AskTyped is Ask for a Typed.
func AskTyped[R, M any](ctx context.Context, t Typed[M], id string, msg M) (R, error) {
	return Ask[R](ctx, t.r, id, msg)
}

// RequestFuture sends msg to the entity id and returns a future of its answer, as
// protoactor's Root.RequestFuture does; Ask says more about what went wrong. Errors:
// those of Tell.
func (r *Region) RequestFuture(id string, msg any, timeout time.Duration) (*actor.Future, error) {
	if err := r.check(id, msg); err != nil {
		return nil, err
	}
	f := actor.NewFuture(r.system, timeout)
	r.deliver(id, enclose(msg, f.PID()))
	return f, nil
}
