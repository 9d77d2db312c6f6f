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

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/singleton"
)

// The coordinator runs where the group's leader is, if that node hosts the type. It knows the
// records of leases and the members of the group, as every node does. A placement.Strategy, a pure
// function, decides from them where each shard should be, and the coordinator gives the next
// orders, within MoveLimits. An order has the coordinator's token and the shard's; a node refuses
// one that does not fit the present tokens. Only the leases make a node a host: an order that is
// lost, late or repeated is safe.
//
//	id ──ShardOf──▶ shard        View ──Strategy.Target──▶ target ──Plan──▶ orders
//
// A former coordinator can still send old orders; regions and the store refuse them.

// This file is this node's part in coordinating: where the coordinator may run, and what the node
// tells it.

// coordination is this node's part in coordinating.
type coordination struct {
	*node
	registration *registration
	spare        func() // has handles of leases closed that are not needed
	manager      *singleton.Manager
	present      atomic.Pointer[coordinator.Coordinator] // that is in charge on this node, if one is
	leadership   *coordinator.Leadership
	asked        atomic.Bool // the strategy is, and has not answered
}

// start runs this node's manager of the coordinator.
func (c *coordination) start(onEnd func(func())) error {
	l, err := c.keeper.Lease(c.names.Coordinator, c.options(directory.Metadata(c.typ.Shards, true))...)
	if err != nil {
		return err
	}
	onEnd(func() { _ = l.Close(context.Background()) })
	leadership := c.set.leadership
	if leadership == nil {
		e, err := c.group.Leadership()
		if err != nil {
			return err
		}
		onEnd(e.Follow(c.leadership.Led))
		c.leadership.Noticed()
		leadership = c.leadership
	}
	env := coordinator.Env{
		Table: c.table, Members: c.group.Members, Clock: c.clock, Send: c.send, Emit: c.onNews, Agree: c.registration.agree, Arrange: c.arrange,
		Go: c.ops.Go, Present: &c.present, Asked: &c.asked, Log: c.log,
		Type: c.names.Key, Shards: c.typ.Shards, Self: c.self, Settings: c.set.Settings,
	}
	name := "sharding/" + c.names.Key
	m, err := singleton.Start(c.system, c.keeper, name,
		actor.PropsFromProducer(func() actor.Actor { return coordinator.New(env) }),
		singleton.WithLease(l), singleton.WithLeadership(leadership), singleton.WithLogger(c.set.logger),
		singleton.WithBackoff(100*time.Millisecond, 5*time.Second))
	if err != nil {
		return err
	}
	c.manager = m
	return nil
}

// onNews tells what became of this node's coordinator.
func (c *coordination) onNews(what coordinator.What, token lease.Token, why error) {
	kinds := [...]EventKind{coordinator.Began: Coordinating, coordinator.Unprepared: CountMismatch,
		coordinator.StrategyFailed: StrategyFailed}
	if what == coordinator.Unprepared {
		if !errors.Is(why, ErrShardCount) {
			c.log.Warn("the records, or what is remembered, could not be read or moved", zap.Error(why))
			return
		}
		c.log.Error("no shard is assigned", zap.Error(why))
	}
	c.event(Event{Kind: kinds[what], Shard: -1, Token: token, Reason: why})
}

// tell sends to the coordinator, on this node or another.
func (c *coordination) tell(m proto.Message) {
	if c.present.Load() != nil {
		c.post(m)
	} else if record, ok := c.table.Coordinator(); ok {
		c.send(record.Owner.Address, m)
	}
}

// with has f called with the coordinator that is in charge on this node, if one is.
func (c *coordination) with(f func(*coordinator.Coordinator)) {
	if co := c.present.Load(); co != nil {
		f(co)
	}
}

// end ends this node's part in coordinating.
func (c *coordination) end() {
	if c.manager == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.manager.Stop(ctx); err != nil {
		c.log.Warn("the coordinator's manager is still ending", zap.Error(err))
	}
}

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
	*coordination
	ctx context.Context // of the coordinator's ownership

	mu     sync.Mutex
	leases []*lease.Handle
}

// retryAfter is the pause after an attempt whose outcome is not known.
const retryAfter = 300 * time.Millisecond

// atOnce is how many calls are under way at a time.
const atOnce = 64

// arrange returns when what is remembered stands in the shards of this number; it calls
// moving before it takes leases of shards for that. An error leaves the rest to the next
// attempt.
func (c *coordination) arrange(ctx context.Context, moving func()) error {
	if c.set.store == nil {
		return nil
	}
	l := &layout{coordination: c, ctx: ctx}
	defer l.release()
	lock, err := l.hold(c.names.Layout)
	if err != nil {
		return err
	}
	numbers, err := l.load(lock)
	if err != nil {
		return err
	}
	own := strconv.Itoa(c.typ.Shards)
	switch {
	case len(numbers) == 1 && numbers[0] == own:
		return nil
	case len(numbers) == 0:
		return l.update(lock, []string{own}, nil)
	}
	// No node with another number begins from here on: it would find this node registered.
	if err := cmp.Or(c.registration.agree(ctx), c.registration.whyNot()); err != nil {
		return err
	}
	if err := l.update(lock, []string{own}, nil); err != nil {
		return err
	}
	lists := c.typ.Shards
	for _, n := range numbers {
		i, err := strconv.Atoi(n)
		if err != nil || directory.CheckShards(i) != nil {
			return fmt.Errorf("remembered entities: %w: %.32q stands among the numbers of shards", lease.ErrBadRecord, n)
		}
		lists = max(lists, i)
	}
	c.log.Info("the number of shards was changed: what is remembered is moved", zap.Strings("from", numbers),
		zap.Int("to", c.typ.Shards))
	moving()
	moved, err := l.move(lists)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(numbers, func(n string) bool { return n == own })
	if err := l.update(lock, nil, others); err != nil {
		return err
	}
	c.log.Info("what is remembered was moved", zap.Int("entities", moved))
	return nil
}

// move brings the ids of so many lists to their shards, and returns how many it moved.
func (l *layout) move(lists int) (moved int, err error) {
	terms, held := make([]lease.Term, lists), make([][]string, lists)
	err = boundary.Each(lists, atOnce, func(i int) (err error) { terms[i], err = l.hold(l.names.Shard(i)); return err })
	if err == nil {
		err = boundary.Each(lists, atOnce, func(i int) (err error) { held[i], err = l.load(terms[i]); return err })
	}
	strays, arrivals := make([][]string, lists), make([][]string, l.typ.Shards)
	for i, ids := range held {
		for _, id := range ids {
			// What is no id can't be written anywhere; it is never started.
			if to := ShardOf(id, l.typ.Shards); to != i && ValidateEntityID(id) == nil {
				strays[i], arrivals[to] = append(strays[i], id), append(arrivals[to], id)
				moved++
			}
		}
	}
	if err == nil {
		err = boundary.Each(l.typ.Shards, atOnce, func(i int) error { return l.update(terms[i], arrivals[i], nil) })
	}
	if err == nil {
		err = boundary.Each(lists, atOnce, func(i int) error { return l.update(terms[i], nil, strays[i]) })
	}
	return moved, err
}

// hold acquires a lease, and waits for its holder to give it up.
func (l *layout) hold(name string) (lease.Term, error) {
	h, err := l.keeper.Lease(name, l.options(directory.Metadata(l.typ.Shards, true))...)
	if errors.Is(err, lease.ErrNameInUse) && name != l.names.Layout {
		l.post(l.spare) // it hosted before others changed the number, and back
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.leases = append(l.leases, h)
	l.mu.Unlock()
	for {
		t, err := h.AcquireTerm(l.ctx)
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, lease.ErrHeld):
			err = h.Wait(l.ctx)
		case errors.Is(err, lease.ErrUnknown) && l.ctx.Err() == nil:
			l.sleep(retryAfter)
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
}

// release gives back what was held: no work runs under it any more.
func (l *layout) release() {
	_ = boundary.Each(len(l.leases), atOnce, func(i int) error { return l.leases[i].Close(context.Background()) }) // bounded by the lease's own bounds
}

func (l *layout) load(t lease.Term) ([]string, error) {
	var ids []string
	if err := l.call(t, "load", func(ctx context.Context) (err error) {
		ids, err = l.set.store.Load(ctx, t)
		return err
	}); err != nil {
		return nil, err // a call that was left behind may write ids yet
	}
	return ids, nil
}

// update adds or removes ids, in batches.
func (l *layout) update(t lease.Term, add, remove []string) error {
	for len(add)+len(remove) > 0 {
		a, b := add[:min(len(add), maxBatch)], remove[:min(len(remove), maxBatch)]
		if err := l.call(t, "update", func(ctx context.Context) error { return l.set.store.Update(ctx, t, a, b) }); err != nil {
			return err
		}
		add, remove = add[len(a):], remove[len(b):]
	}
	return nil
}

// call asks the store under t.
func (l *layout) call(t lease.Term, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	tell := func(err error) { l.notRemembered(-1, t, what, err) }
	err := l.callStore(ctx, storeWithin, func() bool { return false }, tell, f)
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
