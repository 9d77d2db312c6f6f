//go:build linux

package scheduler

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultclock"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/singleton"
)

// node is what one process of a cluster would be, and can be frozen as one.
type node struct {
	*peer
	freezer

	id       string
	timeline *stage.Timeline
	clock    *faultclock.Clock
	store    *faultstore.Store

	mu   sync.Mutex
	lost bool // the lease was lost here, once at least
}

func newNode(id string, store lease.Store, cfg stage.Config, t *stage.Timeline) (*node, error) {
	n := &node{id: id, timeline: t, clock: faultclock.New(), store: faultstore.Wrap(store)}
	var err error
	if n.peer, err = newPeer(id, "127.0.0.1", 0, cfg.TTL, n.store, n.clock, t.Logger(id, cfg.Verbose)); err != nil {
		return nil, err
	}
	n.system.EventStream.Subscribe(n.onEvent)
	return n, nil
}

// start makes the node take part in the singleton.
func (n *node) start(j *journal) error {
	return n.host(func() *scheduler {
		return &scheduler{node: n.id, ledger: j, midJob: n.midJob, after: n.clock.AfterFunc, say: n.say}
	},
		singleton.WithMailbox(n.mailbox),
		singleton.WithJournal(func(_ string, token lease.Token, at time.Duration) { j.passed(n.id, token, at) }))
}

// say puts a line into the timeline.
func (n *node) say(format string, args ...any) { n.timeline.Say(n.id, format, args...) }

func (n *node) onEvent(event any) {
	e, ok := event.(singleton.Event)
	if !ok {
		return
	}
	if e.Kind == singleton.Lost {
		n.mu.Lock()
		n.lost = true
		n.mu.Unlock()
	}
	n.say("%s", describe(e))
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
		struck <- stage.Now()
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
