package sharding_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// This file judges a simulated history. What is checked, and where:
//
//	I1, I3   every pass, as it happens: in the order of its shard's tokens, and while
//	         the store has the record it is by                                pass
//	I1, I2   an entity begins where and when no other of its id may work      born
//	I2       a new owner has a new token                              watchRecords
//	I3       nothing is handled after the context was done                 handled
//	I3       nothing passes under what was hosted when the membership was lost pass
//	I4       no record goes while work runs under it     witness, onEvent, watchRecords
//	I5       nothing lost, doubled or out of order in a calm time    calm, handled
//	I5       the same in a crowded time, as far as promised; waste        crowded
//	I6       every message is handled, or its loss is counted              account
//	I6       what waits is bounded                                       waitingOf
//	I7       every shard held, every entity answers, within a bound         settle
//	asks     who asked over a link that breaks hears of it, nobody else     severed
//	I7       the same while handlers of one node, and the strategy, hang     stuck
//	state    what is restored is what the last one left                       born

// records is what was seen of a history.
type records struct {
	good     atomic.Bool   // entities do as they are told
	busy     atomic.Int32  // handlers that run
	made     atomic.Uint64 // entities
	yields   bool          // a shard may be given up under its entities
	stateful bool

	mu        sync.Mutex
	trace     []string
	fails     int
	highest   map[string]lease.Token // of all passes so far, by shard
	passes    int
	lives     []*simLife
	latest    map[string]*simLife   // by id
	living    map[string][]*simLife // by shard
	yielded   map[simHold]bool
	all       map[*node][]*sharding.Region
	out       map[*node]bool // crashed, or frozen: nobody there can act
	dead      map[*node]int  // letters of its Region
	fates     map[job]*fate
	last      map[string]int      // the last number that was handled, of a calm sender, by it and id
	disorder  map[string][]string // what came out of order, by shard
	handOffs  map[int]time.Time   // the last of a shard
	hasty     map[int]bool        // shards that were handed on at once
	lastCrash time.Time           // the last one
	lastCut   time.Time           // of a link, or a freeze: the last one
	warm      int                 // entities that began with a state
	crowd     bool                // handlers take long, and entities do to stop
	tally     simulate.Tally
	moved     int // shards that were handed over

	hosted map[simHold]lease.Token             // as last said
	barred map[*node]map[lease.Token]time.Time // what a node hosted when it lost its membership, and when
	stay   chan struct{}                       // strategies that are to hang do until it is closed
	stays  map[job]chan struct{}               // handlers that are to hang do until theirs is
	unmade map[string]chan struct{}            // and Props of these entities, on one node
	slow   *node
	cuts   map[*node]time.Time // when a link of a node broke last
	told   int                 // events that rude subscribers heard of
	late   map[*node]time.Time // until when one hangs: what it hears of until then is of the past
}

// hasty is how soon a shard that was handed over may not be handed on, if order is
// to be kept: some round trips.
const hasty = 20 * time.Millisecond

// simHold is a node's hold of a shard.
type simHold struct {
	n     *node
	shard int
}

// fate is what became of a job.
type fate struct {
	by, id        string
	sent          time.Time
	handled, dead int
	crowd         bool // sent in a crowded time
}

func (s *sim) prepare() {
	s.highest, s.latest, s.living = map[string]lease.Token{}, map[string]*simLife{}, map[string][]*simLife{}
	s.yielded, s.all, s.out, s.dead = map[simHold]bool{}, map[*node][]*sharding.Region{}, map[*node]bool{}, map[*node]int{}
	s.fates, s.last = map[job]*fate{}, map[string]int{}
	s.hosted, s.barred, s.stays = map[simHold]lease.Token{}, map[*node]map[lease.Token]time.Time{}, map[job]chan struct{}{}
	s.late, s.cuts = map[*node]time.Time{}, map[*node]time.Time{}
	s.disorder, s.handOffs, s.hasty = map[string][]string{}, map[int]time.Time{}, map[int]bool{}
}

// fail reports a broken invariant; under mu.
func (s *sim) fail(format string, args ...any) {
	s.log("FAILED: "+format, args...)
	if s.fails++; s.fails > 10 {
		return
	}
	s.t.Errorf("seed %d at %v: %s", s.seed, time.Now().Format("04:05.000"), fmt.Sprintf(format, args...))
}

func (s *sim) failf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(format, args...)
}

func (s *sim) log(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

func (s *sim) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log(format, args...)
}

// report tells what happened if something failed.
func (s *sim) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t.Failed() {
		s.t.Logf("seed %d: %d nodes, %d shards, %d ids, stop %v, small %v (%d), follow %v, idle %v, most %d, yields %v, stateful %v, rude %v\n%s",
			s.seed, len(s.slots), s.shards, s.ids, s.stop, s.small, s.total, s.follow, s.idle, s.most, s.yields, s.stateful, s.rude, strings.Join(s.trace, "\n"))
		for _, sl := range s.slots {
			if sl.serves() {
				in := sl.n.region.Info()
				s.t.Logf("%s: held %d entities %d waiting %d dropped %d undeliverable %d unordered %d overruns %d, coordinator %s/%d\n%v", sl.id, in.Held, in.Entities,
					in.Waiting, in.Dropped, in.Undeliverable, in.Unordered, in.Overruns, in.Coordinator.ID, in.Token, in.Table)
			}
		}
	}
}

// observe follows what a node publishes.
func (s *sim) observe(sl *slot, n *node) {
	s.mu.Lock()
	s.all[n] = nil
	s.mu.Unlock()
	n.system.EventStream.Subscribe(func(evt any) {
		s.note(n, evt)
		if s.rude {
			s.misbehave(sl, n, evt)
		}
	})
	broke := func(string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cuts[n] = time.Now()
	}
	actors.WatchLinks(n.system, broke)
	transport.Of(n.system).Watch(broke) // what its answers show, or its silence, too
}

func (s *sim) note(n *node, evt any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := evt.(type) {
	case sharding.Event:
		s.onEvent(n, e)
	case *actor.DeadLetterEvent:
		if j, ok := jobOf(e.Message); ok && s.fates[j] != nil {
			s.fates[j].dead++
			s.cameTo(s.fates[j])
			s.log("%s: dead letter %v to %s", n.id, j, e.PID)
			s.letter(n, e)
		} else if isSystemLike(e.Message) { // forged
			s.letter(n, e)
		}
	}
}

// letter counts a dead letter of a node's Region; under mu.
func (s *sim) letter(n *node, e *actor.DeadLetterEvent) {
	if e.PID.GetAddress() == n.system.Address() && e.PID.GetId() == process {
		s.dead[n]++
	}
}

// process is where the Regions of all nodes are reached.
const process = "holdfast/sharding/g/account"

// onEvent checks I4 by what a node says itself.
func (s *sim) onEvent(n *node, e sharding.Event) {
	if e.Kind != sharding.EntityCrashed {
		s.log("%s: %v shard %d token %d to %q: %v", n.id, e.Kind, e.Shard, e.Token, e.Peer.ID, e.Reason)
	}
	h := simHold{n, e.Shard}
	switch e.Kind {
	case sharding.Hosted:
		delete(s.yielded, h)
		s.hosted[h] = e.Token
	case sharding.Yielded:
		if !s.yields {
			s.fail("%s yielded shard %d", n.id, e.Shard)
		}
		s.yielded[h] = true
		s.tally.Moved(e.Shard)
	case sharding.HandedOff, sharding.Released:
		s.tally.Moved(e.Shard)
		if e.Kind == sharding.HandedOff {
			s.moved++
			if time.Since(s.handOffs[e.Shard]) < hasty {
				s.hasty[e.Shard] = true
			}
			s.handOffs[e.Shard] = time.Now()
		}
		for _, l := range s.living[fmt.Sprint("shard/g/account/", e.Shard)] {
			if l.on == n && time.Now().After(s.late[n]) {
				s.fail("I4: shard %d was %v by %s, where %s runs", e.Shard, e.Kind, n.id, l.id)
			}
		}
	}
}

// pass checks I1 and I3.
func (s *sim) pass(n *node, name string, token lease.Token) {
	recs, err := s.c.store.Get(context.Background(), name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passes++
	if token < s.highest[name] {
		s.fail("I1: %s: a pass of %s under token %d after one under %d", n.id, name, token, s.highest[name])
	}
	s.highest[name] = token
	if at, ok := s.barred[n][token]; ok && time.Now().After(at) {
		s.fail("I3: %s: a pass of %s under token %d, which it hosted when it lost its membership at %v", n.id, name,
			token, at.Format("04:05.000"))
	}
	if err != nil || len(recs) != 1 || recs[0].Token != token || recs[0].Owner.Incarnation != n.keeper.Owner().Incarnation {
		s.fail("I3: %s: a pass of %s under token %d while the store has %+v (%v)", n.id, name, token, recs, err)
	}
}

// handled notes that an entity took a job.
func (s *sim) handled(l *simLife, j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.doneAt.IsZero() && l.doneAt.Before(time.Now()) {
		s.fail("I3: %s on %s handled %v after its context was done", l.id, l.on.id, j)
	}
	l.jobs++
	f := s.fates[j]
	if f == nil {
		return
	}
	f.handled++
	s.cameTo(f)
	if f.id != l.id {
		s.fail("%v for %s came to %s", j, f.id, l.id)
	}
	if j.Sender == "" {
		return
	}
	key := j.Sender + ">" + l.id
	if j.Number <= s.last[key] {
		s.disorder[l.shard] = append(s.disorder[l.shard], fmt.Sprintf("%s got %v after number %d", l.id, j, s.last[key]))
	}
	s.last[key] = j.Number
}

func (s *sim) broke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCut = time.Now()
}

func (s *sim) crashed(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out[n], s.lastCrash = true, time.Now()
}

func (s *sim) excuse(n *node, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out[n], s.lastCut = on, time.Now()
}

func (s *sim) started(n *node, r *sharding.Region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[n] = append(s.all[n], r)
}

func (s *sim) sent(j job, by, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates[j] = &fate{by: by, id: id, sent: time.Now(), crowd: s.crowd}
	if s.crowd {
		s.tally.Sent(sharding.ShardOf(id, s.shards))
	}
}

func (s *sim) unsent(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fates, j)
}

// account checks I6 when all has ended.
func (s *sim) account() {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, unconfirmed := 0, 0
	for j, f := range s.fates {
		crashed, cut := !f.sent.After(s.lastCrash), !f.sent.After(s.lastCut)
		switch {
		case f.handled+f.dead == 1:
		case f.handled+f.dead == 0 && cut:
			lost++
			s.log("lost: %v from %s to %s in shard %d, sent at %v", j, f.by, f.id, sharding.ShardOf(f.id, s.shards),
				f.sent.Format("04:05.000000"))
		case f.handled+f.dead == 0 && crashed:
		case f.handled+f.dead > 1 && (crashed || cut): // who was handed it could not be reached
		default:
			s.fail("I6: %v, sent at %v: %+v", j, f.sent.Format("04:05.000000"), *f)
		}
	}
	for n, rs := range s.all {
		counted := 0
		for _, r := range rs {
			in := r.Info()
			counted += int(in.Dropped + in.Undeliverable)
			unconfirmed += int(in.Unconfirmed)
			if (in.Held != 0 || in.Waiting != 0) && !s.out[n] {
				s.fail("I4: %s has ended, and holds %d shards, with %d messages", n.id, in.Held, in.Waiting)
			}
		}
		if counted > s.dead[n] && !s.out[n] {
			s.fail("I6: %s counted %d, and had %d dead letters", n.id, counted, s.dead[n])
		}
	}
	if s.lastCrash.IsZero() && lost > unconfirmed { // on links that broke, or as they did
		s.fail("I6: %d lost, but only %d counted as sent and not known to have arrived", lost, unconfirmed)
	}
	if s.passes == 0 {
		s.fail("nothing was ever done")
	}
}

// count adds up what the Regions counted of all nodes that did not crash.
func (s *sim) count() (sum sharding.Info) {
	for n, rs := range s.all {
		for _, r := range rs {
			if s.out[n] {
				continue
			}
			in := r.Info()
			sum.Unordered += in.Unordered
			sum.Dropped += in.Dropped
			sum.Undeliverable += in.Undeliverable
			sum.Crashes += in.Crashes
		}
	}
	return sum
}
