package route

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// key encodes what makes a difference: times only by how long ago they were.
func (w *xworld) key() explore.Key {
	b := make([]byte, 0, 1024)
	put := func(ns ...int) {
		for _, n := range ns {
			b = append(b, byte(n), byte(n>>8))
		}
	}
	flag := func(fs ...bool) {
		for _, f := range fs {
			if f {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	since := func(t time.Duration) int {
		return int(min(max(t-w.now, -10*time.Second), 10*time.Second) / (100 * time.Millisecond))
	}
	name := func(n *wire.Node) int {
		if a := n.GetAddress(); a != "" {
			return int(a[1] - '0')
		}
		return -1
	}
	message := func(m proto.Message) {
		switch m := m.(type) {
		case *wire.Envelope:
			x := said(&Item{Wire: m})
			put(1, x.sender, x.n, int(m.Token), int(m.Hops))
		case *wire.Marker:
			put(2, name(m.From), int(uint8(m.Number)), int(m.Token), int(m.Hops))
		case *wire.MarkerAck:
			put(3, name(m.From), int(uint8(m.Number)), int(m.Token))
		case *wire.MarkerWaits:
			put(4, name(m.From), int(uint8(m.Number)))
		}
	}
	item := func(it *Item) {
		flag(it.kept, it.first, it.gone)
		put(it.tries, int(it.under))
		switch {
		case it.Wire != nil:
			message(it.Wire)
		case it.marker != nil:
			message(it.marker)
		default:
			m := it.Local.(msg)
			put(6, m.sender, m.n)
		}
	}
	items := func(list []*Item) {
		put(len(list))
		for _, it := range list {
			item(it)
		}
	}
	way := func(h hop) {
		flag(h.here)
		put(name(h.node), int(h.token))
	}
	for i, r := range w.r {
		flag(r.known, r.lost, r.path.used, r.path.dead, r.path.confirmed, r.served, r.hearsay, r.doubted, r.pending != nil, w.open[i], w.wakes[i])
		put(int(r.phase), int(r.own), int(r.floor), int(uint8(r.number)), r.stats.Unordered, since(r.noted), len(w.hung[i]))
		way(r.host)
		way(r.path.hop)
		if r.pending != nil {
			put(int(uint8(r.pending.number)), since(r.pending.until), int(r.pending.pause/time.Second))
			way(r.pending.via)
			flag(r.pending.ask)
		}
		put(len(r.queue.lanes))
		for _, l := range r.queue.lanes {
			items(l.items)
		}
		for j := range xnodes {
			l := &w.links[i][j]
			flag(l.down, l.waits)
			first := 0 // numbers are told by how far they are from the last
			put(len(l.msgs), len(l.frames), l.number-l.taken)
			for _, m := range l.msgs {
				if first = m.number; first > 0 {
					first = l.number - first + 1
				}
				put(first, m.heard)
				if m.msg != nil {
					message(m.msg)
				}
			}
			for _, f := range l.frames {
				put(l.number - f.number)
				item(f.item)
				message(f.msg)
			}
		}
		put(len(w.news[i]), len(w.box[i]), w.said[i], w.last[i])
		for _, n := range w.news[i] {
			put(n.owner, int(n.token))
		}
		for _, m := range w.box[i] {
			put(m.sender, m.n)
		}
		for _, m := range w.hung[i] {
			put(m.sender, m.n)
		}
		for n := range xsaid {
			put(int(w.handled[i][n]), int(w.dropped[i][n]))
			flag(w.broken[i][n])
		}
	}
	flag(w.ending, w.opening, w.disorder, w.doubles)
	put(w.owner, int(w.token), w.to, w.moves, w.breaks, w.late, w.losses)
	return explore.HashBytes(b)
}
