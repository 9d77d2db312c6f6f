package sharding

import (
	"context"
	"errors"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/asker"
)

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
