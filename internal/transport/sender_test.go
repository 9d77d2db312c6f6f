package transport

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

func (s *sender) keepOne(o Owner, item int, now time.Duration) {
	s.keep(frame{owner: o, item: item, msg: &wire.Frame{To: "x"}, size: 10}, now)
	s.afterBurst(now)
}

func ackOf(life string, link, number, taken uint64) *wire.Ack {
	return &wire.Ack{From: &wire.Node{Address: "b", Incarnation: life}, Link: link, Number: number, Taken: taken}
}

// probes counts the probes among what is to be sent.
func (s *sender) takeProbes() (n int) {
	for _, m := range s.take() {
		if _, ok := m.(*wire.Probe); ok {
			n++
		}
	}
	return n
}

// A link that is silent is probed a few times a minute, whether it is up or down, and
// whatever goes on being queued.
func TestASilentLinkIsProbedSeldom(t *testing.T) {
	for name, down := range map[string]bool{"up": false, "down": true} {
		t.Run(name, func(t *testing.T) {
			s, o := newSender(), &holder{}
			s.keepOne(o, 1, 0)
			if down {
				s.gone(0)
			}
			probes := s.takeProbes()
			for now := time.Duration(0); now < giveUpAfter; now += 10 * time.Millisecond {
				if s.room() && now%(70*time.Millisecond) == 0 {
					s.straight(nil, 1, 1, &atomic.Int64{}, now)
				}
				if at := s.due(); at >= 0 && at <= now {
					s.tick(now)
				}
				probes += s.takeProbes()
			}
			require.Less(t, probes, 40)
		})
	}
}

// An answer that takes longer than the pause between probes counts.
func TestASlowAnswerCounts(t *testing.T) {
	s, o := newSender(), &holder{}
	s.begin(0)
	s.ack(ackOf("b1", 1, s.probes, 0), 0)
	s.keepOne(o, 1, 0)
	first := s.probes
	for now := time.Duration(0); now < 6*time.Second; now += time.Second {
		s.tick(now)
	}
	require.Greater(t, s.probes, first)
	s.ack(ackOf("b1", 1, first, 1), 6*time.Second)
	require.Empty(t, s.frames)
	require.Zero(t, o.held.Load())
	require.Zero(t, s.flying.messages)
	require.Negative(t, s.due())
}

// After a minute without an answer everything goes back, and who waits is told.
func TestAfterAMinuteItemsReturn(t *testing.T) {
	s, o, waits := newSender(), &holder{}, &holder{}
	s.keepOne(o, 1, 0)
	s.keepOne(o, 2, 0)
	s.gone(0)
	s.wait(waits, 0)
	var back []returned
	for now := time.Duration(0); now <= giveUpAfter+downMost; now += 100 * time.Millisecond {
		back = append(back, s.tick(now)...)
	}
	require.Equal(t, []returned{{o, []any{1, 2}}}, back)
	require.Equal(t, []Owner{waits}, s.roomy())
	require.Negative(t, s.due(), "a dead node is not probed for ever")
}

// A frame that a link swallows is sent again on a new one, with none behind it taken
// before it; and one that every link swallows goes back.
func TestAFrameThatVanishes(t *testing.T) {
	s, o := newSender(), &holder{}
	var r receiver
	var got []uint64
	s.keepOne(o, 1, 0)
	s.keepOne(o, 2, 0)
	var back []returned
	for range 100 {
		for _, m := range s.take() {
			switch m := m.(type) {
			case *wire.Probe:
				if r.probe(m) {
					back = append(back, s.ack(ackOf("b1", m.Link, m.Number, r.taken), 0)...)
					s.afterBurst(0)
				}
			case *wire.Frame:
				if s.frames[0].item == 1 && m.Number == s.frames[0].number {
					continue // swallowed
				}
				if r.frame(m) {
					got = append(got, m.Number)
				}
			}
		}
	}
	require.Equal(t, []returned{{o, []any{1}}}, back)
	require.Len(t, got, 1)
	require.Empty(t, s.frames)
	require.Zero(t, o.held.Load())
}

// A peer that restarts unnoticed may take what is under way before its word is heard:
// nothing of that goes back.
func TestAnUnnoticedRestart(t *testing.T) {
	s, o := newSender(), &holder{}
	s.begin(0)
	s.ack(ackOf("b1", 1, 1, 0), 0)
	s.take()
	var r receiver // of b2
	s.straight(nil, 1, 1, &atomic.Int64{}, 0)
	s.probe(0)
	require.True(t, r.probe(&wire.Probe{Link: 1, Number: 2}))
	s.take()
	s.keepOne(o, 7, 0)
	require.Empty(t, s.ack(ackOf("b2", 1, 2, 0), 0), "it is not known what b2 takes yet")
	require.True(t, r.frame(&wire.Frame{Link: 1, Number: 1}))
	require.False(t, s.up)
	require.True(t, r.probe(&wire.Probe{Link: 2, Number: s.probes}))
	require.Empty(t, s.ack(ackOf("b2", 2, s.probes, r.taken), 0))
	require.Empty(t, s.frames)
}

// A channel that was forgotten begins again, above its former links, and asks first what
// was taken.
func TestAChannelThatWasForgotten(t *testing.T) {
	r := receiver{link: 7, taken: 41}
	s, o := newSender(), &holder{}
	s.base = 7
	require.False(t, s.room())
	s.wait(o, 0)
	p := s.take()[0].(*wire.Probe)
	require.True(t, r.probe(p))
	s.ack(ackOf("b1", p.Link, p.Number, r.taken), 0)
	require.Equal(t, []Owner{o}, s.roomy())
	s.keepOne(o, 1, 0)
	require.True(t, r.frame(s.take()[0].(*wire.Frame)))
}

// Messages about mail that are sent while the link is down go behind what was kept.
func TestControlDoesNotOvertakeKeptMail(t *testing.T) {
	s, o := newSender(), &holder{}
	s.keepOne(o, 1, 0)
	s.gone(0)
	s.take()
	s.control(nil, "marker", 0)
	require.Empty(t, s.take())
	s.ack(ackOf("b1", 2, s.probes, 0), 0)
	out := s.take()
	require.IsType(t, &wire.Frame{}, out[0])
	require.Equal(t, "marker", out[1])
}

// A message about mail is of use for a moment. It finds a link that heals just then, though others
// have waited for that link for long: an answer, for one, to a node that could be reached again.
func TestAMessageAboutMailDoesNotWaitForLong(t *testing.T) {
	s, o := newSender(), &holder{}
	s.keepOne(o, 1, 0)
	s.gone(0)
	now := time.Duration(0)
	for probes := s.probes; now < 10*time.Second || probes == s.probes; now += 10 * time.Millisecond {
		probes = s.probes
		s.tick(now)
	}
	for _, wait := range []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond} { // since another
		s.control(nil, "first", now)
		for end := now + wait; now < end; now += 10 * time.Millisecond {
			s.tick(now)
		}
		before := s.probes
		s.control(nil, "answer", now)
		s.tick(now + downAfter)
		require.Greater(t, s.probes, before)
		for end := now + laterFor - 100*time.Millisecond; now < end; now += 10 * time.Millisecond {
			s.tick(now)
			require.NotEmpty(t, s.later)
		}
		for end := now + 2*downMost; now < end; now += 10 * time.Millisecond {
			s.tick(now)
		}
		require.Less(t, s.probes, before+8, "the pauses grow again")
		require.Empty(t, s.later)
	}
	before := s.probes
	for end := now + time.Second; now < end; now += time.Millisecond {
		s.control(nil, "many", now)
		s.tick(now)
	}
	require.LessOrEqual(t, s.probes, before+11, "however many there are")
	s.control(nil, "answer", now)
	s.take()
	s.ack(ackOf("b1", 2, s.probes, 0), now)
	require.Contains(t, s.take(), "answer")
}

func TestLostMailIsCounted(t *testing.T) {
	s := newSender()
	var a, b atomic.Int64
	for i := range 3 {
		s.straight(nil, i, 1, &a, 0)
		s.straight(nil, i, 1, &b, 0)
	}
	s.ack(ackOf("b1", 1, 2, 0), 0) // the quarters: of 8, two each
	s.gone(0)
	require.EqualValues(t, 2, a.Load())
	require.EqualValues(t, 2, b.Load())
}

// A frame returns, past those behind it, when links that live have lost it again and again. How
// often its link broke is of no account.
func TestOnlyVanishedFramesReturn(t *testing.T) {
	s, o := newSender(), &holder{}
	for i := range 2 {
		s.keep(frame{owner: o, item: i, msg: &wire.Frame{To: "x"}, size: 10}, 0)
	}
	s.afterBurst(0)
	for range 2 * maxTries {
		require.Empty(t, s.gone(0))
		require.Empty(t, s.ack(ackOf("b1", s.link, s.probes, 0), 0))
	}
	for n := 1; n <= maxTries; n++ {
		back := s.ack(ackOf("b1", s.link, s.probes, 0), 0) // all was read, and nothing taken
		if n < maxTries {
			require.Empty(t, back, "hole %d", n)
		} else {
			require.Equal(t, []returned{{o, []any{0}}}, back)
		}
		require.False(t, s.up)
		require.Empty(t, s.ack(ackOf("b1", s.link, s.probes, 0), 0))
	}
	require.EqualValues(t, 1, o.held.Load())
}

// A message that arrived between two others is asked for 50 ms after it went, also where the
// timer was to repeat the probe before it much later.
func TestMailAfterAnAnswerIsProbedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		var lost atomic.Int64
		probes := func() uint64 {
			p := a.To("b")
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.s.probes
		}
		for i := range 10 {
			before := probes()
			require.True(t, a.straight("b", fmt.Sprint(i), &lost))
			rest(probeAfter)
			require.Greater(t, probes(), before, "message %d", i)
			rest(time.Duration(i) * 20 * time.Millisecond)
		}
	})
}
