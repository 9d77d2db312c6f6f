package route

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// watched is a node that notes the fate of every message.
type watched struct {
	*node
	b *bounded
}

// bounded is a world of small limits.
type bounded struct {
	*world
	dropped map[msg]int
	relayed map[msg]bool
	broken  map[msg]bool // sent by their own node over a link that broke meanwhile
	refused bool         // somebody had no room for a relay: later mail may overtake it
	doubles bool         // a link broke under a relay that was not acknowledged
}

func newBounded(seed uint64, nodes, limit int, policy DropPolicy) *bounded {
	b := &bounded{world: newWorld(seed, nodes, limit), dropped: map[msg]int{}, relayed: map[msg]bool{}, broken: map[msg]bool{}}
	for _, n := range b.nodes {
		n.router = New(Config{Name: "x", Self: self(n.id), Limit: limit, Policy: policy, Patience: time.Second, Rest: 5 * time.Second}, watched{n, b})
	}
	return b
}

func (w watched) Drop(it Item) {
	w.node.Drop(it)
	w.b.dropped[said(it)]++
}

func (w watched) Send(address string, m proto.Message) {
	w.node.Send(address, m)
	switch m := m.(type) {
	case *wire.RelayAck:
		w.b.refused = w.b.refused || m.Again
	case *wire.Relay:
		if e := m.GetEnvelope(); e != nil {
			w.b.relayed[said(Item{Wire: e})] = true
		}
	case *wire.Envelope:
		link := [2]int{w.id, int(address[1] - '0')}
		life, it := w.b.cut[link], said(Item{Wire: m})
		w.b.after(w.links[address]-w.b.now, func() {
			if w.b.cut[link] != life && w.id == it.sender {
				w.b.broken[it] = true
			}
		})
	}
}

// breakLink notes whether something may have been taken up and not acknowledged.
func (b *bounded) breakLink(x, y int) {
	for _, l := range [][2]int{{x, y}, {y, x}} {
		o := b.nodes[l[0]].router.out
		b.doubles = b.doubles || o.addr == self(l[1]).Address && len(o.items) > 0
	}
	b.world.breakLink(x, y)
}

// require fails with all that happened.
func (b *bounded) require(t *testing.T, ok bool, seed uint64, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf("seed %d: %s\n%s", seed, fmt.Sprintf(format, args...), b.tail())
	}
}

// fates counts how often each message was handled.
func (b *bounded) fates() (handled map[msg]int, all []msg) {
	handled = map[msg]int{}
	for _, m := range b.done {
		handled[m]++
	}
	for _, n := range b.nodes {
		for i := range n.sent {
			all = append(all, msg{n.id, i + 1})
		}
	}
	return handled, all
}

// With links that live each message is handled or dropped, once; and what one node
// relays for others no other drops that drops the newest.
func TestSmallBoundsLoseNothingUncounted(t *testing.T) {
	var drops atomic.Int64
	each(t, func(t *testing.T, seed uint64) {
		policy := DropPolicy(seed / 7 % 2)
		b := newBounded(seed, 2+int(seed%4), 3+int(seed%18), policy)
		b.slow = time.Millisecond
		b.move(0)
		for range 8 {
			if !b.r.Step() {
				continue
			}
			for range 8 {
				b.run(b.upTo(10 * time.Millisecond))
				for range b.r.IntN(16) {
					b.nodes[b.r.IntN(len(b.nodes))].say()
				}
			}
			if b.started(4 * b.slow) {
				b.move(b.r.IntN(len(b.nodes)))
			}
		}
		b.run(60 * time.Second)
		handled, all := b.fates()
		_, doubled, disordered := b.verdict()
		for _, m := range all {
			fate := handled[m] + b.dropped[m]
			b.require(t, fate > 0, seed, "%v is lost", m)
			b.require(t, fate == 1 || b.unordered() > 0, seed, "%v handled %d dropped %d", m, handled[m], b.dropped[m])
			if policy == DropNewest {
				b.require(t, b.dropped[m] == 0 || !b.relayed[m], seed, "%v was accepted for others", m)
			}
		}
		if b.unordered() == 0 {
			b.require(t, doubled == 0, seed, "%d doubled", doubled)
			b.require(t, disordered == 0 || b.refused, seed, "%d out of order", disordered)
		}
		for _, n := range b.nodes {
			b.require(t, n.id == b.owner || n.router.Idle(), seed, "mail is stuck at n%d", n.id)
		}
		drops.Add(int64(b.drops))
	})
	require.True(t, drops.Load() > 0 || histories.Replays(), "the bounds were never met")
}

// When links break, only that is lost which its sender's own node had under way
// over one of them; nothing comes twice unless order was given up, or what was
// relayed over one was not acknowledged yet.
func TestBrokenLinksLoseOnlyWhatWasUnderWay(t *testing.T) {
	var lost atomic.Int64
	each(t, func(t *testing.T, seed uint64) {
		limit := 10000
		if seed%3 == 0 {
			limit = 3 + int(seed%18)
		}
		b := newBounded(seed, 2+int(seed%3), limit, DropNewest)
		b.move(0)
		for range 200 {
			if !b.r.Step() {
				continue
			}
			b.run(b.upTo(10 * time.Millisecond))
			for range 1 + b.r.IntN(3) {
				b.nodes[b.r.IntN(len(b.nodes))].say()
			}
			switch b.r.IntN(40) {
			case 0:
				if x, y := b.r.IntN(len(b.nodes)), b.r.IntN(len(b.nodes)); x != y {
					b.breakLink(x, y)
				}
			case 1, 2:
				if b.started(0) {
					b.move(b.r.IntN(len(b.nodes)))
				}
			}
		}
		b.run(60 * time.Second)
		handled, all := b.fates()
		for _, m := range all {
			switch fate := handled[m] + b.dropped[m]; {
			case fate == 0:
				b.require(t, b.broken[m], seed, "%v was on no link that broke", m)
				lost.Add(1)
			case fate > 1:
				b.require(t, b.doubles || b.unordered() > 0, seed, "%v handled %d dropped %d", m, handled[m], b.dropped[m])
			}
		}
		before := len(b.done)
		for _, n := range b.nodes {
			n.say()
		}
		b.run(5 * time.Second)
		b.require(t, len(b.done) == before+len(b.nodes), seed, "mail does not flow again")
	})
	require.True(t, lost.Load() > 0 || histories.Replays(), "nothing was ever under way on a link that broke")
}
