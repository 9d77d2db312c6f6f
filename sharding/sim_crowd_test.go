package sharding_test

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/sharding"
)

// This file has the histories in which links get congested. Their calm time is a
// crowded one: mailboxes fill, handlers and stops take up to minutes, and shards
// move by plan over links that are slow or hang.

// What one message takes on a link at the most, and all that is no mail.
const (
	hopBytes   = 250      // with its envelope, the frame around it, and names
	moveBytes  = 256      // of each node, for a shard that moves: orders, offers, markers
	otherBytes = 64 << 10 // coordination
	otherMail  = 1000
)

// drawJams makes up the settings of a congested history.
func (s *sim) drawJams() {
	s.stop = simulate.Spread(s.r.Float64(), 10*time.Millisecond, 2*time.Minute)
	s.toil = simulate.Spread(s.r.Float64(), time.Microsecond, 30*time.Microsecond)
	// What is left when lingering ends is dropped, and may have been taken up, too; so
	// that does not end before all has got through.
	s.linger = 2 * time.Minute
	s.opts = append(s.opts, sharding.WithStop(func() any { return simBye{} }, s.stop), sharding.WithLinger(s.linger))
}

func addresses(slots []*slot) (all []string) {
	for _, sl := range slots {
		all = append(all, sl.address())
	}
	return all
}

func (s *sim) jam() { s.logf("jam: %v", simulate.Jam(s.r, s.c.net, addresses(s.slots))) }

// ease ends the congestion of all links that those nodes are an end of.
func (s *sim) ease(slots ...*slot) {
	if s.jams {
		simulate.Ease(s.c.net, addresses(slots), addresses(s.slots))
	}
}

// cameTo counts what became of a job; under mu.
func (s *sim) cameTo(f *fate) {
	if f.crowd && f.handled+f.dead == 1 {
		s.tally.Done(sharding.ShardOf(f.id, s.shards))
	}
}

// labour is how long a handler takes in a crowded time: hardly ever long.
func (s *sim) labour(j job) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.crowd {
		return 0
	}
	if u := s.odds(1000, 21, uint64(j.Number)); u >= 2 {
		return time.Duration(u) * s.toil
	}
	return simulate.Spread(float64(s.odds(1000, 22, uint64(j.Number)))/1000, time.Millisecond, 2*time.Minute)
}

// lastWork is how long an entity takes that was told to stop.
func (s *sim) lastWork(l *simLife) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.crowd || s.odds(10, 23, uint64(l.number)) > 0 {
		return 0
	}
	return simulate.Spread(float64(s.odds(1000, 24, uint64(l.number)))/1000, time.Millisecond, 2*time.Minute)
}

// crowded has shards move by plan while mail piles up.
func (s *sim) crowded(moves int) {
	s.mu.Lock()
	before := s.count()
	clear(s.disorder)
	s.crowd, s.tally = true, simulate.Tally{}
	s.mu.Unlock()
	net, kinds, began := s.c.net.Stats(), s.c.net.Kinds(), time.Now()
	for range moves {
		if !s.r.Step() {
			continue
		}
		s.jam()
		s.burst()
		s.chat(s.upTo(2 * time.Second))
		s.shift()
		if s.r.IntN(3) == 0 {
			s.chat(s.upTo(100 * time.Millisecond))
			s.shift()
		}
		s.arrive("planned moves")
		if s.r.IntN(2) == 0 {
			s.ease(s.slots...)
		}
	}
	for _, sl := range s.slots {
		s.restart(sl)
		s.drain(sl, false)
	}
	s.arrive("the last planned moves")
	s.chat(300 * time.Millisecond)
	s.ease(s.slots...)
	for began := time.Now(); s.unhandled() > 0 && time.Since(began) < time.Hour; {
		time.Sleep(time.Second)
	}
	time.Sleep(s.stop + ttl) // what is doubled comes late
	s.waits()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judgeCrowd(before)
	s.thrift(net, simulate.TrafficSince(s.c.net, kinds), time.Since(began))
	s.crowd = false
}

// judgeCrowd checks I5 at the end of a crowded time. No process died but those that
// had nothing left, so nothing is handled twice, ever; what was not handled was
// dropped, and counted; and order is kept, unless a move says that it gave it up.
func (s *sim) judgeCrowd(before sharding.Info) {
	after, dead, unfit := s.count(), 0, 0
	for j, f := range s.fates {
		if !f.crowd {
			continue
		}
		dead += f.dead
		if s.unfit(j) {
			unfit++
		}
		if f.handled+f.dead != 1 {
			s.fail("I5: %v to %s in shard %d, sent at %v: handled %d, dead %d", j, f.id, sharding.ShardOf(f.id,
				s.shards), f.sent.Format("04:05.000000"), f.handled, f.dead)
		}
	}
	if after.Unordered == before.Unordered {
		for _, what := range s.disorder {
			s.fail("I5: %v, and nothing is said of it", what)
		}
	}
	dropped, refused := after.Dropped-before.Dropped, after.Undeliverable-before.Undeliverable
	if dead != int(dropped+refused) {
		s.fail("I6: %d dead letters, %d dropped, %d undeliverable", dead, dropped, refused)
	}
	if int(refused) > unfit || after.Crashes != before.Crashes {
		s.fail("I5: %d undeliverable, %d of them rightly, %d crashes", refused, unfit, after.Crashes-before.Crashes)
	}
}

// thrift checks that a jam is not made worse: that little is sent again, that no
// link's queue has more than there is, and that none is full.
func (s *sim) thrift(before memnet.Stats, sent simulate.Traffic, took time.Duration) {
	now := s.c.net.Stats()
	s.log("crowded: %+v sent, for %d hops and %d moves, %d pending at the most", sent, s.tally.Hops, s.tally.Moves, s.tally.Peak)
	for _, what := range s.tally.Waste(sent, len(s.slots), took, hopBytes) {
		s.fail("waste: %s", what)
	}
	other := otherBytes + s.tally.Moves*len(s.slots)*moveBytes
	for _, from := range addresses(s.slots) {
		for _, to := range addresses(s.slots) {
			messages, queued := s.c.net.Peak(from, to)
			if most := s.tally.Peak + s.jobs - s.crowdJobs; messages > most+otherMail || queued > most*hopBytes*3/2+other {
				s.fail("waste: %s -> %s had %d messages in its queue, of %d bytes, with %d pending at the most", from,
					to, messages, queued, s.tally.Peak)
			}
		}
	}
	if n := now.Overflown - before.Overflown; n > 0 {
		s.fail("I5: %d messages found a queue full", n)
	}
}

func (s *sim) unhandled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tally.Pending()
}

// tell has a node send the next job of a crowded time.
func (s *sim) tell(sl *slot, id string) {
	if !sl.serves() {
		return
	}
	s.jobs++
	s.crowdJobs++
	j := job{fmt.Sprintf("%s.%d", sl.id, sl.lives), s.jobs}
	s.sent(j, sl.id, id)
	msg := formOf(j)
	if s.unfit(j) {
		msg = &actor.MessageEnvelope{Message: msg, Header: map[string]string{"trace": "\xff"}}
	}
	if err := sl.n.region.Tell(id, msg); err != nil {
		s.failf("%s can't tell: %v", j.Sender, err)
	}
}

// unfit reports whether a job of a crowded time goes with a header that no other node can
// be told: it is refused, unless its entity is on its sender's node.
func (s *sim) unfit(j job) bool { return s.odds(200, 41, uint64(j.Number)) == 0 }

// burst has a node send much at once: nothing, or up to some thousands.
func (s *sim) burst() {
	n := int(simulate.Spread(s.r.Float64(), 1, []time.Duration{300, 3000}[s.r.IntN(2)]))
	sl, ids := s.some(), []string{s.id(), s.id(), s.id()}
	s.logf("burst of %d from %s to %v", n, sl.id, ids)
	for i := range n {
		s.tell(sl, ids[i%len(ids)])
	}
}

// chat has all nodes send for d: often at first, and ever more rarely.
func (s *sim) chat(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
		time.Sleep(min(time.Second, time.Millisecond+s.upTo(3*time.Millisecond+time.Since(began)/10)))
		s.tell(s.some(), s.id())
	}
}

// shift does one planned thing, with whatever mail waits.
func (s *sim) shift() {
	sl := s.some()
	spare := len(s.which((*slot).hosts)) > 1 || !sl.hosts()
	switch what := s.r.IntN(6); {
	case sl.gone:
		s.restart(sl)
	case sl.left != nil:
	case what <= 1 && spare:
		if s.follow && sl == s.leads {
			others := s.which(func(x *slot) bool { return x != sl && x.hosts() })
			s.lead(others[s.r.IntN(len(others))], 5*time.Millisecond)
		}
		// What is under way to a process that is gone is counted by nobody: so its links
		// are well. Those of the others need not be.
		s.ease(sl)
		s.leave(sl)
	case what == 2 && s.follow:
		s.lead(sl, 5*time.Millisecond)
	case sl.drained || spare:
		s.drain(sl, !sl.drained)
	}
}

// arrive waits until all is where it is to be.
func (s *sim) arrive(what string) {
	// An entity is done with what it does, stops, a queue goes over a slow link, a stall
	// ends, an order is given anew, and who leaves is done with what it forwards.
	within := 4*time.Minute + 2*s.stop + s.linger + time.Minute + ttl
	for began, pause := time.Now(), 20*time.Millisecond; ; pause = min(pause*5/4, 2*time.Second) {
		s.poll()
		leaving := s.which(func(sl *slot) bool { return sl.left != nil })
		why := s.unsettled(false)
		if why == "" && len(leaving) == 0 {
			s.logf("%s took %v", what, time.Since(began))
			return
		}
		if time.Since(began) > within {
			s.endf("%s took more than %v: %s, %d are leaving", what, within, why, len(leaving))
		}
		time.Sleep(pause)
		s.tell(s.some(), s.id())
	}
}
