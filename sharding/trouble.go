package sharding

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/boundary"
)

// This file is what stands between this node and an entity, as far as this node knows:
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
	if why := asker.Unaddressed(r.keeper.Owner(), seat.Record.Owner); why != "" {
		all = append(all, why)
	}
	s.mu.RLock()
	waits, failure, broke, at := s.waiting, error(nil), s.broke, s.brokeAt
	if s.last != nil {
		failure = s.last.rem.failure
	}
	s.mu.RUnlock()
	if seat.Held && broke == seat.Record.Owner.Address && at >= since {
		all = append(all, fmt.Sprintf("the link to the host at %s broke %v ago", boundary.Cut(broke), ago(at)))
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
