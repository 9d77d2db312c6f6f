package sharding

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/handover"
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
	if set.logger == nil {
		set.logger = keeper.Logger()
	}
	owner := keeper.Owner()
	if err := actors.CheckAddress(system, owner.Address); err != nil {
		return fail(fmt.Errorf("%w: %w", lease.ErrInvalid, err))
	}
	r := &Region{typ: t, set: set, system: system, group: group, keeper: keeper, clock: keeper.Clock(), names: names,
		began:  keeper.Clock().Now().Mono - time.Second,
		self:   &wire.Node{Address: system.Address(), Incarnation: owner.Incarnation},
		shards: make([]shard, t.Shards), byName: make(map[string]*shard, t.Shards),
		control: inbox{ready: make(chan struct{}, 1)}, done: make(chan struct{}), ended: make(chan struct{}),
		pace:    make(chan struct{}, 1),
		payload: wire.PayloadLimit(system)}
	r.refs = &refProcess{noActor{r}}
	r.log = set.logger.With(zap.String("type", t.Name), zap.String("node", owner.ID))
	if set.stateLimit == defaultStateLimit {
		set.stateLimit = min(set.stateLimit, r.payload)
		r.set.stateLimit = set.stateLimit
	}
	if set.stateLimit > r.payload {
		return fail(fmt.Errorf("WithStateLimit: %w: %d, must be at most %d, what one message carries (remoting.WithMaxMessageSize)", lease.ErrInvalid, set.stateLimit, r.payload))
	}
	r.hosts = !set.proxyOnly
	if r.hosts {
		r.props = t.Props.Clone(actor.WithGuardian(nil), actor.WithSenderMiddleware(reply.Middleware(system)))
	}
	for i := range r.shards {
		s := &r.shards[i]
		s.r, s.number, s.name = r, i, names.Shard(i)
		s.m.Yields = set.overdue == hosting.ReleaseAfterTTL
		r.byName[s.name] = s
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.part, r.withdraw = context.WithCancel(r.life)
	r.table = directory.New(directory.Config{Names: names, Shards: t.Shards, Name: func(i int) string { return r.shards[i].name },
		Self: r.self.Incarnation, Settings: r.agreement(), Log: r.log, Elapsed: r.elapsed,
		Shard: func(i int, rec lease.Record, known bool) {
			r.post(func() { r.loop.onRecord(&r.shards[i], rec, known) })
		},
		Coordinator: func() { r.post(func() { r.loop.onCoordinatorRecord() }) },
		Reset:       func() { r.post(func() { r.loop.onHistoryReset() }) },
	})
	r.short = fastpath.Sender{System: system, Family: names.Key, Takes: r.table.Direct, Lost: &r.counts.unconfirmed}
	if r.metrics, err = newInstruments(r); err == nil {
		err = outlet.Of(system).Measure(set.meters)
	}
	if err != nil {
		return fail(fmt.Errorf("metrics: %w", err))
	}
	reg := registryOf(system)
	if _, taken := reg.LoadOrStore(names.Key, r); taken {
		r.end()
		r.clean()
		return fail(ErrNameInUse)
	}
	r.onEnd(func() { reg.Delete(names.Key) })
	if err := r.launch(); err != nil {
		r.abort()
		return fail(err)
	}
	return r, nil
}

// launch takes part. Until all of it has succeeded nothing is acquired but the
// registration, so that a Start that fails has no shard to give up.
func (r *Region) launch() (err error) {
	families := actors.FamiliesOf(r.system)
	if families.Enabled() {
		r.onEnd(families.Serve(r.names.Key, r.resolve))
	}
	about := directory.RegionMetadata(r.typ.Shards, r.hosts, families.Enabled(), r.agreement())
	if r.regionLease, err = r.keeper.Lease(r.regionName(), append(r.options(about), r.group.AsParent())...); err != nil {
		return err
	}
	r.onEnd(func() { _ = r.regionLease.Close(context.Background()) }) // bounded by the lease's own bounds
	reply.Start(r.system)
	if err := r.spawn(); err != nil {
		return err
	}
	if err := r.listen(); err != nil {
		return err
	}
	if err := r.enroll(); err != nil {
		return err
	}
	if r.hosts {
		if err := r.coordinate(); err != nil {
			return err
		}
	}
	r.admitted.Store(true)
	return nil
}

// enroll registers this node, and goes on doing so. A membership that was lost just now begins
// again by itself: it is waited for.
func (r *Region) enroll() error {
	var won bool
	var err error
	for until := r.elapsed() + startWithin; ; r.sleep(memberWait) {
		won, err = r.regionLease.Acquire(r.life)
		if !errors.Is(err, lease.ErrParentLost) || errors.Is(err, lease.ErrClosed) || r.elapsed() >= until {
			break
		}
	}
	if err != nil {
		return err
	}
	if !won {
		return fmt.Errorf("%q: %w", r.regionName(), lease.ErrTakenOver)
	}
	if err := r.agree(r.life); err != nil {
		return err
	}
	r.ops.Go(r.holdRegion)
	if r.set.idle > 0 {
		r.ops.Go(r.tick)
	}
	return nil
}

// spawn begins the control loop, and makes the processes of this node.
func (r *Region) spawn() (err error) {
	c := &controller{Region: r, invites: mrand.Uint64(), early: map[string]*wire.Order{},
		sendings: map[*handover.Sending]struct{}{}}
	r.loop = c
	quit := make(chan struct{})
	go c.run(quit)
	r.onEnd(func() { close(quit); <-r.ended })
	r.pid = actor.NewPID(r.system.Address(), r.names.Process) // mail may come as soon as it is registered
	pid, ok := r.system.ProcessRegistry.Add(&frontDoor{noActor{r}}, r.names.Process)
	if !ok {
		return fmt.Errorf("an actor has the name %q: %w", r.names.Process, lease.ErrInvalid)
	}
	r.onEnd(func() {
		r.system.ProcessRegistry.Remove(pid)
		r.forgetRefs()
	})
	return nil
}

// listen begins to follow what others do, and waits until what stands is known.
func (r *Region) listen() error {
	r.leadership = coordinator.NewLeadership(r.keeper.Owner(), r.table)
	r.table.OnChange(func() {
		r.coordinating((*coordinator.Coordinator).Changed)
		r.leadership.Noticed()
	})
	stop, err := r.table.Follow(r.keeper)
	if err != nil {
		return err
	}
	r.onEnd(stop)
	r.onEnd(transport.Of(r.system).Watch(func(address string) {
		r.post(func() { r.loop.onPeerGone(address) })
	}))
	r.onEnd(actors.AfterShutdown(r.system, r.leaveForGood))
	r.onEnd(r.group.Follow(func(m membership.MembersChanged) {
		others := wire.Others(m.Now, r.self.Address)
		r.others.Store(&others)
		r.post(func() { r.loop.onMembership(false) })
		r.coordinating((*coordinator.Coordinator).Changed)
	}))
	timeout := make(chan struct{})
	t := r.clock.AfterFunc(startWithin, func() { close(timeout) })
	defer t.Stop()
	select {
	case <-r.table.Ready():
		return nil
	case <-timeout:
		return fmt.Errorf("the records of the type are not known after %v: %w", startWithin, lease.ErrUnknown)
	}
}

// startWithin bounds how long Start waits for the records, and then for the membership.
const startWithin = 10 * time.Second

// holdRegion registers this node again when its registration was lost, and not before it is a
// member.
func (r *Region) holdRegion() {
	for r.part.Err() == nil {
		t, ok := r.regionLease.Term()
		if _, member := r.group.Term(); !ok && !member {
			r.sleep(memberWait)
			continue
		}
		if !ok {
			if won, err := r.register(); !won {
				if err != nil && r.part.Err() == nil {
					r.log.Warn("registering failed", zap.Error(err))
				}
				r.sleep(time.Duration(float64(time.Second) * (0.5 + mrand.Float64()/2)))
			}
			continue
		}
		select {
		case <-t.Context().Done():
			r.sleep(10 * time.Millisecond)
			if errors.Is(context.Cause(t.Context()), lease.ErrParentLost) {
				r.unregister()
			}
		case <-r.part.Done():
		}
	}
}

// memberWait is how often a node looks whether it is a member again.
const memberWait = 50 * time.Millisecond

// unregister has the record given up of a registration that was lost with the membership, when
// all shards have been: the next membership begins then, or soon without that.
func (r *Region) unregister() {
	ctx, cancel := context.WithCancel(r.life)
	cancel() // it goes on by itself
	if err := r.regionLease.Release(ctx); err != nil {
		r.log.Debug("the registration is given up with the membership", zap.Error(err))
	}
}

// register takes part again, unless the others have agreed on another number of
// shards meanwhile: first as they are, then with this node among them.
func (r *Region) register() (won bool, err error) {
	if err = r.agree(r.part); err == nil {
		if won, err = r.regionLease.Acquire(r.part); won {
			if err = r.agree(r.part); err != nil {
				_ = r.regionLease.Release(r.life)
				won = false
			}
		}
	}
	if errors.Is(err, ErrShardCount) {
		r.event(Event{Kind: CountMismatch, Shard: -1, Reason: err})
	}
	return won, err
}

// abort ends a Region that did not come to be.
func (r *Region) abort() {
	r.over.Store(true)
	r.shut()
	r.end()
	r.ops.Wait()
	r.clean()
}
