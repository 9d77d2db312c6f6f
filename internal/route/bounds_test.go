package route

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
)

func TestDropPoliciesCountExactly(t *testing.T) {
	for policy, dropped := range map[DropPolicy][]int{DropNewest: numbers(5, 12), DropOldest: numbers(1, 8)} {
		left := map[DropPolicy][]int{DropNewest: numbers(1, 4), DropOldest: numbers(9, 12)}[policy]
		t.Run("nobody known", func(t *testing.T) {
			d := newDesk(0, 4, policy)
			d.accept(1, 12)
			require.Equal(t, dropped, d.dropped)
			require.Equal(t, 4, d.r.Stats().Buffered)
			d.r.Open(1)
			require.Equal(t, left, d.delivered)
			require.Zero(t, d.r.Stats().Buffered)
		})
		t.Run("the actor ends", func(t *testing.T) {
			d := newDesk(0, 4, policy)
			d.r.Open(1)
			d.r.Ending(false)
			d.accept(1, 12)
			require.Equal(t, dropped, d.dropped)
			for i := -5; i <= 0; i++ {
				d.r.Back(Item{Local: msg{0, i}, Size: 10}) // accepted before: no bound is for them
			}
			d.r.Closed()
			require.Equal(t, dropped, d.dropped)
			require.Equal(t, 10, d.r.Stats().Buffered)
			d.r.Open(2)
			require.Equal(t, append(numbers(-5, 0), left...), d.delivered)
		})
		t.Run("the end", func(t *testing.T) {
			d := newDesk(0, 4, policy)
			d.accept(1, 12)
			d.r.Shut()
			require.ElementsMatch(t, numbers(1, 12), d.dropped)
			require.True(t, d.r.Idle())
		})
	}
}

// A marker needs no room, and gives way to nothing.
func TestMarkersAreNotBounded(t *testing.T) {
	d := newDesk(0, 6, DropOldest)
	for i := range 5 {
		d.r.Receive(&wire.Marker{Name: "x", From: self(1 + i), Number: 1, Token: 9}, 0, true)
		d.r.Receive(&wire.Marker{Name: "x", From: self(1 + i), Number: 2, Token: 9}, 0, true) // the one before is void
	}
	d.accept(1, 8)
	require.Equal(t, []int{1, 2}, d.dropped, "markers take no room")
	require.Equal(t, 6, d.r.Stats().Buffered)
	d.r.Open(9)
	require.Len(t, d.sent, 5, "all answered")
}

// Markers of more nodes than there are do not pile up.
func TestMarkersOfManyNodesAreBounded(t *testing.T) {
	d := newDesk(1, 3, DropNewest)
	for i := range 10 * maxMarkers {
		d.r.Receive(&wire.Marker{Name: "x", From: &wire.Node{Incarnation: fmt.Sprint("forged", i)}, Number: 1, Token: 1 << 60}, 0, true)
	}
	require.Len(t, d.r.queue.markers, maxMarkers)
	require.LessOrEqual(t, len(d.r.queue.lanes[0].items), 2*maxMarkers+1)
	require.Empty(t, d.dropped)
}

// Who has no room is sent nothing until it has; later messages overtake nothing.
func TestTheWindow(t *testing.T) {
	d := backlog(0, 3, 10)
	d.r.Host(self(1), 2, true)
	require.Empty(t, d.keptNumbers(), "the holder is asked first")
	d.full = true
	d.answer(1, 2)
	require.Empty(t, d.keptNumbers())
	d.accept(11, 14)
	require.Equal(t, []int{14}, d.dropped, "what waits is over the bound")
	d.full = false
	d.r.Linked("n1")
	require.Equal(t, numbers(1, 10), d.keptNumbers())
	require.True(t, d.r.Idle())
}

// A manager that is stopped and started again has a new Router, under the old
// incarnation.
func TestARouterThatFollowsAnotherIsNotTakenForIt(t *testing.T) {
	var ack *wire.MarkerAck
	for i := range 2 {
		a := newDesk(0, 20, DropNewest)
		a.r.Host(self(1), 1, true)
		a.accept(1, 1)
		a.r.Host(self(2), 2, true)
		a.accept(2, 2)
		m := a.sent[1].(*wire.Marker)
		a.sent = nil
		if i == 1 {
			a.r.Receive(ack, 0, false)
			require.Empty(t, a.sent, "the answer to another's marker ends no crossing")
		}
		ack = &wire.MarkerAck{Name: "x", Number: m.Number, From: self(2), Token: 2}
		a.r.Receive(ack, 0, false)
		require.Len(t, a.sent, 1)
	}
}
