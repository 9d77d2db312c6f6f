package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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

// This part is what stands between this node and an entity, as far as this node knows:
// for callers of Ask that got no answer.

// why says what stood in the way of a question for an entity that was asked at the
// reading since of elapsed; empty if nothing is known to have.
func (r *Region) why(id string, since time.Duration) string {
	var all []string
	s, now := &r.shards[ShardOf(id, r.typ.Shards)], r.elapsed()
	ago := func(at time.Duration) time.Duration { return (now - at).Round(time.Millisecond) }
	seat := r.table.Shard(s.number)
	if !seat.Held {
		all = append(all, fmt.Sprintf("no node has been known to host shard %d for %v", s.number, ago(seat.Free)))
	}
	s.mu.RLock()
	waits, failure, broke, at := s.waiting, error(nil), s.broke, s.brokeAt
	if s.last != nil {
		failure = s.last.rem.failure
	}
	s.mu.RUnlock()
	if !seat.Held || broke != seat.Record.Owner.Address || at < since {
		broke = ""
	}
	if why := asker.Unreached(r.system, r.keeper.Owner(), seat.Record.Owner, broke, now-at); why != "" {
		all = append(all, why)
	}
	if in := r.keeper.Info(); in.Failure != nil {
		all = append(all, fmt.Sprintf("the store has not been reached since %v: %.256s",
			in.Since.Format(time.RFC3339), in.Failure))
	}
	if failure != nil {
		all = append(all, fmt.Sprintf("the store of remembered entities: %.256s", failure))
	}
	if waits > 0 {
		all = append(all, fmt.Sprintf("%d messages wait here for the shard", waits))
	}
	return strings.Join(all, ", ")
}
