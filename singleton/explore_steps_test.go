package singleton

import (
	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
)

// This file says what else can happen to singletons in TestExplore.

// Steps tells what one manager, its child, users and a source of leadership come to.
func (o ofSingletons) Steps(s *xstepper, i int) {
	o.child(s, i)
	o.waits(s, i)
	o.introduce(s, i)
	o.wishes(s, i)
	if o.leading {
		o.leaders(s, i)
	}
}

func (o ofSingletons) child(s *xstepper, i int) {
	w := &s.From
	n, a := &w.N[i], i+1
	if n.O.Makes && n.O.Unfit != hungProps {
		s.Step("the child's Props return", a, 0, true, func(r *xrun) { o.made(r, i) })
	}
	if n.O.Makes && n.O.Unfit == hungProps {
		s.Step("the child's Props have not returned in time", a, 0, true, func(r *xrun) { r.W.N[i].O.Unfit = 0; r.Fire(i, unmade) })
	}
	if n.O.Hangs {
		s.Step("the Props of a child that was given up return", a, 0, false, func(r *xrun) { returned(r, i) })
	}
	if n.O.Back {
		s.Step("the backoff is over", a, 0, true, func(r *xrun) { r.W.N[i].O.Back = false; r.Fire(i, backoffOver) })
	}
	if n.O.Back && n.O.Cands != 0 && n.M.willing() {
		s.Step("its child fails time and again", a, 0, false, func(r *xrun) { r.Fire(i, hopeless) })
		s.Step("its child fails time and again, under a lease that can't be handed over", a, 0, false, func(r *xrun) { r.Fire(i, resign) })
	}
	if n.O.Tired {
		s.Step("may host again", a, 0, true, func(r *xrun) { r.W.N[i].O.Tired, r.W.N[i].O.Said = false, false; r.Fire(i, rested) })
	}
	if w.Left.Ends > 0 && n.Run != 0 && !n.Told {
		s.Step("the child fails", a, 0, false, func(r *xrun) { r.W.Left.Ends--; r.Ended(i, handover.Ended) })
	}
	if w.Left.Ends > 0 && n.O.Unfit == 0 && (n.M.phase == Acquiring || n.M.phase == Adopting || n.M.phase == Backoff) {
		s.Step("its props will panic", a, 0, false, func(r *xrun) { r.W.Left.Ends--; r.W.N[i].O.Unfit = badProps })
		s.Step("its props will hang", a, 0, false, func(r *xrun) { r.W.Left.Ends--; r.W.N[i].O.Unfit = hungProps })
	}
}

func (o ofSingletons) waits(s *xstepper, i int) {
	w := &s.From
	n, a := &w.N[i], i+1
	if n.O.Cancel && w.L.H[i].Op != explore.NoOp {
		s.Step("the acquisition is cancelled", a, 0, true, func(r *xrun) { r.W.N[i].O.Cancel = false; r.W.L.Leave(i) })
	}
	if n.O.Wait != 0 {
		free := w.L.Rec.Owner == 0 || w.L.Owns(i) || n.O.Wait == 2
		s.Step(map[bool]string{true: "is told that the name is free", false: "is told late that the name was free"}[free], a, 0, free, func(r *xrun) { r.Fire(i, o.freed(r, i)) })
	}
	if n.O.Settle != 0 && s.Prompt(i) {
		s.Step("nothing changed for a while", a, 0, true, func(r *xrun) { o.settled(r, i) })
	}
}

// freed is what it means to a manager that the name is free: it may have been handed over
// to its offer.
func (o ofSingletons) freed(r *xrun, i int) event {
	if r.W.N[i].M.phase == Offered {
		return handover.Taken
	}
	return free
}

func (o ofSingletons) settled(r *xrun, i int) {
	n := &r.W.N[i]
	what := n.O.Settle
	n.O.Settle = 0
	switch {
	case what == settleOutranked:
		r.Fire(i, preferredElsewhere)
	case what == settleUnwanted, o.leading && int(n.O.Leader) != i+1:
		r.Fire(i, unwanted)
	}
}

func (o ofSingletons) introduce(s *xstepper, i int) {
	w := &s.From
	n, j := &w.N[i], int(w.L.Rec.Owner)-1
	if j < 0 || j == i || !w.L.H[j].Up || n.Run != 0 || n.M.closing() || n.M.unfit() || !s.Prompt(i) ||
		w.Q[i][j].Any(func(m world.Mail) bool { return m.Kind == mCandidate }) {
		return
	}
	leads := o.leading && int(n.O.Leader) == i+1
	again := (leads || o.prefers && i < j) && (w.N[j].O.Cands&world.Bit(i) == 0 || w.N[j].M.phase == Active && w.N[j].O.Settle == 0)
	if n.O.Said && !again {
		return
	}
	s.Step("introduces itself", i+1, j+1, true, func(r *xrun) {
		r.W.N[i].O.Said = true
		x := uint8(0)
		if leads {
			x = 1
		}
		r.Send(i, uint8(j+1), world.Mail{Kind: mCandidate, X: x})
	})
}

func (o ofSingletons) wishes(s *xstepper, i int) {
	w, n, a := &s.From, &s.From.N[i], i+1
	if w.Left.Wishes == 0 || n.M.phase == Closed {
		return
	}
	if !n.M.closing() {
		s.Step("is told to stop", a, 0, false, func(r *xrun) { r.W.Left.Wishes--; r.Fire(i, stop) })
	}
}

// leaders tells whether i may be named leader, and of whom it may hear.
func (o ofSingletons) leaders(s *xstepper, i int) {
	w := &s.From
	able := func(i int) bool { return w.L.H[i].Up && !w.N[i].M.closing() }
	over := w.Leader == 0 || !able(int(w.Leader)-1)
	if able(i) && w.Leader != uint8(i+1) {
		if over {
			s.Step("is elected", i+1, 0, true, func(r *xrun) { r.W.Leader = uint8(i + 1) })
		} else if w.Left.Wishes > 0 {
			s.Step("is elected, though the leader lives", i+1, 0, false, func(r *xrun) { r.W.Left.Wishes--; r.W.Leader = uint8(i + 1) })
		}
	}
	if n := &w.N[i]; n.M.phase != Closed && n.O.Heard != w.Leader {
		s.Step("hears who leads", i+1, 0, true, func(r *xrun) { o.onLeader(r, i) })
	}
	if w.Leader != 0 && w.Left.Wishes > 0 {
		s.Step("there is no leader", 0, 0, false, func(r *xrun) { r.W.Left.Wishes--; r.W.Leader = 0 })
	}
}

func (o ofSingletons) onLeader(r *xrun, i int) {
	n := &r.W.N[i]
	n.O.Heard, n.O.Leader = r.W.Leader, r.W.Leader
	p := n.M.phase
	switch {
	case int(n.O.Leader) == i+1:
		n.O.Settle, n.O.Said = 0, false
		r.Fire(i, wanted)
	case n.O.Leader == 0 && (hosts(p) || p >= Offering && p <= Adopting):
		n.O.Settle = 0
	case !hosts(p):
		n.O.Settle = 0
		r.Fire(i, unwanted)
	default:
		settleIn(r, i, settleUnwanted)
	}
}
