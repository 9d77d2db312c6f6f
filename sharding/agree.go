package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/quiet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is what the nodes of a type must agree on. On the number of shards they
// must at any time, and by their versions they must understand each other: Start fails.
// Other settings may differ while they are changed, node by node: it is told.

// ErrShardCount: other nodes run the type with another number of shards.
var ErrShardCount = errors.New("another number of shards is in use")

// ShardCountError is an ErrShardCount.
type ShardCountError struct {
	Type        string
	Here, There int
	Where       string // the node's id
}

// Error says both numbers.
func (e *ShardCountError) Error() string {
	return fmt.Sprintf("sharding type %q: %v: %d here, %d at node %q; it can be changed only when no node runs the type",
		e.Type, ErrShardCount, e.Here, e.There, e.Where)
}

// Is makes it an ErrShardCount.
func (e *ShardCountError) Is(target error) bool { return target == ErrShardCount }

// withdrawWithin is how long a node waits for another to withdraw that registered
// with another number of shards at the same time.
const withdrawWithin = 2 * time.Second

// agree finds out whether every node and every shard that lives has as many shards
// as this one: the nodes first. Of nodes that register at once the one whose record is
// the lowest, by token and then incarnation, waits for the others, which see that as
// well, to withdraw; so one of them stays. Who lives longer does not withdraw, and then
// nobody may join it: who is the lowest is no reason to go on.
func (r *Region) agree(ctx context.Context) error {
	for until := r.clock.Now().Mono + withdrawWithin; ; {
		other, err := r.differs(ctx)
		switch {
		case err != nil:
			return err
		case other == nil:
			return nil
		case !other.yields || r.clock.Now().Mono >= until:
			return &other.ShardCountError
		}
		r.sleep(20 * time.Millisecond)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// difference is a record by a node that has another number of shards.
type difference struct {
	ShardCountError
	yields bool // it is to withdraw, if it came at the same time
}

// differs looks for records by nodes that have another number of shards.
func (r *Region) differs(ctx context.Context) (other *difference, err error) {
	own, registered := r.regionLease.Term()
	for _, prefix := range []string{r.names.regions, r.names.shards} {
		recs, err := r.keeper.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, rec := range recs {
			n, err := countOf(rec)
			if err != nil {
				return nil, err
			}
			if err := checkProtocol(rec); err != nil {
				return nil, err
			}
			if rec.Owner.Incarnation == r.self.Incarnation && rec.TTL > 0 {
				r.ttl.Store(int64(rec.TTL))
			}
			if n == r.typ.Shards {
				continue
			}
			d := &difference{ShardCountError{r.typ.Name, r.typ.Shards, n, rec.Owner.ID},
				prefix == r.names.regions && registered &&
					cmp.Or(cmp.Compare(own.Token(), rec.Token), cmp.Compare(r.self.Incarnation, rec.Owner.Incarnation)) < 0}
			if !d.yields {
				return d, nil
			}
			other = d
		}
	}
	return other, nil
}

// ErrProtocol: a node that takes part is of a version that this one does not talk to.
var ErrProtocol = errors.New("the versions of two nodes are too far apart")

// checkProtocol compares the version of a record's writer with this node's: one apart
// is a rolling upgrade.
func checkProtocol(r lease.Record) error {
	there, err := strconv.Atoi(r.Metadata[keyProtocol])
	if err != nil && r.Metadata[keyProtocol] != "" {
		return fmt.Errorf("%q: %w: its protocol is %.32q", r.Name, lease.ErrBadRecord, r.Metadata[keyProtocol])
	}
	if there > wire.Protocol+1 || there < wire.Protocol-1 {
		return fmt.Errorf("%w: protocol %d here, %d at node %q", ErrProtocol, wire.Protocol, there, r.Owner.ID)
	}
	return nil
}

// agreement is what should be the same on every node, as people and records read it.
func (r *Region) agreement() string {
	s := &r.set
	return fmt.Sprintf("message=%d remember=%t state=%d moves=%d perHost=%d strategy=%.64s",
		r.payload+wire.Headroom, s.store != nil, s.stateLimit, s.limits.Moves, s.limits.PerHost, strings.ReplaceAll(fmt.Sprintf("%T", s.strategy), " ", ""))
}

// maxAgreement bounds what is read of another node's, in bytes.
const maxAgreement = 1024

// unlike says in what another node's agreement is not this one's; empty if it is. A
// setting that only one of them knows of is of another version, and no difference.
func (r *Region) unlike(theirs string) string {
	here := map[string]string{}
	for _, f := range strings.Fields(r.agreement()) {
		k, v, _ := strings.Cut(f, "=")
		here[k] = v
	}
	var all []string
	for _, f := range strings.Fields(theirs[:min(len(theirs), maxAgreement)]) {
		k, v, _ := strings.Cut(f, "=")
		if own, ok := here[k]; ok && own != v {
			all = append(all, fmt.Sprintf("%s is %s here, %s there", k, own, quiet.Cut(v)))
		}
	}
	return strings.Join(all, "; ")
}

// notice tells once of a node that has other settings.
func (r *Region) notice(rec lease.Record) (differs string) {
	if differs = r.unlike(rec.Metadata[keySettings]); differs != "" {
		r.log.Warn("a node has other settings, which should be the same on every node", zap.String("node",
			quiet.Cut(rec.Owner.ID)), zap.String("differs", differs))
	}
	return differs
}
