package testkit

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/simulate"
)

// This file has the histories in which links get congested. Their calm time is a
// crowded one: mailboxes fill, handlers and stops take up to minutes, and leases move by
// plan over links that are slow or hang.

// DrawJams makes up the settings of a congested history.
func (s *Sim) DrawJams() {
	s.Stop = simulate.Spread(s.R.Float64(), 10*time.Millisecond, 2*time.Minute)
	s.Toil = simulate.Spread(s.R.Float64(), time.Microsecond, 30*time.Microsecond)
	// What is left when lingering ends is dropped, and may have been taken up, too; so
	// that does not end before all has got through.
	s.Linger = 2 * time.Minute
}

func addresses(slots []*Slot) (all []string) {
	for _, sl := range slots {
		all = append(all, sl.Address())
	}
	return all
}

// Jam congests links.
func (s *Sim) Jam() { s.Logf("jam: %v", simulate.Jam(s.R, s.Net, addresses(s.Slots))) }

// Ease ends the congestion of all links that those nodes are an end of.
func (s *Sim) Ease(slots ...*Slot) {
	if s.Jams {
		simulate.Ease(s.Net, addresses(slots), addresses(s.Slots))
	}
}

// cameTo counts what became of a job; under Mu.
func (s *Sim) cameTo(f *Fate) {
	if f.Crowd && f.Handled+f.Dead == 1 {
		s.Tally.Done(f.Shard)
	}
}

// Labour is how long a handler takes in a crowded time: hardly ever long.
func (s *Sim) Labour(j Job) time.Duration {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !s.Crowd {
		return 0
	}
	if u := s.Odds(1000, 21, uint64(j.Number)); u >= 2 {
		return time.Duration(u) * s.Toil
	}
	return simulate.Spread(float64(s.Odds(1000, 22, uint64(j.Number)))/1000, time.Millisecond, 2*time.Minute)
}

// LastWork is how long one actor of several takes in a crowded time that was told to stop.
func (s *Sim) LastWork(l *Life, of int) time.Duration {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !s.Crowd || s.Odds(of, 23, uint64(l.Number)) > 0 {
		return 0
	}
	return simulate.Spread(float64(s.Odds(1000, 24, uint64(l.Number)))/1000, time.Millisecond, 2*time.Minute)
}

// Unfit reports whether a job of a crowded time goes with a header that no other node can
// be told: it is refused, unless its actor is on its sender's node.
func (s *Sim) Unfit(j Job) bool { return s.Odds(200, 41, uint64(j.Number)) == 0 }

// Dress returns j in the form in which it travels in a crowded time.
func (s *Sim) Dress(j Job) any {
	msg := FormOf(j)
	if s.Unfit(j) {
		return &actor.MessageEnvelope{Message: msg, Header: map[string]string{"trace": "\xff"}}
	}
	return msg
}

// Chat has send called for d, or until a condition holds: often at first, and ever more
// rarely.
func (s *Sim) Chat(d time.Duration, send func(), until func() bool) (held bool) {
	for began := time.Now(); time.Since(began) < d; {
		time.Sleep(min(time.Second, time.Millisecond+s.UpTo(3*time.Millisecond+time.Since(began)/10)))
		send()
		if until != nil && until() {
			return true
		}
	}
	return until == nil
}

// Crowded plays a crowded time, and judges it.
func (s *Sim) Crowded(c Thrift, count func() Counts, play func()) {
	s.Mu.Lock()
	before := count()
	clear(s.disorder)
	s.Crowd, s.Tally = true, simulate.Tally{}
	s.Mu.Unlock()
	net, kinds, began := s.Net.Stats(), s.Net.Kinds(), time.Now()
	play()
	s.Ease(s.Slots...)
	for began := time.Now(); s.pending() > 0 && time.Since(began) < time.Hour; {
		time.Sleep(time.Second)
	}
	time.Sleep(s.Stop + TTL) // what is doubled comes late
	s.Waits()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Judge(before, count(), nil)
	s.thrift(c, net, simulate.TrafficSince(s.Net, kinds), time.Since(began))
	s.Crowd = false
}

func (s *Sim) pending() int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.Tally.Pending()
}

// Thrift is what one message takes on a link at the most, and all that is no mail.
type Thrift struct {
	Hop    int  // bytes of a message, with its envelope, the frame around it, and names
	Move   int  // bytes of each node for a move: orders, offers, markers
	Other  int  // messages beside mail
	Before int  // messages that were sent before
	Stay   bool // no process ends, so no link breaks
	Late   bool // nodes look for the host now and then, and mail goes by way of the former one until then
}

const otherBytes = 64 << 10 // of moves, and of coordination

// thrift checks that a jam is not made worse: that little is sent again, that no
// link's queue has more than there is, and that nothing was left on the way.
func (s *Sim) thrift(c Thrift, before memnet.Stats, sent simulate.Traffic, took time.Duration) {
	now := s.Net.Stats()
	s.Log("crowded: %+v sent, for %d hops and %d moves, %d pending at the most", sent, s.Tally.Hops, s.Tally.Moves, s.Tally.Peak)
	if c.Late {
		s.Tally.Hops *= 2
	}
	for _, what := range s.Tally.Waste(sent, len(s.Slots), took, c.Hop) {
		s.Fail("waste: %s", what)
	}
	most, other := s.Tally.Peak+c.Before, otherBytes+s.Tally.Moves*len(s.Slots)*c.Move
	for _, from := range addresses(s.Slots) {
		for _, to := range addresses(s.Slots) {
			if messages, queued := s.Net.Peak(from, to); messages > most+c.Other || queued > most*c.Hop*3/2+other {
				s.Fail("waste: %s -> %s had %d messages in its queue, of %d bytes, with %d pending at the most", from, to, messages, queued, s.Tally.Peak)
			}
		}
	}
	if broken := now.Broken - before.Broken + now.Refused - before.Refused; now.Overflown > before.Overflown || c.Stay && broken > 0 {
		s.Fail("I5: %d messages found a queue full, %d a link broken or nobody", now.Overflown-before.Overflown, broken)
	}
}
