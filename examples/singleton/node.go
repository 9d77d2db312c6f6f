package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultclock"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

const schedulerName = "scheduler"

// node is what one process of a cluster would be.
type node struct {
	freezer

	id       string
	timeline *timeline
	log      *zap.Logger
	clock    nodeClock
	store    *faultstore.Store
	system   *actor.ActorSystem
	remote   *remoting.Node
	keeper   *lease.Keeper
	manager  *singleton.Manager

	mu   sync.Mutex
	lost bool // the lease was lost here, once at least
}

// newNode starts everything of a node but its singleton: first remote, which
// gives the system its address, then the Keeper, whose records carry it.
func newNode(id string, store lease.Store, cfg config, t *timeline) (*node, error) {
	n := &node{id: id, timeline: t, log: t.logger(id, cfg.verbose), clock: nodeClock{faultclock.New()},
		store: faultstore.Wrap(store), system: actor.NewActorSystem(remoting.LogTo(nil))}
	rc, err := remoting.Configure("127.0.0.1", 0)
	if err != nil {
		return nil, err
	}
	if n.remote, err = remoting.Start(n.system, rc); err != nil {
		return nil, err
	}
	n.system.EventStream.Subscribe(n.onEvent)
	n.keeper, err = lease.NewKeeper(n.store, lease.Config{
		ID: id, Address: n.remote.Address(), TTL: cfg.ttl, Clock: n.clock, Logger: n.log})
	if err != nil {
		n.remote.Shutdown(false)
		return nil, err
	}
	return n, nil
}

// start makes the node take part in the singleton.
func (n *node) start(j *journal, opts ...singleton.Option) error {
	props := actor.PropsFromProducer(func() actor.Actor { return &scheduler{node: n, journal: j} })
	opts = append(opts,
		singleton.WithLogger(n.log),
		singleton.WithMailbox(n.mailbox),
		singleton.WithJournal(func(_ string, token lease.Token, at time.Duration) { j.passed(n.id, token, at) }))
	var err error
	n.manager, err = singleton.Start(n.system, n.keeper, schedulerName, props, opts...)
	return err
}

func because(reason error) string {
	if reason == nil {
		return ""
	}
	return ": " + reason.Error()
}

// say puts a line into the timeline.
func (n *node) say(format string, args ...any) { n.timeline.say(n.id, format, args...) }

func (n *node) onEvent(event any) {
	e, ok := event.(singleton.Event)
	if !ok {
		return
	}
	switch e.Kind {
	case singleton.BecameHost:
		n.say("HOSTS the scheduler under token %d", e.Token)
	case singleton.Lost:
		n.mu.Lock()
		n.lost = true
		n.mu.Unlock()
		n.say("LOST token %d%s", e.Token, because(e.Reason))
	case singleton.NotStopping:
		n.say("the scheduler of token %d does not stop, for %v", e.Token, e.After)
	case singleton.ChildEnded:
		n.say("the scheduler of token %d has ended", e.Token)
		if e.Panic != nil {
			n.say("it panicked: %v", e.Panic)
		}
	}
}

// lostLease reports whether the node has found that it lost the lease.
func (n *node) lostLease() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

// kill freezes the node in the middle of its next job. From then on no timer of
// its Keeper or scheduler fires, no request to the store gets through, and its
// actor stands still. A moment later, time enough for some mail to pile up as it
// would in the buffers of a socket, its connections are cut. Nothing is
// released. kill returns when that is done, and when the node froze.
func (n *node) kill() (at time.Duration, err error) {
	struck := make(chan time.Duration, 1)
	n.arm(func(number int) {
		n.clock.Freeze()
		n.store.Partition()
		n.say("KILLED in the middle of job %d: actors and Keeper frozen, nothing released", number)
		struck <- now()
	})
	select {
	case at = <-struck:
	case <-time.After(patience):
		n.arm(nil)
		return 0, fmt.Errorf("%s got no job within %v", n.id, patience)
	}
	time.Sleep(5 * jobEvery)
	n.remote.Shutdown(false)
	n.say("its connections are cut")
	return at, nil
}

// resurrect thaws the node, the actor well before the Keeper: so nothing but the
// gate's own look at the clock stands between its mail and the scheduler. Its
// connections stay cut. A node that is not frozen stays as it is.
func (n *node) resurrect() {
	if !n.thaw(func(waiting int) { n.say("THAWED with %d messages in its mailbox", waiting) }) {
		return
	}
	time.Sleep(2 * jobEvery)
	n.clock.Thaw()
	n.store.Heal()
}

// leave is how a node should go: hand the singleton over, close the Keeper,
// hang up.
func (n *node) leave(ctx context.Context) error {
	if n.manager != nil {
		if err := n.manager.Stop(ctx); err != nil {
			return err
		}
	}
	if err := n.keeper.Close(ctx); err != nil {
		return err
	}
	n.remote.Shutdown(true)
	return nil
}
