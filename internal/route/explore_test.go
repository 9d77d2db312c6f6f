package route

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
)

var (
	errDoubled  = errors.New("a message is handled twice")
	errDisorder = errors.New("a sender's messages are handled out of order")
	errDropped  = errors.New("a message is dropped that no bound was in the way of")
)

// steps tells what can happen in w.
func (x *xmodel) steps(w *xworld, tell func(explore.Step[*xworld])) {
	step := func(what string, a, b int, sure bool, do func(w *xworld)) {
		next := *w
		do(&next)
		next.settle()
		tell(explore.Step[*xworld]{Label: explore.Label{What: what, A: uint8(a), B: uint8(b)}, Sure: sure, Next: &next})
	}
	for i := range xnodes {
		a := i + 1
		if w.said[i] < x.say[i] {
			step(fmt.Sprintf("says %d", w.said[i]+1), a, 0, false, func(w *xworld) {
				w.said[i]++
				w.router(i).Accept(Item{Local: msg{i, w.said[i]}})
			})
			if to, token, ok := w.r[i].Through(); ok && w.room(&w.links[i][int(to.Address[1]-'0')]) {
				step(fmt.Sprintf("says %d, the short way", w.said[i]+1), a, 0, false, func(w *xworld) {
					w.said[i]++
					w.router(i).Went()
					(&xport{w, i}).Send(to.Address, &wire.Envelope{Name: "x", Token: uint64(token), Payload: payload(msg{i, w.said[i]})})
				})
			}
		}
		if w.open[i] && len(w.box[i]) > 0 {
			step(fmt.Sprintf("handles %v", w.box[i][0]), a, 0, true, func(w *xworld) { w.handle(i) })
		}
		if len(w.news[i]) > 0 {
			n := w.news[i][0]
			step(fmt.Sprintf("learns that %c owns by %d", 'a'+n.owner, n.token), a, 0, true, func(w *xworld) {
				w.news[i] = w.news[i][1:]
				w.router(i).Host(self(n.owner), n.token, true)
			})
		}
		if len(w.hung[i]) > 0 {
			step("the mail of the actor that was left is back", a, 0, true, func(w *xworld) { w.comeLate(i) })
		}
		for j := range xnodes {
			if len(w.links[i][j].msgs) > 0 {
				step(kind(w.links[i][j].msgs[0].msg), a, j+1, true, func(w *xworld) { w.receive(i, j) })
			}
			if w.links[i][j].down && j < i {
				step("the link is mended", j+1, a, true, func(w *xworld) { w.mend(i, j) })
			} else if j < i && w.breaks > 0 {
				step("the link breaks", j+1, a, false, func(w *xworld) { w.breaks--; w.breakLink(i, j) })
			}
		}
	}
	if w.ending {
		step("its mail is back", w.owner+1, 0, true, func(w *xworld) { w.comeBack() })
	}
	if w.opening {
		step("opens", w.owner+1, 0, true, func(w *xworld) { w.openUp() })
	}
	if w.moves > 0 && !w.ending && !w.opening {
		to := x.moves[len(x.moves)-w.moves]
		step("ends, for the next", w.owner+1, to+1, false, func(w *xworld) {
			w.moves--
			w.ending, w.to, w.open[w.owner] = true, to, false
			w.router(w.owner).Ending(false)
		})
		if w.losses > 0 && w.open[w.owner] {
			step("loses the name to the next", w.owner+1, to+1, false, func(w *xworld) {
				w.moves--
				w.losses--
				w.lose(to)
			})
		}
	}
	if quiet := w.quiet(); (quiet || w.late > 0) && w.wakes != [xnodes]bool{} {
		step("a second passes", 0, 0, quiet, func(w *xworld) {
			if !quiet {
				w.late--
			}
			w.now += time.Second
			for i := range xnodes {
				if w.wakes[i] {
					w.wakes[i] = false
					w.router(i).Tick()
				}
			}
		})
	}
}

func kind(m proto.Message) string {
	if m == nil {
		return "what was taken is heard"
	}
	return fmt.Sprintf("%T", m)[len("*wire."):]
}

// check is what must hold in every state.
func (x *xmodel) check(w *xworld) error {
	given := w.unordered() > 0 // order was given up, and counted
	for i := range xnodes {
		for n := range xsaid {
			switch fate := w.handled[i][n] + w.dropped[i][n]; {
			case fate > 1 && !w.doubles:
				return errDoubled
			case w.dropped[i][n] > 0 && x.limit >= 10:
				return errDropped
			}
		}
	}
	if w.disorder && !given && !w.doubles && w.breaks == x.breaks && x.limit >= 10 {
		return errDisorder
	}
	return nil
}

// goal: every message has met its fate, and nothing waits but at the holder.
func (x *xmodel) goal(w *xworld) bool {
	for i, r := range w.r {
		if !r.Idle() && i != w.owner || !r.queue.empty() {
			return false
		}
		for n := range w.said[i] {
			if w.handled[i][n]+w.dropped[i][n] == 0 && !w.broken[i][n] {
				return false
			}
		}
	}
	return true
}

func (x *xmodel) space() explore.Space[*xworld] {
	return explore.Space[*xworld]{Start: []*xworld{x.start()}, Steps: x.steps, Key: (*xworld).key, Check: x.check, Goal: x.goal, Show: (*xworld).show}
}

// Models that are visited in the commit tier, and those of the nightly tier. Nodes are 0, 1 and 2.
var (
	smallModels = []xmodel{
		{say: [xnodes]int{1, 0, 1}, moves: []int{0, 1}, limit: 10},
		{say: [xnodes]int{0, 0, 3}, moves: []int{0, 1}, limit: 1},
		{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1, 0}, limit: 10},
		{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, breaks: 1},
		{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, late: 1},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, window: 1},
		{say: [xnodes]int{1, 0, 1}, moves: []int{0, 1}, limit: 10, losses: 1},
	}
	largeModels = []xmodel{
		{say: [xnodes]int{0, 0, 3}, moves: []int{0, 1}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, adopts: true},
		{say: [xnodes]int{1, 0, 1}, moves: []int{0, 1}, limit: 10, adopts: true},
		{say: [xnodes]int{1, 0, 2}, moves: []int{0, 1}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1, 0}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1, 2}, limit: 10},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, breaks: 1},
		{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10, late: 1},
		{say: [xnodes]int{2, 0, 0}, moves: []int{0, 1, 0, 1}, limit: 10, window: 1},
	}
)

// String names the model's bounds.
func (x *xmodel) String() string { return fmt.Sprintf("%+v", *x) }

// TestExplore visits all that three Routers can come to together while a name moves
// between them, or to a third: with links that live nothing is lost, doubled, or out
// of order, and what a bound has no room for is counted; and a way always leads to
// where all mail has arrived.
func TestExplore(t *testing.T) {
	switches := 0
	list := tier.Models(smallModels, largeModels)
	for i := range list {
		x := &list[i]
		t.Run(x.String(), func(t *testing.T) {
			space := x.space()
			check := space.Check
			space.Check = func(w *xworld) error {
				for _, r := range w.r {
					switches += r.stats.PathSwitches
				}
				return check(w)
			}
			rep := explore.Run(space)
			t.Log(rep)
			if rep.Violation != nil {
				t.Fatal(rep.Violation)
			}
			require.True(t, rep.Whole)
		})
	}
	require.NotZero(t, switches, "no mail ever crossed")
}

// planted are mistakes in a Router, or around it.
var planted = []struct {
	what  string
	model xmodel
	want  error
}{
	{"markers are ignored", xmodel{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10}, errDisorder},
	{"a marker is answered by any node that gets it", xmodel{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10}, errDisorder},
	{"the backlog is forgotten", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10}, explore.ErrDeadEnd},
	{"the backlog comes back in the wrong order", xmodel{say: [xnodes]int{0, 0, 2}, moves: []int{0, 1}, limit: 10}, errDisorder},
	{"a straggler is forgotten", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10}, explore.ErrDeadEnd},
	{"custody is forgotten", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, breaks: 1}, explore.ErrDeadEnd},
	{"a frame is taken twice", xmodel{say: [xnodes]int{0, 0, 1}, moves: []int{0, 1}, limit: 10, breaks: 1}, errDoubled},
}

// A model that finds nothing has to be one that would have.
func TestExploreFindsPlantedMistakes(t *testing.T) {
	for _, p := range tier.Models(planted, nil) {
		t.Run(p.what, func(t *testing.T) {
			p.model.plant = p.what
			rep := explore.Run(p.model.space())
			require.NotNil(t, rep.Violation, "not found in %v", rep)
			t.Logf("%v\n%v", rep, rep.Violation)
			require.ErrorIs(t, rep.Violation, p.want)
			require.LessOrEqual(t, len(rep.Violation.Trace), 25)
		})
	}
}
