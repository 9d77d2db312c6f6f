package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/reply"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// Start runs this node's part of a type of entities among the members of group. It
// holds the lease "region/<group>/<type>/<id>/<incarnation>" (escaped) as long as it
// lives, and those of the shards it hosts, "shard/<group>/<type>/<n>". It returns
// when it is registered, and what others know is known. It waits for each of the records
// and the membership for 10 s at the most; else it is bounded by
// lease.Config.OperationTimeout and a few seconds.
//
// Metrics, and spans of planned moves of shards, go where those of the group's Keeper go.
//
// Errors: lease.ErrInvalid for a bad name, type or option, nil arguments, and if the
// Keeper's address is not the system's; ErrNameInUse; ErrShardCount, with both
// numbers; ErrProtocol, if a node that takes part is of a version too far from this one;
// lease.ErrUnsupported for a store that can neither watch nor list; lease.ErrParentLost if this
// node has not been a member for 10 s; lease.ErrClosed if it has left the group, or the Keeper was
// closed; and the store's, if it can't be reached.
func Start(system *actor.ActorSystem, group *membership.Group, t Type, opts ...Option) (*Region, error) {
	fail := func(err error) (*Region, error) {
		if errors.Is(err, ErrShardCount) { // it names the type
			return nil, err
		}
		return nil, fmt.Errorf("sharding type %.64q: %w", t.Name, err)
	}
	set, err := complete(&t, opts)
	if err != nil {
		return nil, err
	}
	switch {
	case system == nil:
		return fail(fmt.Errorf("system: %w: nil", lease.ErrInvalid))
	case group == nil:
		return fail(fmt.Errorf("group: %w: nil", lease.ErrInvalid))
	case group.Keeper() == nil:
		return fail(fmt.Errorf("group: %w: the zero value, must come from membership.Join", lease.ErrInvalid))
	}
	names, err := directory.NamesOf(group.Name(), t.Name)
	if err != nil {
		return fail(err)
	}
	keeper := group.Keeper()
	set.logger = cmp.Or(set.logger, keeper.Logger())
	owner := keeper.Owner()
	if err := actors.CheckAddress(system, owner.Address); err != nil {
		return fail(fmt.Errorf("%w: %w", lease.ErrInvalid, err))
	}
	r := &Region{shards: make(shards, t.Shards), done: make(chan struct{})}
	r.typ, r.set, r.system, r.group, r.keeper, r.names = t, set, system, group, keeper, names
	r.clock, r.began = keeper.Clock(), keeper.Clock().Now().Mono-time.Second
	r.self = &wire.Node{Address: system.Address(), Incarnation: owner.Incarnation}
	r.log = set.logger.With(zap.String("type", t.Name), zap.String("node", owner.ID))
	r.inbox.ready, r.crowd.pace = make(chan struct{}, 1), make(chan struct{}, 1)
	r.payload = wire.PayloadLimit(system)
	if set.stateLimit == defaultStateLimit {
		r.set.stateLimit = min(set.stateLimit, r.payload)
	}
	if r.set.stateLimit > r.payload {
		return fail(fmt.Errorf("WithStateLimit: %w: %d, must be at most %d, what one message carries (remoting.WithMaxMessageSize)", lease.ErrInvalid, set.stateLimit, r.payload))
	}
	if !set.proxyOnly {
		r.crowd.props = t.Props.Clone(actor.WithGuardian(nil), actor.WithSenderMiddleware(reply.Middleware(system)))
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.connect()
	stop, err := r.measure()
	if err == nil {
		r.onEnd(stop)
		err = outlet.Of(system).Measure(keeper.MeterProvider())
	}
	if err != nil {
		return fail(fmt.Errorf("metrics: %w", err))
	}
	r.pid = actor.NewPID(system.Address(), names.Process) // mail may come as soon as it is registered
	if _, ok := system.ProcessRegistry.Add(&r.door, names.Process); !ok {
		r.abort()
		return fail(ErrNameInUse)
	}
	desk := inquiry.Of(system)
	desk.Keep(keeper)
	desk.Tell(&r.door, r.tell)
	r.onEnd(func() {
		desk.Tell(&r.door, nil)
		r.refs.forget()
		system.ProcessRegistry.Remove(r.pid)
	})
	if err := r.launch(); err != nil {
		r.abort()
		return fail(err)
	}
	return r, nil
}

// connect shows the parts of r to each other.
func (r *Region) connect() {
	n := &r.node
	r.registration.node, r.coordination.node = n, n
	r.registration.part, r.registration.withdraw = context.WithCancel(r.life)
	r.coordination.registration = &r.registration
	r.coordination.spare = r.shards.closeHandles // it hosted before others changed the number, and back
	r.door = frontDoor{noActor{n}, r.shards}
	r.refs = refs{noActor{n}, r.deliver}
	r.loop.books = books{node: n, entity: r.entity, invites: mrand.Uint64(),
		sendings: map[*handover.Sending]struct{}{}}
	r.loop.shards, r.loop.registration, r.loop.coordination = r.shards, &r.registration, &r.coordination
	r.loop.leaving.linger.finish = r.finish
	r.loop.connect()
	for i := range r.shards {
		s := &r.shards[i]
		s.cell.node, s.books, s.number, s.name, s.whole = n, &r.loop.books, i, r.names.Shard(i), &s.shard
		s.m.Yields = r.set.overdue == hosting.ReleaseAfterTTL
	}
	r.table = directory.New(directory.Config{Names: r.names, Shards: r.typ.Shards, Name: func(i int) string { return r.shards[i].name },
		Self: r.self.Incarnation, Settings: r.agreement(), Log: r.log, Elapsed: r.elapsed,
		Shard: func(i int, rec lease.Record, known bool) {
			r.post(func() { r.shards[i].onRecord(rec, known) })
		},
		Coordinator: func() { r.post(r.loop.orders.onCoordinatorRecord) },
		Reset:       func() { r.post(r.loop.onHistoryReset) },
		Changed: func() {
			r.coordination.with((*coordinator.Coordinator).Changed)
			r.coordination.leadership.Noticed()
		},
	})
	r.coordination.leadership = coordinator.NewLeadership(r.keeper.Owner(), r.table)
	r.short = fastpath.Sender{System: r.system, Family: r.names.Key, Takes: r.table.Direct, Lost: &r.counts.unconfirmed}
}

// launch takes part. Until all of it has succeeded nothing is acquired but the
// registration, so that a Start that fails has no shard to give up.
func (r *Region) launch() (err error) {
	families := actors.FamiliesOf(r.system)
	if families.Enabled() {
		r.onEnd(families.Serve(r.names.Key, r.door.resolve))
	}
	g := &r.registration
	about := directory.RegionMetadata(r.typ.Shards, !r.set.proxyOnly, families.Enabled(), r.agreement())
	if g.lease, err = r.keeper.Lease(g.leaseName(), append(r.options(about), r.group.AsParent())...); err != nil {
		return err
	}
	r.loop.parent = g.lease
	r.onEnd(func() { _ = g.lease.Close(context.Background()) }) // bounded by the lease's own bounds
	reply.Start(r.system)
	quit := make(chan struct{})
	r.loop.ended = make(chan struct{})
	go r.loop.run(quit)
	r.onEnd(func() { close(quit); <-r.loop.ended })
	if err := r.listen(); err != nil {
		return err
	}
	if err := g.enroll(); err != nil {
		return err
	}
	if r.set.idle > 0 {
		r.ops.Go(r.loop.passivation.tick)
	}
	if !r.set.proxyOnly {
		if err := r.coordination.start(r.onEnd); err != nil {
			return err
		}
	}
	g.admitted.Store(true)
	r.onEnd(actors.AfterShutdown(r.system, r.leaveForGood)) // last: before, abort ends the Region
	return nil
}

// listen begins to follow what others do, and waits until what stands is known.
func (r *Region) listen() error {
	c := &r.coordination
	stop, err := r.table.Follow(r.keeper)
	if err != nil {
		return err
	}
	r.onEnd(stop)
	r.onEnd(transport.Of(r.system).Watch(func(address string) {
		r.post(func() { r.loop.onPeerGone(address) })
	}))
	r.onEnd(r.group.Follow(func(m membership.MembersChanged) {
		r.others.Store(wire.Others(m.Now, r.self.Address))
		r.post(func() { r.loop.leaving.onMembership(false) })
		c.with((*coordinator.Coordinator).Changed)
	}))
	wait, stopWaiting := r.within(r.life, startWithin)
	defer stopWaiting()
	select {
	case <-r.table.Ready():
		return nil
	case <-wait.Done():
		return fmt.Errorf("the records of the type are not known after %v: %w", startWithin, lease.ErrUnknown)
	}
}

// abort ends a Region that did not come to be.
func (r *Region) abort() {
	r.over.Store(true)
	r.shards.shut()
	r.end()
	r.ops.Wait()
	r.clean()
}

// onEnd has f called when the Region ends; the last first.
func (r *Region) onEnd(f func()) { r.cleanUp = append(r.cleanUp, f) }

func (r *Region) clean() {
	for _, f := range slices.Backward(r.cleanUp) {
		f()
	}
	r.cleanUp = nil
}

// finish ends a Region that holds nothing any more.
func (r *Region) finish(sendings []*handover.Sending) {
	r.over.Store(true)
	for _, x := range sendings {
		x.Leave()
	}
	r.shards.shut()
	// First, so that the coordinator's place is with a node that stays.
	r.registration.withdraw()
	_ = r.registration.lease.Release(context.Background()) // bounded by the lease's own bounds
	r.coordination.end()                                   // a coordinator adds to ops
	r.end()
	r.ops.Wait()
	r.clean()
	close(r.done)
}
