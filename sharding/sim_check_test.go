package sharding_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

// This file judges a simulated history, beside testkit.Sim. What is checked, and where:
//
//	I3       nothing passes under what was hosted when the membership was lost pass
//	I4       no record goes while work runs under it                        onEvent
//	I6       what waits is bounded                                       waitingOf
//	I7       every shard held, every entity answers, within a bound         settle
//	asks     who asked over a link that breaks hears of it, nobody else     severed
//	I7       the same while handlers of one node, and the strategy, hang     stuck

// records is what was seen of a history.
type records struct {
	made     atomic.Uint64 // entities
	stateful bool
	all      map[*testkit.Node][]*sharding.Region
	groups   map[*testkit.Node]*membership.Group
	handOffs map[string]time.Time                        // the last of a shard's lease
	hasty    map[string]bool                             // those that were handed on at once
	moved    int                                         // shards that were handed over
	hosted   map[testkit.Hold]lease.Token                // as last said
	barred   map[*testkit.Node]map[lease.Token]time.Time // what a node hosted when it lost its membership, and when
	stay     chan struct{}                               // strategies that are to hang do until it is closed
	stays    map[testkit.Job]chan struct{}               // handlers that are to hang do until theirs is
	unmade   map[string]chan struct{}                    // and Props of these entities, on one node
	slow     *testkit.Node
	cuts     map[*testkit.Node]time.Time // when a link of a node broke last
	late     map[*testkit.Node]time.Time // until when a subscriber hangs: what it hears of until then is of the past
}

func newRecords() records {
	return records{all: map[*testkit.Node][]*sharding.Region{}, groups: map[*testkit.Node]*membership.Group{},
		handOffs: map[string]time.Time{}, hasty: map[string]bool{}, hosted: map[testkit.Hold]lease.Token{},
		barred: map[*testkit.Node]map[lease.Token]time.Time{}, stays: map[testkit.Job]chan struct{}{},
		cuts: map[*testkit.Node]time.Time{}, late: map[*testkit.Node]time.Time{}}
}

func leaseOf(shard int) string { return fmt.Sprint("shard/g/account/", shard) }

// hasty is how soon a shard that was handed over may not be handed on, if order is
// to be kept: some round trips.
const hasty = 20 * time.Millisecond

// process is where the Regions of all nodes are reached.
const process = "holdfast/sharding/g/account"

// onEvent checks I4 by what a node says itself.
func (s *sim) onEvent(n *testkit.Node, e sharding.Event) {
	if e.Kind != sharding.EntityCrashed {
		s.Log("%s: %v shard %d token %d to %q: %v", n.ID, e.Kind, e.Shard, e.Token, e.Peer.ID, e.Reason)
	}
	h := testkit.Hold{On: n, Lease: leaseOf(e.Shard)}
	switch e.Kind {
	case sharding.Hosted:
		delete(s.Yielded, h)
		s.hosted[h] = e.Token
	case sharding.Yielded:
		if !s.Yields {
			s.Fail("%s yielded shard %d", n.ID, e.Shard)
		}
		s.Yielded[h] = true
		s.Tally.Moved(e.Shard)
	case sharding.HandedOff, sharding.Released:
		s.Tally.Moved(e.Shard)
		if e.Kind == sharding.HandedOff {
			s.moved++
			if time.Since(s.handOffs[h.Lease]) < hasty {
				s.hasty[h.Lease] = true
			}
			s.handOffs[h.Lease] = time.Now()
		}
		for _, l := range s.Living[h.Lease] {
			if l.On == n && time.Now().After(s.late[n]) {
				s.Fail("I4: shard %d was %v by %s, where %s runs", e.Shard, e.Kind, n.ID, l.ID)
			}
		}
	}
}

// report tells what happened if something failed.
func (s *sim) report() {
	if !s.T.Failed() {
		return
	}
	s.Report(fmt.Sprintf("%d shards, %d ids, total %d, idle %v, most %d, stateful %v", s.shards, s.ids, s.total, s.idle, s.most, s.stateful))
	for _, sl := range s.which((*slot).serves) {
		s.T.Logf("%s: %+v", sl.ID, sl.region.Info())
	}
}

// observe follows what a node publishes.
func (s *sim) observe(n *testkit.Node) {
	s.Mu.Lock()
	s.all[n] = nil
	s.Mu.Unlock()
	n.System.EventStream.Subscribe(func(evt any) {
		s.note(n, evt)
		_, ours := evt.(sharding.Event)
		s.Misbehave(evt, ours, func(d time.Duration) { s.holdUp(n, d) }, func(number int) { s.callBack(n, number) })
	})
	broke := func(string) {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		s.cuts[n] = time.Now()
	}
	actors.WatchLinks(n.System, broke)
	transport.Of(n.System).Watch(broke) // what its answers show, or its silence, too
}

func (s *sim) note(n *testkit.Node, evt any) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch e := evt.(type) {
	case sharding.Event:
		s.onEvent(n, e)
	case *actor.DeadLetterEvent: // of its Region, a job's or one that was forged
		if (s.Letter(n, e) || isSystemLike(e.Message)) && e.PID.GetAddress() == n.System.Address() && e.PID.GetId() == process {
			s.Dead[n]++
		}
	}
}

// pass is a pass of the gate.
func (s *sim) pass(n *testkit.Node, name string, token lease.Token) {
	s.Pass(n, name, token)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if at, ok := s.barred[n][token]; ok && time.Now().After(at) {
		s.Fail("I3: %s: a pass of %s under token %d, which it hosted when it lost its membership at %v", n.ID, name,
			token, at.Format("04:05.000"))
	}
}

func (s *sim) sent(j testkit.Job, by, id string) { s.Sent(j, by, id, sharding.ShardOf(id, s.shards)) }

func (s *sim) next() testkit.Job {
	s.jobs++
	return testkit.Job{Number: s.jobs}
}

// tellNext has a node send an entity the next job, whose handler hangs on stay.
func (s *sim) tellNext(sl *slot, id string, stay chan struct{}) testkit.Job {
	j := s.next()
	if stay != nil {
		s.Mu.Lock()
		s.stays[j] = stay
		s.Mu.Unlock()
	}
	s.tellJob(sl, id, j, testkit.FormOf(j))
	return j
}

func (s *sim) tellJob(sl *slot, id string, j testkit.Job, msg any) {
	s.sent(j, sl.ID, id)
	if err := sl.region.Tell(id, msg); err != nil {
		s.Failf("%s can't tell: %v", sl.ID, err)
	}
}

// account checks I6 when all has ended.
func (s *sim) account() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	unconfirmed := 0
	for n, rs := range s.all {
		counted := 0
		for _, r := range rs {
			in := r.Info()
			counted += int(in.Dropped + in.Undeliverable)
			unconfirmed += int(in.Unconfirmed)
			if (in.Held != 0 || in.Waiting != 0) && !s.Out[n] {
				s.Fail("I4: %s has ended, and holds %d shards, with %d messages", n.ID, in.Held, in.Waiting)
			}
		}
		if counted > s.Dead[n] && !s.Out[n] {
			s.Fail("I6: %s counted %d, and had %d dead letters", n.ID, counted, s.Dead[n])
		}
	}
	s.Account(unconfirmed)
}

// count adds up what the Regions counted of all nodes that did not crash.
func (s *sim) count() (sum testkit.Counts) {
	for n, rs := range s.all {
		for _, r := range rs {
			if s.Out[n] {
				continue
			}
			in := r.Info()
			sum.Unordered += int(in.Unordered)
			sum.Dropped += int(in.Dropped)
			sum.Undeliverable += int(in.Undeliverable)
			sum.Crashes += int(in.Crashes)
		}
	}
	return sum
}
