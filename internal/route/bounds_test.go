package route

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// desk is one Router with a Port that only notes what it is asked for.
type desk struct {
	r         *Router
	now       time.Duration
	delivered []int
	sent      []proto.Message
	dropped   []int
	wakes     []time.Duration
}

func newDesk(id, limit int, policy DropPolicy) *desk {
	d := &desk{}
	d.r = New(Config{Name: "x", Self: self(id), Limit: limit, Policy: policy, Patience: time.Second, Rest: 5 * time.Second}, d)
	return d
}

func (d *desk) Deliver(it Item)                      { d.delivered = append(d.delivered, said(it).n) }
func (d *desk) Send(_ string, m proto.Message)       { d.sent = append(d.sent, proto.Clone(m)) }
func (d *desk) Encode(m any) (*wire.Envelope, error) { return (&node{}).Encode(m) }
func (d *desk) Drop(it Item)                         { d.dropped = append(d.dropped, said(it).n) }
func (d *desk) Refuse(Item, wire.Reason, string)     {}
func (d *desk) Now() time.Duration                   { return d.now }
func (d *desk) Wake(after time.Duration)             { d.wakes = append(d.wakes, after) }
func (d *desk) Soon()                                {}

// said is the message in an item.
func said(it Item) (m msg) {
	if it.Wire == nil {
		return it.Local.(msg)
	}
	fmt.Sscanf(string(it.Wire.Payload), "%d %d", &m.sender, &m.n)
	return m
}

// accept has it take messages of its own node.
func (d *desk) accept(from, to int) {
	for i := from; i <= to; i++ {
		d.r.Accept(msg{d.id(), i})
	}
}

func (d *desk) id() int { return int(d.r.Self.Address[1] - '0') }

// hand gives what d has sent to another.
func (d *desk) hand(to *desk) {
	for len(d.sent) > 0 {
		m := d.sent[0]
		d.sent = d.sent[1:]
		to.r.Receive(m)
	}
	to.r.Acknowledge()
}

// talk hands to and fro until nothing is said any more.
func talk(a, b *desk) {
	for len(a.sent)+len(b.sent) > 0 {
		a.hand(b)
		b.hand(a)
	}
}

// relays lists the numbers of the relays that were sent.
func (d *desk) relays() (numbers []uint64) {
	for _, m := range d.sent {
		if r, ok := m.(*wire.Relay); ok {
			numbers = append(numbers, r.Sequence)
		}
	}
	d.sent = nil
	return numbers
}

// backlog makes a desk that has to forward messages 1 to n for others, and knows
// nobody to send them to.
func backlog(id, limit, n int) *desk {
	d := newDesk(id, limit, DropNewest)
	d.r.Open(1)
	d.r.Ending()
	for i := 1; i <= n; i++ {
		d.r.Back(msg{id, i})
	}
	d.r.Closed()
	return d
}

func numbers[T int | uint64](from, to T) (all []T) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

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
			d.r.Ending()
			d.accept(1, 12)
			require.Equal(t, dropped, d.dropped)
			for i := -5; i <= 0; i++ {
				d.r.Back(msg{0, i}) // accepted before: no bound is for them
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
		})
	}
}

// A marker needs no room, and gives way to nothing.
func TestMarkersAreNotBounded(t *testing.T) {
	d := newDesk(0, 3, DropOldest)
	for i := range 5 {
		d.r.Receive(&wire.Marker{Name: "x", From: self(1 + i), Number: 1, Token: 9})
		d.r.Receive(&wire.Marker{Name: "x", From: self(1 + i), Number: 2, Token: 9}) // the one before is void
	}
	d.accept(1, 3)
	require.Equal(t, []int{1, 2}, d.dropped, "markers take what room there is, and do not go")
	require.Equal(t, 6, d.r.Stats().Buffered)
	d.r.Open(9)
	require.Len(t, d.sent, 5, "all answered")
}

// Markers of more nodes than there are do not pile up.
func TestMarkersOfManyNodesAreBounded(t *testing.T) {
	d := newDesk(1, 3, DropNewest)
	for i := range 10 * maxMarkers {
		d.r.Receive(&wire.Marker{Name: "x", From: &wire.Node{Incarnation: fmt.Sprint("forged", i)}, Number: 1, Token: 1 << 60})
	}
	require.Len(t, d.r.buffer.items, maxMarkers)
	require.Empty(t, d.dropped)
}

func TestTheWindow(t *testing.T) {
	d := backlog(0, 3, 10)
	ack := func(n uint64, again bool) {
		d.r.Receive(&wire.RelayAck{Name: "x", From: self(1), Stream: d.r.out.stream, Sequence: n, Again: again})
	}
	d.r.Host(self(1), 2, true)
	require.Equal(t, numbers[uint64](1, 3), d.relays(), "no more than the limit is under way")
	d.accept(11, 12)
	require.Empty(t, d.relays(), "nor does a later message overtake")
	require.Equal(t, []int{11, 12}, d.dropped, "what waits is over the bound")
	ack(2, false)
	require.Equal(t, numbers[uint64](4, 5), d.relays())
	ack(1, false)
	require.Empty(t, d.relays(), "an old one")
	ack(2, true)
	require.Equal(t, numbers[uint64](3, 5), d.relays(), "go back n")
	d.now = time.Minute
	d.r.Tick()
	require.Equal(t, numbers[uint64](3, 5), d.relays(), "not acknowledged in time")
	ack(5, false)
	require.Equal(t, numbers[uint64](6, 8), d.relays())
	ack(8, false)
	require.Equal(t, numbers[uint64](9, 10), d.relays())
	require.False(t, d.r.Idle())
	ack(10, false)
	require.True(t, d.r.Idle())
}

// Who has no room refuses relays, in order, and asks for them when there is.
func TestAFullNodeRefusesRelays(t *testing.T) {
	a, b := backlog(0, 5, 20), newDesk(1, 3, DropNewest)
	a.r.Host(self(1), 2, true)
	for range 10 {
		talk(a, b)
		a.now += time.Second
		a.r.Tick()
	}
	require.Equal(t, 3, b.r.Stats().Buffered)
	require.Equal(t, 17, a.r.Stats().Buffered+a.r.Stats().Kept)
	b.r.Open(2)
	talk(a, b)
	require.Equal(t, numbers(1, 20), b.delivered)
	require.Empty(t, append(a.dropped, b.dropped...))
	require.True(t, a.r.Idle())
}

// What comes before its turn, or comes again, is not taken up.
func TestRelaysAreTakenUpOnceAndInOrder(t *testing.T) {
	a, b := backlog(0, 20, 9), newDesk(1, 20, DropNewest)
	b.r.Open(2)
	a.r.Host(self(1), 2, true)
	under := a.sent
	for _, i := range []int{0, 2, 1, 1, 0, 4, 2, 3, 8, 7, 4} {
		b.r.Receive(proto.Clone(under[i]))
	}
	require.Equal(t, numbers(1, 5), b.delivered)
	a.sent = nil
	b.r.Acknowledge()
	b.hand(a)
	require.Equal(t, 4, a.r.Stats().Kept)
	a.now = time.Minute
	a.r.Tick()
	talk(a, b)
	require.Equal(t, numbers(1, 9), b.delivered)
}

// A manager that is stopped and started again has a new Router, under the old
// incarnation.
func TestARouterThatFollowsAnotherIsNotTakenForIt(t *testing.T) {
	t.Run("the sender", func(t *testing.T) {
		b := newDesk(1, 20, DropNewest)
		b.r.Open(9)
		var want []int
		for _, n := range []int{5, 3, 7} {
			a := backlog(0, 20, n)
			a.r.Host(self(1), 9, true)
			talk(a, b)
			want = append(want, numbers(1, n)...)
			require.Equal(t, want, b.delivered)
			require.True(t, a.r.Idle())
		}
	})
	t.Run("its markers", func(t *testing.T) {
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
				a.r.Receive(ack)
				require.Empty(t, a.sent, "the answer to another's marker ends no crossing")
			}
			ack = &wire.MarkerAck{Name: "x", Number: m.Number, From: self(2), Token: 2}
			a.r.Receive(ack)
			require.Len(t, a.sent, 1)
		}
	})
	t.Run("the receiver", func(t *testing.T) {
		a, b := backlog(0, 3, 12), newDesk(1, 20, DropNewest)
		b.r.Open(9)
		a.r.Host(self(1), 9, true)
		a.hand(b)
		b.hand(a) // 1 to 3 are acknowledged, 4 to 6 under way
		a.sent = nil
		require.Equal(t, numbers(1, 3), b.delivered)
		next := newDesk(1, 20, DropNewest)
		next.r.Open(9)
		a.now = time.Minute
		a.r.Tick()
		talk(a, next)
		require.Equal(t, numbers(4, 12), next.delivered)
		require.True(t, a.r.Idle())
	})
	t.Run("the receiver has acknowledged before it ends", func(t *testing.T) {
		a, b := backlog(0, 3, 3), newDesk(1, 20, DropNewest)
		b.r.Open(9)
		a.r.Host(self(1), 9, true)
		for _, m := range a.sent {
			b.r.Receive(m)
		}
		a.sent = nil
		b.r.Shut()
		b.hand(a)
		require.True(t, a.r.Idle(), "else it would come twice")
	})
}
