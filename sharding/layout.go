package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// This part moves what is remembered to the shards it belongs to, after the number of
// shards was changed. The coordinator does it before it assigns the first shard, and
// holds the lease of every list it reads or changes meanwhile: so no entity runs, no
// host has read a list, and each write is fenced by its own shard's token.
//
//	numbers stand as {8}, this type has 32 shards
//	lock ─▶ {8, 32} ─▶ leases of all 32 ─▶ load all ─▶ add where ids belong ─▶ remove where not ─▶ {32}
//
// More than one number says that a move was begun and did not end: the next
// coordinator begins it again, whatever its own number is. An id that was added already is
// added again, and is removed from where it was only when it has been added.

// layout is one attempt of a coordinator.
type layout struct {
	r   *Region
	ctx context.Context // of the coordinator's ownership

	mu     sync.Mutex
	leases []*lease.Handle
	moved  int // ids that changed their shard
}

// retryAfter is the pause after an attempt whose outcome is not known.
const retryAfter = 300 * time.Millisecond

// atOnce is how many calls are under way at a time.
const atOnce = 64

// arrange returns when what is remembered stands in the shards of this number; it calls
// moving before it takes leases of shards for that. An error leaves the rest to the next
// attempt.
func (r *Region) arrange(ctx context.Context, moving func()) error {
	if r.set.store == nil {
		return nil
	}
	l := &layout{r: r, ctx: ctx}
	defer l.release()
	lock, err := l.hold(r.names.Layout)
	if err != nil {
		return err
	}
	numbers, err := l.load(lock)
	if err != nil {
		return err
	}
	own := strconv.Itoa(r.typ.Shards)
	switch {
	case len(numbers) == 1 && numbers[0] == own:
		return nil
	case len(numbers) == 0:
		return l.update(lock, []string{own}, nil)
	}
	// No node with another number begins from here on: it would find this node registered.
	if err := cmp.Or(r.agree(ctx), r.whyNot()); err != nil {
		return err
	}
	if err := l.update(lock, []string{own}, nil); err != nil {
		return err
	}
	lists := r.typ.Shards
	for _, n := range numbers {
		i, err := strconv.Atoi(n)
		if err != nil || directory.CheckShards(i) != nil {
			return fmt.Errorf("remembered entities: %w: %.32q stands among the numbers of shards", lease.ErrBadRecord, n)
		}
		lists = max(lists, i)
	}
	r.log.Info("the number of shards was changed: what is remembered is moved", zap.Strings("from", numbers),
		zap.Int("to", r.typ.Shards))
	moving()
	if err := l.move(lists); err != nil {
		return err
	}
	others := slices.DeleteFunc(numbers, func(n string) bool { return n == own })
	if err := l.update(lock, nil, others); err != nil {
		return err
	}
	r.log.Info("what is remembered was moved", zap.Int("entities", l.moved))
	return nil
}

// move brings the ids of so many lists to their shards.
func (l *layout) move(lists int) error {
	terms := make([]lease.Term, lists)
	if err := each(lists, func(i int) (err error) { terms[i], err = l.hold(l.r.names.Shard(i)); return err }); err != nil {
		return err
	}
	strays, arrivals := make([][]string, lists), make([][]string, l.r.typ.Shards)
	if err := each(lists, func(i int) error {
		ids, err := l.load(terms[i])
		if err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, id := range ids {
			// What is no id can't be written anywhere; it is never started.
			if to := ShardOf(id, l.r.typ.Shards); to != i && ValidateEntityID(id) == nil {
				strays[i], arrivals[to] = append(strays[i], id), append(arrivals[to], id)
				l.moved++
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := each(l.r.typ.Shards, func(i int) error { return l.update(terms[i], arrivals[i], nil) }); err != nil {
		return err
	}
	return each(lists, func(i int) error { return l.update(terms[i], nil, strays[i]) })
}

// hold acquires a lease, and waits for its holder to give it up.
func (l *layout) hold(name string) (lease.Term, error) {
	h, err := l.r.keeper.Lease(name, l.r.options(directory.Metadata(l.r.typ.Shards, true))...)
	if errors.Is(err, lease.ErrNameInUse) && name != l.r.names.Layout {
		l.r.post(func() { l.r.loop.closeHandles(0) }) // it hosted before others changed the number, and back
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.leases = append(l.leases, h)
	l.mu.Unlock()
	for {
		won, err := h.Acquire(l.ctx)
		if won {
			if t, ok := h.Term(); ok {
				return t, nil
			}
			return nil, fmt.Errorf("%q: %w", name, lease.ErrExpired)
		}
		if err == nil {
			err = h.Wait(l.ctx)
		} else if errors.Is(err, lease.ErrUnknown) && l.ctx.Err() == nil {
			l.r.sleep(retryAfter)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
}

// release gives back what was held: no work runs under it any more.
func (l *layout) release() {
	_ = each(len(l.leases), func(i int) error { return l.leases[i].Close(context.Background()) }) // bounded by the lease's own bounds
}

func (l *layout) load(t lease.Term) ([]string, error) {
	var ids []string
	if err := l.call(t, "load", func(ctx context.Context) (err error) {
		ids, err = l.r.set.store.Load(ctx, t)
		return err
	}); err != nil {
		return nil, err // a call that was left behind may write ids yet
	}
	return ids, nil
}

// update writes in batches.
func (l *layout) update(t lease.Term, add, remove []string) error {
	for _, x := range []struct{ add, remove []string }{{add: add}, {remove: remove}} {
		for len(x.add)+len(x.remove) > 0 {
			a, b := x.add[:min(len(x.add), maxBatch)], x.remove[:min(len(x.remove), maxBatch)]
			if err := l.call(t, "update", func(ctx context.Context) error { return l.r.set.store.Update(ctx, t, a, b) }); err != nil {
				return err
			}
			x.add, x.remove = x.add[len(a):], x.remove[len(b):]
		}
	}
	return nil
}

// call asks the store under t.
func (l *layout) call(t lease.Term, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	tell := func(err error) {
		l.r.log.Warn("the store of remembered entities failed", zap.String("list", t.Name()), zap.String("call",
			what), zap.Error(err))
		l.r.event(Event{Kind: NotRemembered, Shard: -1, Token: t.Token(), Reason: err})
	}
	err := storeCall{l.r, ctx, func() bool { return false }, tell}.try(storeWithin, f)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errStoreLeft):
		err = cmp.Or(context.Cause(ctx), err)
	default:
		tell(err)
	}
	return fmt.Errorf("remembered entities of %s: %s: %w", t.Name(), what, err)
}

// each runs f for 0 to n-1, several at once, and returns the first error, after which
// none is begun.
func each(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	var first atomic.Pointer[error]
	for range min(n, atOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && first.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := boundary.Call(func() error { return f(i) }); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

// This part is what the nodes of a type must agree on. On the number of shards they
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
		r.payload+wire.Headroom, s.store != nil, s.stateLimit, s.Limits.Moves, s.Limits.PerHost, agree.Word(fmt.Sprintf("%T", s.Strategy)))
}
