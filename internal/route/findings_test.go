package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// Through never overtakes what waits, nor what is on its way by another.
func TestThroughOvertakesNothing(t *testing.T) {
	d := backlog(0, 10, 10)
	d.r.Host(self(1), 2, true)
	through := func() bool { _, _, ok := d.r.Through(); return ok }
	require.False(t, through(), "the backlog waits for the holder to be open")
	d.full = true
	d.answer(1, 2)
	require.False(t, through(), "there is no room")
	d.full = false
	d.r.Linked("n1")
	require.True(t, through())
	require.Equal(t, numbers(1, 10), d.keptNumbers())
	d.r.Went()
	d.sent = nil
	d.r.Host(self(2), 3, true)
	require.False(t, through(), "what went to n1 is on its way")
	require.IsType(t, &wire.Marker{}, d.sent[0], "however long ago that was")
	d.answer(2, 3)
	require.True(t, through())
	d.r.Returned([]*Item{{Local: msg{0, 1}}})
	require.False(t, through())
}

// A node that left its actor behind, or lost the name under one that hangs, reaches the
// next holder; what comes back late goes there, too, and the late end ends nothing else.
func TestTheNextHolderIsReachedPastAnActorThatHangs(t *testing.T) {
	for _, yields := range []bool{true, false} {
		t.Run(fmt.Sprint("yields ", yields), func(t *testing.T) {
			d := newDesk(0, 10, hosting.DropNewest)
			d.r.Open(1)
			d.r.Ending(!yields)
			if yields {
				d.r.Left()
			}
			d.r.Host(self(1), 2, true)
			d.accept(1, 2)
			d.wait(time.Second)
			require.Len(t, d.sent, 2)
			require.Equal(t, 1, d.r.Stats().Unordered)
			d.sent = nil
			d.r.Back(Item{Local: msg{0, 9}})
			d.answer(1, 2)
			require.Equal(t, []int{9}, d.keptNumbers())
			d.r.Host(self(0), 3, true)
			d.r.Open(3)
			d.answer(1, 2)
			d.r.Closed()
			require.Equal(t, open, d.r.phase, "another actor's end")
		})
	}
}

// A backlog is handed over in linear time.
func TestABacklogIsHandedOverInLinearTime(t *testing.T) {
	calls := func(n int) float64 {
		d := backlog(0, 10, n)
		d.r.Host(self(1), 2, true)
		d.answer(1, 2)
		for len(d.kept) < n {
			d.full = len(d.kept)%100 != 0
			d.r.Linked("n1")
		}
		require.Equal(t, numbers(1, n), d.keptNumbers())
		return float64(d.calls) / float64(n)
	}
	n := tier.Draws(10_000, 10_000)
	few, many := calls(n), calls(10*n)
	require.Less(t, many/few, 3.0)
	allocs := func(n int) float64 {
		return testing.AllocsPerRun(1, func() {
			d := backlog(0, 10, n)
			d.r.Host(self(1), 2, true)
			d.answer(1, 2)
			d.r.Returned(d.kept)
			d.r.Shut()
		}) / float64(n)
	}
	require.Less(t, allocs(10*n)/allocs(n), 3.0)
}

// Mail with tokens yet to come takes half of the bound, and is refused after TTL.
func TestMailWithTokensYetToComeIsBounded(t *testing.T) {
	c := configured(10)
	c.Bytes = 1000
	d := newDeskOf(0, c)
	d.r.Host(self(1), 5, true)
	for i := 1; i <= 8; i++ {
		d.comes(uint64(100+i%2), i, false)
	}
	require.Equal(t, numbers(6, 8), d.dropped)
	d.r.Receive(&wire.Envelope{Name: "x", Token: 100, Payload: payload(msg{9, 9})}, 499, false)
	require.Equal(t, numbers(6, 9), d.dropped, "its bytes are bounded, too")
	d.accept(1, 1)
	require.Len(t, d.sent, 1, "it holds up nothing else")
	d.wait(c.TTL - 1)
	require.Empty(t, d.refused)
	d.wait(1)
	require.ElementsMatch(t, numbers(1, 5), d.refused[wire.Reason_REASON_NO_SUCH_TOKEN])
	_, _, ok := d.r.Through()
	require.True(t, ok, "nothing waits")
}

// What its asker has given up is refused: where it waits, and where it would be sent.
func TestExpiredAsksAreRefused(t *testing.T) {
	d := newDesk(0, 10, hosting.DropNewest)
	d.r.Accept(Item{Local: msg{0, 1}, Until: time.Second})
	d.r.Accept(Item{Local: msg{0, 2}, Until: 2 * time.Second})
	d.r.Accept(Item{Local: msg{0, 3}})
	d.now = time.Second
	d.r.Tick()
	require.Equal(t, []int{1}, d.refused[wire.Reason_REASON_EXPIRED])
	d.now = 2 * time.Second
	d.r.Open(1)
	require.Equal(t, numbers(1, 2), d.refused[wire.Reason_REASON_EXPIRED])
	require.Equal(t, []int{3}, d.delivered)
	d.r.Ending(false)
	d.r.Back(Item{Local: msg{0, 4}, Until: 5 * time.Second})
	d.r.Closed()
	d.r.Host(self(1), 2, true)
	d.answer(1, 2)
	require.EqualValues(t, 3000, d.keptAs[0].(*wire.Envelope).Left)
}

// Bytes are bounded as messages are; custody is bounded apart.
func TestBytesAreBounded(t *testing.T) {
	for policy, dropped := range map[hosting.DropPolicy][]int{hosting.DropNewest: {3, 4}, hosting.DropOldest: {1, 2}} {
		c := configured(100)
		c.Bytes, c.Custody, c.Policy = 100, 50, policy
		d := newDeskOf(0, c)
		for i := 1; i <= 4; i++ {
			d.r.Accept(Item{Local: msg{0, i}, Size: 50})
		}
		require.Equal(t, dropped, d.dropped)
		d.comes(0, 5, true)
		require.Len(t, d.dropped, 2)
		d.r.Receive(&wire.Envelope{Name: "x", Payload: payload(msg{9, 6})}, 50, true)
		require.Contains(t, d.dropped, 6)
	}
	c := configured(100)
	c.Bytes, c.Custody = 10, 10
	d := newDeskOf(0, c)
	d.r.Accept(Item{Local: msg{0, 1}, Size: 50})
	d.r.Receive(&wire.Envelope{Name: "x", Payload: payload(msg{9, 2})}, 50, true)
	require.Empty(t, d.dropped, "one may be larger")
}

// MarkerWaits prolongs a path switch, and is sent when mail before the marker moves.
func TestMarkerWaitsMeansProgress(t *testing.T) {
	d := newDesk(0, 10, hosting.DropNewest)
	d.r.Host(self(1), 1, true)
	d.accept(1, 1)
	d.r.Host(self(2), 2, true)
	m := d.sent[1].(*wire.Marker)
	for range 10 {
		d.wait(900 * time.Millisecond)
		require.NotNil(t, d.r.pending)
		d.r.Receive(&wire.MarkerWaits{Name: "x", From: self(1), Number: m.Number}, 0, false)
	}
	d.r.Receive(&wire.MarkerWaits{Name: "x", From: self(1), Number: m.Number - 1}, 0, false)
	d.wait(time.Second)
	require.Nil(t, d.r.pending, "another's")
	require.Equal(t, 1, d.r.Stats().Unordered)

	d = backlog(1, 10, 3)
	d.now = time.Hour
	d.r.Receive(m, 0, false)
	d.full = true
	d.r.Host(self(2), 2, true)
	d.sent = nil
	d.wait(time.Minute)
	require.Empty(t, d.sent, "nothing moves")
	d.full, d.window = false, 1
	d.r.Linked("n2")
	d.answer(2, 2)
	require.IsType(t, &wire.MarkerWaits{}, d.sent[len(d.sent)-1], "mail moves, and the marker waits")
	d.window = 0
	d.r.Linked("n2")
	require.Equal(t, numbers(1, 3), d.keptNumbers())
}

// An ask that is not answered is repeated with pauses that double.
func TestAnUnansweredAskIsRepeatedSeldom(t *testing.T) {
	d := backlog(0, 10, 1)
	d.r.Host(self(1), 2, true)
	at := []time.Duration{d.now}
	for range 120_000 {
		d.now += time.Millisecond
		d.sent = nil
		d.r.Tick()
		if len(d.sent) > 0 {
			at = append(at, d.now)
		}
	}
	var gaps []time.Duration
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, (at[i] - at[i-1]).Round(time.Second))
	}
	require.Equal(t, []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 32 * time.Second}, gaps)
	d.answer(1, 2)
	require.Equal(t, []int{1}, d.keptNumbers())
}

// A path switch that was answered by a holder that has moved on goes on by way of it: what
// it took up is on its way from there.
func TestACrossingFollowsTheName(t *testing.T) {
	d := newDesk(0, 10, hosting.DropNewest)
	d.r.Host(self(1), 1, true)
	d.accept(1, 1)
	d.r.Host(self(2), 2, true)
	d.r.Host(self(3), 3, true)
	d.accept(2, 2)
	d.sent = nil
	d.answer(2, 2)
	require.Len(t, d.sent, 1)
	require.IsType(t, &wire.Marker{}, d.sent[0])
	require.EqualValues(t, 2, d.sent[0].(*wire.Marker).Token)
	d.answer(3, 3)
	require.Len(t, d.sent, 2)
	require.Zero(t, d.r.Stats().Unordered)
	d.r.Host(self(1), 4, true)
	d.accept(3, 3)
	d.sent = []proto.Message{}
	d.answer(3, 3)
	require.Equal(t, 1, d.r.Stats().Unordered, "it does not know that it lost the name")
	require.Len(t, d.sent, 1)
}

// What comes back goes before what never went, in order; what no node ever takes is
// refused in the end.
func TestReturnedMailGoesFirst(t *testing.T) {
	d := backlog(0, 10, 6)
	d.r.Host(self(1), 2, true)
	d.full = true
	d.answer(1, 2)
	d.r.Returned([]*Item{{Local: msg{0, -1}}, {Local: msg{0, 0}}})
	d.full = false
	for range 10 {
		d.r.Linked("n1")
		d.answer(1, 2)
		kept := d.kept
		d.kept = nil
		d.r.Returned(kept)
	}
	require.NotEmpty(t, d.refused[wire.Reason_REASON_UNDECODABLE])
	all := d.keptNumbers()
	require.Equal(t, numbers(-1, 6), all[:8])
}

// Of a backlog the first went to another node, and the rest found no room. When the name
// is here again, and the first is back from there, it goes before the rest: though the
// rest came back from an actor here, and the first did not; or did, from a later one.
func TestTheRestOfABacklogOvertakesNothing(t *testing.T) {
	split := func() *desk {
		d := backlog(0, 10, 3)
		d.window = 1
		d.r.Host(self(1), 2, true)
		d.answer(1, 2)
		require.Equal(t, []int{1}, d.keptNumbers())
		d.r.Host(self(0), 3, true)
		d.r.Open(3) // the path switch goes by way of n1, behind the first
		require.Empty(t, d.delivered)
		return d
	}
	back := func(d *desk) {
		d.r.Receive(&wire.Envelope{Name: "x", Token: 3, Payload: payload(msg{0, 1})}, 10, true)
	}
	home := func(d *desk) {
		m := proto.CloneOf(d.sent[len(d.sent)-1].(*wire.Marker))
		require.EqualValues(t, 2, m.Token)
		m.Token, m.Hops = 3, 1
		d.r.Receive(m, 0, true)
	}
	ends := func(d *desk) {
		d.r.Ending(false)
		for _, n := range d.delivered {
			d.r.Back(Item{Local: msg{0, n}, Size: 10})
		}
		d.delivered = nil
		d.r.Closed()
	}
	for what, steps := range map[string][]func(*desk){
		"the next actor ends before the first is back": {ends, back},
		"the next actor ends when it has the first":    {back, ends},
	} {
		t.Run(what, func(t *testing.T) {
			arrived := func() *desk {
				d := split()
				for _, step := range steps {
					step(d)
				}
				return d
			}
			d := arrived()
			home(d)
			d.r.Open(4)
			require.Equal(t, numbers(1, 3), d.delivered, "here")
			require.Zero(t, d.r.Stats().Unordered)

			d = arrived()
			d.window = 0
			home(d)
			d.r.Host(self(1), 4, true)
			d.answer(1, 4)
			require.Equal(t, numbers(1, 3), d.keptNumbers(), "there")
			require.Zero(t, d.r.Stats().Unordered)

			d = arrived()
			d.r.Forget(0)
			d.r.Open(1)
			require.Equal(t, numbers(1, 3), d.delivered, "after the store's history went back")
		})
	}
}

// hosting.DropOldest gives back the memory of what it drops, also while the actor ends.
func TestDropOldestGivesMemoryBack(t *testing.T) {
	d := newDesk(0, 10, hosting.DropOldest)
	d.r.Open(1)
	d.r.Ending(false)
	d.comes(0, 0, true) // at the head, and may not be dropped
	d.accept(1, 10_000)
	require.Len(t, d.dropped, 10_000-10)
	for i := range d.r.queue.lanes {
		require.LessOrEqual(t, len(d.r.queue.lanes[i].items), 30)
	}
}

// An ask that is answered by an ownership that is past is repeated after its pause, and
// not at once: who answers would do so at the speed of the link, for as long as it does
// not know better.
func TestAnAskThatThePastAnswersIsNotRepeatedAtOnce(t *testing.T) {
	d := backlog(0, 10, 10)
	d.r.Host(self(1), 5, true)
	require.Len(t, d.sent, 1)
	for range 100 {
		d.answer(1, 3)
	}
	require.Len(t, d.sent, 1)
	require.Empty(t, d.keptAs)
	d.wait(time.Second)
	require.Len(t, d.sent, 2)
	d.answer(1, 3)
	require.Len(t, d.sent, 2)
	d.answer(1, 5)
	require.Equal(t, numbers(1, 10), d.keptNumbers())
}

// A node whose actor is open, and that learns by its marker of a later holder, does not
// send another marker: it would be answered in the same way, at the speed of the link.
func TestTwoHoldersDoNotAskEachOtherForEver(t *testing.T) {
	for _, token := range []uint64{7, 9} { // the same after the store's history went back
		twoHolders(t, token)
	}
}

func twoHolders(t *testing.T, token uint64) {
	d := newDesk(0, 10, hosting.DropNewest)
	d.r.Host(self(1), 5, true)
	d.accept(1, 1) // is on its way to n1
	d.r.Open(7)
	for range 100 {
		d.answer(1, token)
	}
	markers := 0
	for _, m := range d.sent {
		if _, ok := m.(*wire.Marker); ok {
			markers++
		}
	}
	require.Equal(t, 1, markers)
	d.accept(2, 3)
	require.Equal(t, []int{2, 3}, d.delivered, "to the gate, which knows whether the lease is held")
}

// Who waits with markers of a node keeps the latest; and no node answers one that it can't have seen.
func TestMarkersAreNumberedUpwards(t *testing.T) {
	last, parts := uint64(0), map[uint64]bool{}
	for range 5 {
		d := newDesk(1, 10, hosting.DropNewest)
		for range 20 {
			d.r.draw()
			require.Greater(t, d.r.number, last)
			last = d.r.number
			parts[last>>8&0xffffff] = true
		}
	}
	require.Greater(t, len(parts), 95, "most of it is random")
}
