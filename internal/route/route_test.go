package route

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/wire"
)

var (
	histories = simulate.New("route", 500, 500)
	verbose   = flag.Bool("route.v", false, "trace what travels")
)

func each(t *testing.T, f func(t *testing.T, seed uint64)) { histories.Run(t, f) }

func (w *world) tail() string {
	return w.state() + strings.Join(w.trace[max(0, len(w.trace)-4000):], "\n")
}

// While links live nothing is lost, doubled or out of order, however the name
// moves; and no crossing has to be given up when moves are further apart than a
// message and its answer take.
func TestMailStaysWholeAndInOrder(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 2+int(seed%4), 10000)
		w.slow = time.Millisecond
		w.move(0)
		gap := []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}[seed%2]
		for range 20 {
			if !w.r.Step() {
				continue
			}
			for range 15 {
				w.run(w.upTo(gap / 15))
				w.nodes[w.r.IntN(len(w.nodes))].say()
			}
			if w.started(4 * w.slow) {
				w.move(w.r.IntN(len(w.nodes)))
			}
		}
		w.run(10 * time.Second)
		lost, doubled, disordered := w.verdict()
		require.Equal(t, [3]int{0, 0, 0}, [3]int{lost, doubled, disordered}, "lost, doubled, disordered, seed %d\n%s", seed, w.tail())
		require.Zero(t, w.drops)
		require.Zero(t, w.unordered(), "seed %d\n%s", seed, w.tail())
		for _, n := range w.nodes {
			if n.id != w.owner {
				require.True(t, n.router.Idle(), "seed %d: %+v", seed, n.router.Stats())
			}
		}
	})
}

// However fast the name moves, nothing is lost or doubled; order may be given
// up, and is counted then.
func TestFastMovesLoseNothing(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 2+int(seed%4), 10000)
		w.slow = 20 * time.Millisecond
		w.move(0)
		for range 200 {
			if !w.r.Step() {
				continue
			}
			w.run(w.upTo(4 * time.Millisecond))
			w.nodes[w.r.IntN(len(w.nodes))].say()
			if w.started(0) && w.r.IntN(3) == 0 {
				w.move(w.r.IntN(len(w.nodes)))
			}
		}
		w.run(20 * time.Second)
		lost, doubled, disordered := w.verdict()
		require.Zero(t, lost, "seed %d\n%s", seed, w.tail())
		if w.unordered() == 0 {
			require.Zero(t, disordered, "seed %d\n%s", seed, w.tail())
			require.Zero(t, doubled, "seed %d\n%s", seed, w.tail())
		}
	})
}

// When links break, what was accepted for others is not lost: only what its
// sender's own node had under way may be. Nothing comes twice unless a node was
// taken for gone that was not.
func TestBrokenLinks(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 2+int(seed%3), 10000)
		w.move(0)
		for range 200 {
			if !w.r.Step() {
				continue
			}
			w.run(w.upTo(10 * time.Millisecond))
			w.nodes[w.r.IntN(len(w.nodes))].say()
			switch w.r.IntN(40) {
			case 0:
				a, b := w.r.IntN(len(w.nodes)), w.r.IntN(len(w.nodes))
				if a != b {
					w.breakLink(a, b)
				}
			case 1, 2:
				if w.started(0) {
					w.move(w.r.IntN(len(w.nodes)))
				}
			}
		}
		w.run(20 * time.Second)
		_, doubled, _ := w.verdict()
		if w.unordered() == 0 {
			require.LessOrEqual(t, doubled, 200)
		}
		before := len(w.done)
		for _, n := range w.nodes {
			n.say()
		}
		w.run(5 * time.Second)
		require.Len(t, w.done, before+len(w.nodes), "seed %d: mail flows again\n%s", seed, w.tail())
	})
}

// News of an ownership that has ended here does not make the next go on from it: what
// the actor had left goes before what came after it.
func TestLateNewsOfAnEndedOwnership(t *testing.T) {
	d := newDesk(1, 20, DropNewest)
	relay := func(sequence uint64, payload string) {
		d.r.Receive(&wire.Relay{Name: "x", From: self(2), To: self(1).Incarnation, Stream: 1, Sequence: sequence,
			What: &wire.Relay_Envelope{Envelope: &wire.Envelope{Name: "x", Token: 6, Payload: []byte(payload)}}})
	}
	d.r.Host(self(0), 1, true)
	d.accept(1, 1) // by way of another node, where its mail may still be
	d.r.Host(self(3), 5, true)
	d.r.Open(6)
	relay(1, "3 1")
	require.Equal(t, []int{1}, d.delivered)
	d.delivered = nil
	d.r.Ending()
	d.r.Back(msg{3, 1})
	d.r.Closed()
	d.r.Host(self(1), 6, true) // late: it was over when it came
	relay(2, "3 2")
	d.r.Open(8)
	require.NotContains(t, d.delivered, 2, "before the first, which waits for the crossing")
	d.r.Host(self(1), 8, true)
	d.now += time.Minute
	for range 3 {
		d.r.Tick()
		d.now += time.Minute
	}
	require.Equal(t, []int{1, 2}, d.delivered)
}
