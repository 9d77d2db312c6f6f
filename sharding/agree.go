package sharding

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// This file is what the nodes of a type must agree on. On the number of shards they
// must at any time, and by their versions they must understand each other: Start fails.
// Other settings may differ while they are changed, node by node: that is logged.

// withdrawWithin is how long a node waits for another to withdraw that registered
// with another number of shards at the same time.
const withdrawWithin = 2 * time.Second

// agree finds out whether every node and every shard that lives has as many shards
// as this one: the nodes first. Of nodes that register at once the one whose record is
// the lowest, by token and then incarnation, waits for the others, which see that as
// well, to withdraw; so one of them stays. Who lives longer does not withdraw, and then
// no node may join it: to be the lowest is no reason to go on.
func (r *Region) agree(ctx context.Context) error {
	for until := r.clock.Now().Mono + withdrawWithin; ; {
		other, err := r.differs(ctx)
		switch {
		case err != nil:
			return err
		case other == nil:
			return nil
		case !other.yields || r.clock.Now().Mono >= until:
			return other.err
		}
		r.sleep(20 * time.Millisecond)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// difference is a record by a node that has another number of shards.
type difference struct {
	err    error // an ErrShardCount, which says both numbers
	yields bool  // it is to withdraw, if it came at the same time
}

// differs looks for records by nodes that have another number of shards.
func (r *Region) differs(ctx context.Context) (other *difference, err error) {
	own, registered := r.regionLease.Term()
	for _, prefix := range []string{r.names.Regions, r.names.Shards} {
		recs, err := r.keeper.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, rec := range recs {
			n, err := directory.CountOf(rec)
			if err != nil {
				return nil, err
			}
			if err := directory.Said.Check(rec); err != nil {
				return nil, err
			}
			if rec.Owner.Incarnation == r.self.Incarnation && rec.TTL > 0 {
				r.ttl.Store(int64(rec.TTL))
			}
			if n == r.typ.Shards {
				continue
			}
			d := &difference{fmt.Errorf("sharding type %q: %w: %d here, %d at node %q; it can be changed only when no node runs the type",
				r.typ.Name, ErrShardCount, r.typ.Shards, n, rec.Owner.ID),
				prefix == r.names.Regions && registered &&
					cmp.Or(cmp.Compare(own.Token(), rec.Token), cmp.Compare(r.self.Incarnation, rec.Owner.Incarnation)) < 0}
			if !d.yields {
				return d, nil
			}
			other = d
		}
	}
	return other, nil
}

// agreement is what should be the same on every node, as people and records read it.
func (r *Region) agreement() string {
	s := &r.set
	return fmt.Sprintf("message=%d remember=%t state=%d moves=%d perHost=%d strategy=%s",
		r.payload+wire.Headroom, s.store != nil, s.stateLimit, s.Limits.Moves, s.Limits.PerHost, agree.Word(strategyWord(s.Strategy)))
}

// strategyWord is what nodes compare of their strategies. Those of package placement go by
// the name that they have had for nodes of earlier versions.
func strategyWord(s placement.Strategy) string {
	if t := reflect.TypeOf(s); t.PkgPath() == reflect.TypeFor[placement.Balanced]().PkgPath() {
		return "sharding." + t.Name()
	}
	return fmt.Sprintf("%T", s)
}
