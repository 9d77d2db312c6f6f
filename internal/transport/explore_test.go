package transport

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
)

var errTwice = errors.New("one life takes a frame twice, or out of order, or after it returned")

// xstate is a sender and the lives of its peer. Connections that broke deliver late.
type xstate struct {
	plant            string
	s                *sender
	owner            *xowner
	to, from         [][]any // the last is the present connection
	recv             receiver
	opened           bool
	life             int
	kept             int
	takenBy          [4]int // the life that took an item; 0: none
	back             [4]bool
	breaks, restarts int
	holes, forgets   int
	now              time.Duration
	bad              bool
}

// xowner is an Owner that the states share.
type xowner struct{ held atomic.Int64 }

func (*xowner) Linked(string)          {}
func (*xowner) Returned(string, []any) {}
func (o *xowner) Held() *atomic.Int64  { return &o.held }

func (x *xstate) clone() *xstate {
	c := *x
	s := *x.s
	s.frames, s.legs, s.out, s.told = slices.Clone(s.frames), slices.Clone(s.legs), nil, nil
	for i := range s.frames {
		s.frames[i].msg = proto.CloneOf(s.frames[i].msg)
	}
	s.waiting = maps.Clone(s.waiting)
	c.s = &s
	c.to, c.from = slices.Clone(x.to), slices.Clone(x.from)
	return &c
}

func put(conns [][]any, m any) {
	n := len(conns) - 1
	conns[n] = append(slices.Clip(conns[n]), m)
}

func (x *xstate) settle(back []returned) {
	x.s.afterBurst(x.now)
	for _, m := range x.s.take() {
		if f, ok := m.(*wire.Frame); ok {
			m = proto.CloneOf(f)
		}
		put(x.to, m)
	}
	for _, b := range back {
		for _, it := range b.items {
			x.back[it.(int)] = true
		}
	}
	x.s.roomy()
}

func (x *xstate) deliver(conns [][]any, i int) {
	m := conns[i][0]
	conns[i] = conns[i][1:]
	switch m := m.(type) {
	case *wire.Probe:
		x.opened = true
		if x.plant == "a new link forgets what was taken" && m.Link > x.recv.link {
			x.recv.taken = 0
		}
		if x.recv.probe(m) {
			put(x.from, &wire.Ack{From: &wire.Node{Incarnation: fmt.Sprint(x.life)}, Link: m.Link, Number: m.Number, Taken: x.recv.taken})
		}
	case *wire.Frame:
		if x.plant == "gaps are taken" && m.Number > x.recv.taken {
			x.recv.taken = m.Number - 1
		}
		if x.opened && x.recv.frame(m) {
			item := int(m.GetEnvelope().Sequence)
			if x.takenBy[item] == x.life || x.back[item] {
				x.bad = true
			}
			for later := item + 1; later < len(x.takenBy); later++ {
				x.bad = x.bad || x.takenBy[later] == x.life
			}
			x.takenBy[item] = x.life
		}
	case *wire.Ack:
		x.settle(x.s.ack(m, x.now))
	}
}

func (x *xstate) gone() {
	x.settle(x.s.gone(x.now))
}

func (x *xstate) steps(tell func(explore.Step[*xstate])) {
	step := func(what string, sure bool, do func(*xstate)) {
		next := x.clone()
		do(next)
		tell(explore.Step[*xstate]{Label: explore.Label{What: what}, Sure: sure, Next: next})
	}
	if x.kept < len(x.takenBy)-1 {
		step("keeps", true, func(x *xstate) {
			x.kept++
			x.s.keep(frame{owner: x.owner, item: x.kept, size: 1,
				msg: &wire.Frame{To: "x", What: &wire.Frame_Envelope{Envelope: &wire.Envelope{Sequence: uint64(x.kept)}}}}, x.now)
			x.settle(nil)
		})
	}
	quiet := true
	for i := range x.to {
		if len(x.to[i]) > 0 {
			quiet = false
			step(fmt.Sprint("arrives there, by ", i), true, func(x *xstate) { x.deliver(x.to, i) })
			if i < len(x.to)-1 {
				step(fmt.Sprint("is lost, by ", i), true, func(x *xstate) { x.to[i] = nil })
			}
		}
	}
	for i := range x.from {
		if len(x.from[i]) > 0 {
			quiet = false
			step(fmt.Sprint("arrives back, by ", i), true, func(x *xstate) { x.deliver(x.from, i) })
		}
	}
	if x.breaks > 0 {
		step("the link there breaks", false, func(x *xstate) {
			x.breaks--
			x.to = append(x.to, nil)
			x.gone()
		})
		step("the link back breaks", false, func(x *xstate) {
			x.breaks--
			x.from[len(x.from)-1] = nil
		})
	}
	if n := len(x.to) - 1; x.holes > 0 && len(x.to[n]) > 0 {
		step("the link swallows a message", false, func(x *xstate) {
			x.holes--
			x.to[n] = x.to[n][1:]
		})
	}
	if x.restarts > 0 {
		for _, told := range []bool{true, false} {
			step(fmt.Sprint("the peer restarts, told ", told), false, func(x *xstate) {
				x.restarts--
				x.life++
				x.recv, x.opened = receiver{}, false
				x.to = [][]any{nil}
				if told {
					x.gone()
				}
			})
		}
	}
	if x.forgets > 0 && x.s.link > 0 && x.s.idle() {
		step("the channel is forgotten", true, func(x *xstate) {
			x.forgets--
			base := x.s.link
			x.s = newSender()
			x.s.base = base
		})
	}
	if at := x.s.due(); quiet && at >= 0 {
		step("time passes", true, func(x *xstate) {
			x.now = max(x.now, at)
			x.settle(x.s.tick(x.now))
		})
	}
}

func (x *xstate) key() explore.Key {
	s := x.s
	text := fmt.Sprint(s.link, s.up, s.peer, s.number, s.probes, s.open, s.legs, x.recv, x.opened, x.life, x.kept, x.takenBy, x.back, x.breaks, x.restarts, x.holes, x.forgets, s.base, x.bad)
	for _, f := range s.frames {
		text += fmt.Sprint("|", f.number, f.item, f.sent, f.holes)
	}
	for _, conns := range [][][]any{x.to, x.from} {
		for _, c := range conns {
			text += "/"
			for _, m := range c {
				switch m := m.(type) {
				case *wire.Probe:
					text += fmt.Sprint("P", m.Link, " ", m.Number, ",")
				case *wire.Ack:
					text += fmt.Sprint("A", m.Link, " ", m.Number, " ", m.Taken, m.From.Incarnation, ",")
				case *wire.Frame:
					text += fmt.Sprint("F", m.Link, " ", m.Number, " ", m.GetEnvelope().Sequence, ",")
				}
			}
		}
	}
	return explore.HashBytes([]byte(text))
}

func space(plant string, breaks, restarts, holes, forgets int) explore.Space[*xstate] {
	x := &xstate{plant: plant, s: newSender(), owner: &xowner{}, to: make([][]any, 1), from: make([][]any, 1), life: 1, breaks: breaks, restarts: restarts, holes: holes, forgets: forgets}
	return explore.Space[*xstate]{
		Start: []*xstate{x},
		Steps: func(x *xstate, tell func(explore.Step[*xstate])) { x.steps(tell) },
		Key:   (*xstate).key,
		Check: func(x *xstate) error {
			if x.bad {
				return errTwice
			}
			return nil
		},
		// Each item was taken or came back, and the sender keeps nothing.
		Goal: func(x *xstate) bool {
			for item := 1; item < len(x.takenBy); item++ {
				if x.takenBy[item] == 0 && !x.back[item] {
					return false
				}
			}
			return len(x.s.frames) == 0
		},
		Show: func(x *xstate) string { return fmt.Sprintf("  %+v\n  to %v from %v", x.s, x.to, x.from) },
		Most: 400_000,
	}
}

// TestExplore visits all that a sender of three frames and its peer come to, with links
// that break and deliver late, a peer that restarts, and a channel that is forgotten at rest: one life takes a frame once and
// in order, and none that returned; and a way always leads to where each has met its fate.
func TestExplore(t *testing.T) {
	small := [][4]int{{1, 0, 0, 1}, {1, 1, 0, 0}, {1, 0, 1, 0}}
	large := [][4]int{{2, 1, 0, 0}, {2, 0, 1, 0}, {1, 1, 1, 0}, {2, 0, 0, 1}, {1, 1, 0, 2}}
	for _, c := range tier.Models(small, large) {
		t.Run(fmt.Sprintf("breaks %d, restarts %d, holes %d, forgotten %d", c[0], c[1], c[2], c[3]), func(t *testing.T) {
			rep := explore.Run(space("", c[0], c[1], c[2], c[3]))
			t.Log(rep)
			if rep.Violation != nil {
				t.Fatal(rep.Violation)
			}
			require.True(t, rep.Whole)
		})
	}
}

func TestExploreFindsPlantedMistakes(t *testing.T) {
	for plant, want := range map[string]error{
		"a new link forgets what was taken": errTwice,
		"gaps are taken":                    explore.ErrDeadEnd,
	} {
		t.Run(plant, func(t *testing.T) {
			rep := explore.Run(space(plant, 1, 0, 1, 0))
			require.NotNil(t, rep.Violation, "not found in %v", rep)
			require.ErrorIs(t, rep.Violation, want)
			t.Log(rep)
		})
	}
}
