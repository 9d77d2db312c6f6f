package route

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
)

func TestDropPoliciesCountExactly(t *testing.T) {
	for policy, dropped := range map[hosting.DropPolicy][]int{hosting.DropNewest: numbers(5, 12), hosting.DropOldest: numbers(1, 8)} {
		left := map[hosting.DropPolicy][]int{hosting.DropNewest: numbers(1, 4), hosting.DropOldest: numbers(9, 12)}[policy]
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
	d := newDesk(0, 6, hosting.DropOldest)
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
	d := newDesk(1, 3, hosting.DropNewest)
	for i := range 10 * maxMarkers {
		d.r.Receive(&wire.Marker{Name: "x", From: &wire.Node{Incarnation: fmt.Sprint("forged", i)}, Number: 1, Token: 1 << 60}, 0, true)
	}
	require.Len(t, d.r.queue.markers, maxMarkers)
	require.LessOrEqual(t, len(d.r.queue.lanes[0].items), 2*maxMarkers+1)
	require.Empty(t, d.dropped)
}

// Who waits for longer than a clock counts, or says so, is waited with for as long as can be:
// here, and at the next node.
func TestAnAskerWhoWaitsForEver(t *testing.T) {
	for _, x := range []struct{ now, left, want time.Duration }{
		{1, 0, 2}, {1, -5, 2}, {1, 5, 6},
		{7, math.MaxInt64, math.MaxInt64}, {math.MaxInt64, 1, math.MaxInt64}, {-7, math.MaxInt64, math.MaxInt64 - 7},
	} {
		require.Equal(t, x.want, Until(x.now, x.left), "%+v", x)
	}
	a := newDesk(0, 10, hosting.DropNewest)
	a.now = time.Hour
	for i, left := range []uint64{math.MaxUint64, 1 << 63, math.MaxInt64, mostLeft + 1, mostLeft, 1000} {
		a.r.Receive(&wire.Envelope{Name: "x", Payload: payload(msg{9, i}), Left: left}, 10, true)
	}
	a.r.Accept(Item{Local: msg{0, 6}, Size: 10, Until: Until(a.now, math.MaxInt64)})
	a.now += time.Minute
	for _, w := range a.wakes {
		require.Positive(t, w)
	}
	a.r.Tick()
	require.Equal(t, map[wire.Reason][]int{wire.Reason_REASON_EXPIRED: {5}}, a.refused)
	a.r.Host(self(1), 1, true)
	a.answer(1, 1)
	passed := 0
	for _, m := range append(a.keptAs, a.sent...) {
		if e, ok := m.(*wire.Envelope); ok {
			passed++
			require.Greater(t, e.Left, mostLeft-uint64(2*time.Hour/time.Millisecond))
			require.LessOrEqual(t, e.Left, mostLeft)
		}
	}
	require.Equal(t, 6, passed)
}
