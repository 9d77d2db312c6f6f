package route

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/wire"
)

var (
	histories = simulate.New("route", 200, 1500)
	verbose   = flag.Bool("route.v", false, "trace what travels")
)

func each(t *testing.T, f func(t *testing.T, seed uint64)) { histories.Run(t, f) }

func (w *world) tail() string {
	return w.state() + strings.Join(w.trace[max(0, len(w.trace)-4000):], "\n")
}

// require fails with all that happened.
func (w *world) require(t *testing.T, ok bool, seed uint64, what string) {
	t.Helper()
	if !ok {
		t.Fatalf("seed %d: %s\n%s", seed, what, w.tail())
	}
}

// whole requires that each message has met one fate, and that order was kept or given
// up with a count.
func (w *world) whole(t *testing.T, seed uint64, ordered bool) {
	t.Helper()
	lost, doubled, disordered := w.verdict()
	w.require(t, lost == 0, seed, "mail is lost")
	w.require(t, doubled == 0, seed, "a message has two fates")
	if ordered && w.unordered() == 0 {
		w.require(t, disordered == 0, seed, "mail is out of order")
	}
	for _, n := range w.nodes {
		w.require(t, n.id == w.owner || n.router.Idle(), seed, "mail is stuck")
	}
}

// flows requires that every node's next message is handled.
func (w *world) flows(t *testing.T, seed uint64) {
	t.Helper()
	before := len(w.done)
	for _, n := range w.nodes {
		n.say()
	}
	w.run(20 * time.Second)
	w.require(t, len(w.done) == before+len(w.nodes), seed, "mail does not flow again")
}

// While links live nothing is lost, doubled or out of order, however the name moves; and
// no path switch has to be given up when moves are further apart than a message and its
// answer take.
func TestMailStaysWholeAndInOrder(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 2+int(seed%4), 10000)
		w.slow = time.Millisecond
		w.window = []int{1, 5, 8192}[w.r.IntN(3)]
		w.move(0)
		gap := []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}[seed%2]
		for range w.r.Each(20) {
			for range 15 {
				w.run(w.upTo(gap / 15))
				w.nodes[w.r.IntN(len(w.nodes))].say()
			}
			if w.started(4 * w.slow) {
				w.move(w.r.IntN(len(w.nodes)))
			}
		}
		w.run(10 * time.Second)
		w.whole(t, seed, true)
		w.require(t, w.drops == 0, seed, "something is dropped")
		w.require(t, w.unordered() == 0 || w.window < 10, seed, "order is given up")
	})
}

// However fast the name moves, nothing is lost or doubled; order may be given up, and is
// counted then.
func TestFastMovesLoseNothing(t *testing.T) {
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 2+int(seed%4), 10000)
		w.slow = 20 * time.Millisecond
		w.window = 1 + w.r.IntN(50)
		w.move(0)
		for range w.r.Each(200) {
			w.run(w.upTo(4 * time.Millisecond))
			w.nodes[w.r.IntN(len(w.nodes))].say()
			if w.started(0) && w.r.IntN(3) == 0 {
				w.move(w.r.IntN(len(w.nodes)))
			}
		}
		w.run(60 * time.Second)
		w.whole(t, seed, true)
		w.require(t, w.drops == 0, seed, "something is dropped")
	})
}

// On links that delay, throttle and stall, with small windows, long mailboxes and long
// drains, nothing is lost or doubled; order is kept, or given up with a count.
func TestCongestionLosesNothing(t *testing.T) {
	var moved, given atomic.Int64
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 3+int(seed%3), 100_000)
		w.slow = w.upTo(250 * time.Millisecond)
		w.each = w.upTo(2 * time.Millisecond)
		w.window = []int{4, 64, 1024}[w.r.IntN(3)]
		w.pace = w.upTo(5 * time.Millisecond)
		w.move(0)
		for range w.r.Each(30) {
			w.run(w.upTo(200 * time.Millisecond))
			burst := 5
			if w.r.IntN(30) == 0 {
				burst = 2000
			}
			for range 1 + w.r.IntN(burst) {
				w.nodes[w.r.IntN(len(w.nodes))].say()
			}
			switch w.r.IntN(8) {
			case 0:
				a, b := w.r.IntN(len(w.nodes)), w.r.IntN(len(w.nodes))
				if a != b {
					w.links[[2]int{a, b}].stall(w.upTo(8 * time.Second))
				}
			case 1, 2, 3:
				if w.started(0) {
					moved.Add(1)
					drain := []time.Duration{0, 100 * time.Millisecond, time.Second, 2 * time.Minute}[w.r.IntN(4)]
					w.drain(w.r.IntN(len(w.nodes)), w.upTo(drain))
				}
			}
		}
		w.run(20 * time.Minute)
		w.whole(t, seed, true)
		w.require(t, w.drops == 0, seed, "something is dropped")
		given.Add(int64(w.unordered()))
		w.flows(t, seed)
	})
	t.Logf("%d moves, %d path switches were given up", moved.Load(), given.Load())
}

// When links break and nodes restart, only that is lost which was under way over one of
// them and not kept, or was the restarted node's; nothing comes twice but what was taken
// back from a node that had taken it. Actors that are lost and go on hold nobody up.
func TestFaultsLoseOnlyMailUnderWay(t *testing.T) {
	var lost, left atomic.Int64
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 3+int(seed%2), 10000)
		w.window = []int{4, 64, 8192}[w.r.IntN(3)]
		w.slow = []time.Duration{5, 50}[w.r.IntN(2)] * time.Millisecond
		restarts := seed%2 == 0
		w.move(0)
		for range w.r.Each(200) {
			w.run(w.upTo(2 * w.slow))
			for range 1 + w.r.IntN(3) {
				w.nodes[w.r.IntN(len(w.nodes))].say()
			}
			if w.owner < 0 && w.r.IntN(5) == 0 && !w.ending() {
				w.start(w.r.IntN(len(w.nodes)))
			}
			switch w.r.IntN(40) {
			case 0:
				if x, y := w.r.IntN(len(w.nodes)), w.r.IntN(len(w.nodes)); x != y {
					w.breakLink(x, y, w.upTo(300*time.Millisecond))
				}
			case 1, 2:
				if w.started(0) {
					w.move(w.r.IntN(len(w.nodes)))
				}
			case 3:
				if to := w.r.IntN(len(w.nodes)); w.started(0) && to != w.owner {
					w.lose(to, w.upTo(30*time.Second), w.r.IntN(2) == 0)
				}
			case 4:
				if restarts {
					w.restart(w.r.IntN(len(w.nodes)), w.upTo(300*time.Millisecond))
				}
			}
		}
		w.run(60 * time.Second)
		if w.started(0) {
			w.move(0)
		} else {
			w.start(0)
		}
		w.run(2 * time.Minute)
		w.require(t, w.started(0), seed, "nobody is open")
		w.whole(t, seed, false)
		lost.Add(int64(len(w.broken)))
		left.Add(int64(w.left))
		w.flows(t, seed)
	})
	require.True(t, lost.Load() > 0 || histories.Replays(), "nothing was ever under way on a link that broke")
	require.True(t, left.Load() > 0 || histories.Replays(), "no actor was ever left")
}

// ending reports whether an actor ends.
func (w *world) ending() bool {
	for _, n := range w.nodes {
		if n.router.phase == ending {
			return true
		}
	}
	return false
}

// With links that live each message is handled or dropped, once; and what one node has
// custody of no other drops.
func TestSmallBoundsLoseNothingUncounted(t *testing.T) {
	var drops atomic.Int64
	each(t, func(t *testing.T, seed uint64) {
		w := newWorld(seed, 2+int(seed%4), 10)
		w.config.Limit, w.config.Policy = 3+int(seed%18), hosting.DropPolicy(seed/7%2)
		for _, n := range w.nodes {
			n.begin()
		}
		w.slow = time.Millisecond
		w.window = 1 + w.r.IntN(8)
		w.move(0)
		for range w.r.Each(8) {
			for range 8 {
				w.run(w.upTo(10 * time.Millisecond))
				for range w.r.IntN(16) {
					w.nodes[w.r.IntN(len(w.nodes))].say()
				}
				for _, n := range w.nodes {
					w.require(t, n.router.queue.counted <= n.router.Limit, seed, "more waits than may")
				}
			}
			if w.started(4 * w.slow) {
				w.move(w.r.IntN(len(w.nodes)))
			}
		}
		w.run(60 * time.Second)
		w.whole(t, seed, true)
		drops.Add(int64(w.drops))
	})
	require.True(t, drops.Load() > 0 || histories.Replays(), "the bounds were never met")
}

// News of an ownership that has ended here does not make the next go on from it: what
// the actor had left goes before what came after it.
func TestLateNewsOfAnEndedOwnership(t *testing.T) {
	d := newDesk(1, 20, hosting.DropNewest)
	kept := func(m msg) {
		d.r.Receive(&wire.Envelope{Name: "x", Token: 6, Payload: payload(m)}, 10, true)
	}
	d.r.Host(self(0), 1, true)
	d.accept(1, 1) // by way of another node, where its mail may still be
	d.r.Host(self(3), 5, true)
	d.r.Open(6)
	kept(msg{3, 1})
	require.Equal(t, []int{1}, d.delivered)
	d.delivered = nil
	d.r.Ending(false)
	d.r.Back(Item{Local: msg{3, 1}})
	d.r.Closed()
	d.r.Host(self(1), 6, true) // late: it was over when it came
	kept(msg{3, 2})
	d.r.Open(8)
	require.NotContains(t, d.delivered, 2, "before the first, which waits for the path switch")
	d.r.Host(self(1), 8, true)
	d.now += time.Minute
	for range 3 {
		d.r.Tick()
		d.now += time.Minute
	}
	require.Equal(t, []int{1, 2}, d.delivered)
}

// A former host that is cut off from the records has its mail handed to the holder that a member
// knows: one of the last list, by a token above its own. A peer that is not asked is not believed.
func TestAFormerHostAsksMembersForTheHolder(t *testing.T) {
	d := backlog(0, 10, 3)
	wait := func(t time.Duration) {
		d.sent = nil
		d.wait(t)
	}
	wait(time.Hour)
	require.Empty(t, d.sent, "there is no list of members")
	d.members = []*wire.Node{self(1), self(2)}
	d.r.Linked("n1")
	require.Empty(t, d.sent)
	wait(seekFirst)
	require.Len(t, d.sent, 1)
	asked := d.sent[0].(*wire.Marker)
	wait(seekFirst)
	require.Empty(t, d.sent, "the pause doubles")
	wait(seekFirst)
	require.Equal(t, asked.Number, d.sent[0].(*wire.Marker).Number, "a late answer counts")
	for what, ack := range map[string]*wire.MarkerAck{
		"no member":      {From: self(3), Token: 2, Number: asked.Number},
		"another life":   {From: &wire.Node{Address: "n1", Incarnation: "later"}, Token: 2, Number: asked.Number},
		"a guess":        {From: self(1), Token: 2, Number: asked.Number + 1},
		"no later token": {From: self(1), Token: 1, Number: asked.Number},
		"no number":      {From: self(1), Token: 2},
		"itself":         {From: self(0), Token: 2, Number: asked.Number},
	} {
		ack.Name = "x"
		d.r.Receive(ack, 0, false)
		require.False(t, d.r.Elsewhere(), what)
	}
	hears := func(from int, token uint64) {
		d.r.Receive(&wire.MarkerAck{Name: "x", Number: asked.Number, From: self(from), Token: token}, 0, false)
	}
	hears(2, 2)
	require.Equal(t, "n2", d.r.Holder().GetAddress())
	d.answer(2, 2) // it is open
	require.Equal(t, numbers(1, 3), d.keptNumbers())

	// A holder that is not reached for a moment is asked for again, and believed again.
	d.r.Gone("n2")
	require.False(t, d.r.Elsewhere())
	wait(seekFirst)
	asked = d.sent[0].(*wire.Marker)
	hears(2, 2)
	require.Equal(t, "n2", d.r.Holder().GetAddress())

	// Records count more.
	d.r.Host(self(1), 4, true)
	d.r.Gone("n2")
	require.Equal(t, "n1", d.r.Holder().GetAddress())
	wait(time.Hour)
	for _, m := range d.sent {
		require.False(t, m.(*wire.Marker).Seek, "the holder is known")
	}
}

// What was lost with an actor that hangs waits for the next holder no longer than for one of the records.
func TestAFormerHostWhoseActorHangsAsksToo(t *testing.T) {
	d := newDesk(0, 10, hosting.DropNewest)
	d.members = []*wire.Node{self(1)}
	d.r.Open(1)
	d.r.Ending(true)
	d.accept(1, 2)
	d.wait(seekFirst)
	d.r.Receive(&wire.MarkerAck{Name: "x", Number: d.sent[0].(*wire.Marker).Number, From: self(1), Token: 2}, 0, false)
	d.wait(d.r.Patience)
	require.Equal(t, "n1", d.r.Holder().GetAddress())
	require.Len(t, d.sent, 3, "the question, and both messages")
}

// A question is passed on to a holder that is known by a later token, or answered by it, and goes round no
// longer than a message may.
func TestAQuestionForTheHolderIsPassedOn(t *testing.T) {
	ask := &wire.Marker{Name: "x", From: self(9), Number: 7, Token: 3, Seek: true}
	d := newDesk(0, 10, hosting.DropNewest)
	d.r.Receive(ask, 0, false)
	require.Empty(t, d.sent, "none is known")
	d.r.Host(self(1), 3, true)
	d.r.Receive(ask, 0, false)
	require.Empty(t, d.sent, "no later one")
	d.r.Host(self(1), 4, true)
	d.r.Receive(ask, 0, false)
	require.Len(t, d.sent, 1)
	require.EqualValues(t, 1, d.sent[0].(*wire.Marker).Hops)
	ask.Hops = maxHops + 1
	d.r.Receive(ask, 0, false)
	require.Len(t, d.sent, 1)
	ask.Hops = 0
	d.r.Open(5)
	d.r.Receive(ask, 0, false)
	require.EqualValues(t, 5, d.sent[1].(*wire.MarkerAck).Token)
}

// After the link to the holder broke nothing goes to its address before it has said that it is open: the
// process that answers there may be another one, without the actor.
func TestNothingGoesToAnotherLifeAtTheHoldersAddress(t *testing.T) {
	d := newDesk(0, 10, hosting.DropNewest)
	d.r.Host(self(1), 1, true)
	d.accept(1, 1)
	require.Len(t, d.sent, 1)
	d.r.Gone("n1")
	d.r.Linked("n1")
	d.sent = nil
	d.accept(2, 3)
	_, _, through := d.r.Through()
	require.False(t, through)
	require.Len(t, d.sent, 1, "the question")
	require.IsType(t, &wire.Marker{}, d.sent[0])
	d.r.Host(self(1), 1, true) // the same record again
	require.Len(t, d.sent, 1)
	d.answer(1, 1)
	require.Len(t, d.sent, 3)
	_, _, through = d.r.Through()
	require.True(t, through)

	d.r.Gone("n1")
	d.accept(4, 4)
	d.sent = nil
	d.r.Host(&wire.Node{Address: "n1", Incarnation: "next"}, 2, true) // it has taken the name since
	require.Len(t, d.sent, 1)
	require.IsType(t, &wire.Envelope{}, d.sent[0], "there is no doubt of a later record")
}

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
	for i := range uint64(5) {
		for _, n := range []uint64{1 + i%2, 2 - i%2} { // of a node's two the later counts, also if it comes first
			d.r.Receive(&wire.Marker{Name: "x", From: self(1 + int(i)), Number: n, Token: 9}, 0, true)
		}
	}
	d.accept(1, 8)
	require.Equal(t, []int{1, 2}, d.dropped, "markers take no room")
	require.Equal(t, 6, d.r.Stats().Buffered)
	d.r.Open(9)
	require.Len(t, d.sent, 5, "all answered")
	for _, m := range d.sent {
		require.EqualValues(t, 2, m.(*wire.MarkerAck).Number)
	}
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

// desk is one Router with a Port that only notes what it is asked for. A node that is
// full has no room, nor has one that holds as much of what was kept as a window lets it.
type desk struct {
	r         *Router
	now       time.Duration
	delivered []int
	sent      []proto.Message
	kept      []*Item
	keptAs    []proto.Message
	full      bool
	window    int // in messages; 0: no bound
	dropped   []int
	refused   map[wire.Reason][]int
	wakes     []time.Duration
	calls     int
	members   []*wire.Node
}

func newDesk(id, limit int, policy hosting.DropPolicy) *desk {
	c := configured(limit)
	c.Policy = policy
	return newDeskOf(id, c)
}

func newDeskOf(id int, c Config) *desk {
	d := &desk{refused: map[wire.Reason][]int{}, now: 1}
	c.Self = self(id)
	d.r = New(c, d)
	return d
}

func (d *desk) Deliver(it *Item) { d.calls++; d.delivered = append(d.delivered, said(it).n) }
func (d *desk) Room(string) bool {
	d.calls++
	return !d.full && (d.window == 0 || len(d.kept) < d.window)
}
func (d *desk) Send(_ string, m proto.Message) { d.calls++; d.sent = append(d.sent, proto.Clone(m)) }
func (d *desk) Keep(_ string, it *Item, m proto.Message) bool {
	d.calls++
	d.kept, d.keptAs = append(d.kept, it), append(d.keptAs, proto.Clone(m))
	return true
}
func (d *desk) Recall(string) []*Item {
	kept := d.kept
	d.kept = nil
	return kept
}
func (d *desk) Encode(m any) (*wire.Envelope, error) {
	return &wire.Envelope{Payload: payload(m.(msg))}, nil
}
func (d *desk) Drop(it *Item, _ string) { d.dropped = append(d.dropped, said(it).n) }
func (d *desk) Refuse(it *Item, why wire.Reason, _ string) {
	d.refused[why] = append(d.refused[why], said(it).n)
}
func (d *desk) Now() time.Duration       { return d.now }
func (d *desk) Members() []*wire.Node    { return d.members }
func (d *desk) Wake(after time.Duration) { d.calls++; d.wakes = append(d.wakes, after) }

// wait lets time pass.
func (d *desk) wait(t time.Duration) {
	d.now += t
	d.r.Tick()
}

// accept has it take messages of its own node.
func (d *desk) accept(from, to int) {
	for i := from; i <= to; i++ {
		d.r.Accept(Item{Local: msg{d.id(), i}, Size: 10})
	}
}

// comes has it take what another node routed by a token.
func (d *desk) comes(token uint64, n int, kept bool) {
	d.r.Receive(&wire.Envelope{Name: "x", Token: token, Payload: payload(msg{9, n})}, 10, kept)
}

func (d *desk) id() int { return int(d.r.Self.Address[1] - '0') }

// backlog makes a desk that has custody of messages 1 to n, and knows nobody to send
// them to.
func backlog(id, limit, n int) *desk {
	d := newDesk(id, limit, hosting.DropNewest)
	d.r.Open(1)
	d.r.Ending(false)
	for i := 1; i <= n; i++ {
		d.r.Back(Item{Local: msg{id, i}, Size: 10})
	}
	d.r.Closed()
	return d
}

// answer has the holder that was asked say that it is open.
func (d *desk) answer(id int, token uint64) {
	d.r.Receive(&wire.MarkerAck{Name: "x", Number: d.r.number, From: self(id), Token: token}, 0, false)
}

// keptNumbers lists the messages that were handed over.
func (d *desk) keptNumbers() (ns []int) {
	for _, m := range d.keptAs {
		if e, ok := m.(*wire.Envelope); ok {
			ns = append(ns, said(&Item{Wire: e}).n)
		}
	}
	d.keptAs = nil
	return ns
}

func numbers[T int | uint64](from, to T) (all []T) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}
