//go:build linux

package bank

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultclock"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/sharding"
)

// node is what one process of a cluster would be, and can be frozen as one.
type node struct {
	*peer
	freezer

	id       string
	timeline *stage.Timeline
	clock    *faultclock.Clock
	store    *faultstore.Store
	lost     atomic.Int64 // shards whose lease was lost here
	dead     bool         // it was killed
}

func newNode(id string, store lease.Store, cfg config, t *stage.Timeline) (*node, error) {
	n := &node{id: id, timeline: t, clock: faultclock.New(), store: faultstore.Wrap(store)}
	var err error
	if n.peer, err = newPeer(id, "127.0.0.1", 0, cfg.TTL, n.store, n.clock, t.Logger(id, cfg.Verbose)); err != nil {
		return nil, err
	}
	n.system.EventStream.Subscribe(n.onEvent)
	return n, nil
}

// start makes the node host accounts.
func (n *node) start(j *journal) error {
	return n.host(func() *account {
		return &account{node: n.id, ledger: j, midWork: n.midWork, say: n.say}
	}, sharding.WithJournal(func(shard string, token lease.Token, at time.Duration) {
		j.passed(pass{n.id, shard, token, at})
	}))
}

// say puts a line into the timeline.
func (n *node) say(format string, args ...any) { n.timeline.Say(n.id, format, args...) }

func (n *node) onEvent(event any) {
	e, ok := event.(sharding.Event)
	if !ok {
		return
	}
	if e.Kind == sharding.Lost {
		n.lost.Add(1)
	}
	if text := describe(e); text != "" {
		n.say("%s", text)
	}
}

// describe says what happened, unless it is what happens to every shard that moves.
func describe(e sharding.Event) string {
	switch e.Kind {
	case sharding.Coordinating:
		return fmt.Sprintf("COORDINATES under token %d", e.Token)
	case sharding.Hosted, sharding.HandedOff, sharding.Released, sharding.Lost:
		return ""
	case sharding.EntityCrashed:
		return fmt.Sprintf("%s crashed: %v", e.ID, e.Panic)
	}
	text := fmt.Sprintf("shard %d: %s", e.Shard, e.Kind)
	if e.Reason != nil {
		text += ": " + e.Reason.Error()
	}
	return text
}

// kill freezes the node in the middle of its next withdrawal. From then on no timer
// of its Keeper fires, no request to the store gets through, and its accounts stand
// still. A moment later, time enough for some mail to pile up as it would in the
// buffers of a socket, its connections are cut. Nothing is released. kill returns
// when that is done, and when the node froze.
func (n *node) kill() (at time.Duration, err error) {
	struck := make(chan time.Duration, 1)
	n.arm(func(what string) {
		n.clock.Freeze()
		n.store.Partition()
		n.say("KILLED in the middle of %s: accounts and Keeper frozen, nothing released", what)
		struck <- stage.Now()
	})
	select {
	case at = <-struck:
	case <-time.After(patience):
		n.arm(nil)
		return 0, fmt.Errorf("%s had no withdrawal within %v", n.id, patience)
	}
	n.dead = true
	time.Sleep(100 * time.Millisecond)
	n.remote.Shutdown(false)
	n.say("its connections are cut")
	return at, nil
}

// thaw lets the accounts go on, and well after that the Keeper: so nothing but the
// gates' own look at the clock stands between their mail and them. The connections
// stay cut, to the store as well. A node that is not frozen stays as it is.
func (n *node) thaw() {
	if !n.freezer.thaw(func(inside int) { n.say("THAWED with %d accounts in the middle of work", inside) }) {
		return
	}
	time.Sleep(100 * time.Millisecond)
	n.clock.Thaw()
}
