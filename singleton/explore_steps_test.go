package singleton

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// This file says what can happen in the world of TestExplore.

// stepper tells the steps of one state.
type stepper struct {
	*xmodel
	from xworld
	tell func(explore.Step[xworld])
}

func (x *xmodel) steps(w xworld, tell func(explore.Step[xworld])) {
	s := &stepper{x, w, tell}
	s.leases()
	for i := range x.nodes {
		if w.L.H[i].Up {
			s.node(i)
			s.mail(i)
			s.wishes(i)
		}
	}
	s.leaders()
	s.links()
}

// step tells one: do changes a copy of the state.
func (s *stepper) step(what string, a, b int, sure bool, do func(r *xrun)) {
	r := &xrun{xmodel: s.xmodel, w: s.from}
	do(r)
	s.done(explore.Label{What: what, A: uint8(a), B: uint8(b)}, sure, r)
}

func (s *stepper) done(label explore.Label, sure bool, r *xrun) {
	if old, now := s.from.L.Rec, r.w.L.Rec; old != now {
		for i := range r.w.N {
			r.w.N[i].Said = false
		}
	}
	r.w.canon()
	s.tell(explore.Step[xworld]{Label: label, Sure: sure, Next: r.w, Err: r.err})
}

func (s *stepper) leases() {
	s.from.L.Steps(s.flaws, s.from.refs(), s.from.Left.Unknowns > 0, func(label explore.Label, sure, unsure bool, after explore.Leases, err error) {
		r := &xrun{xmodel: s.xmodel, w: s.from, err: err}
		r.w.L = after
		if unsure {
			r.w.Left.Unknowns--
		}
		s.done(label, sure, r)
	})
}

// node tells what one manager and its Keeper come to by themselves.
func (s *stepper) node(i int) {
	w := &s.from
	n, h, a := &w.N[i], &w.L.H[i], i+1
	if h.Result != explore.NoResult {
		s.step("hears the store's answer", a, 0, true, func(r *xrun) { r.hear(i) })
	}
	if h.Loss {
		s.step("is told of the loss", a, 0, true, func(r *xrun) {
			r.w.L.H[i].Loss = false
			if r.w.N[i].Term != 0 && !r.alive(i) {
				r.fire(i, handover.Lost)
			}
		})
	}
	if n.Cancel && h.Op != explore.NoOp {
		s.step("the acquisition is cancelled", a, 0, true, func(r *xrun) { r.w.N[i].Cancel = false; r.w.L.Leave(i) })
	}
	if h.Offer && s.plant != "a lost 'off' leaves a node with its offer for ever" {
		s.step("the Keeper's offer ends", a, 0, true, func(r *xrun) { r.w.L.H[i].Offer = false })
	}
	if n.Child != 0 && n.Told {
		s.step("the child ends", a, 0, true, func(r *xrun) { r.ended(i, handover.Ended) })
	}
	if n.Makes && n.Unfit != hungProps {
		s.step("the child's Props return", a, 0, true, func(r *xrun) { r.made(i) })
	}
	if n.Makes && n.Unfit == hungProps {
		s.step("the child's Props have not returned in time", a, 0, true, func(r *xrun) { r.w.N[i].Unfit = 0; r.fire(i, unmade) })
	}
	if n.Hangs {
		s.step("the Props of a child that was given up return", a, 0, false, func(r *xrun) { r.returned(i) })
	}
	if n.Due {
		s.step("the child is overdue", a, 0, false, func(r *xrun) { r.w.N[i].Due = false; r.fire(i, handover.Overdue) })
	}
	if n.Yield {
		s.step("a TTL after the child was shut off", a, 0, false, func(r *xrun) { r.w.N[i].Yield = false; r.fire(i, handover.YieldOver) })
	}
	if n.Back {
		s.step("the backoff is over", a, 0, true, func(r *xrun) { r.w.N[i].Back = false; r.fire(i, backoffOver) })
	}
	if n.Wait != 0 {
		free := w.L.Rec.Owner == 0 || w.L.Owns(i) || n.Wait == 2
		s.step(map[bool]string{true: "is told that the name is free", false: "is told late that the name was free"}[free], a, 0, free, func(r *xrun) { r.free(i) })
	}
	if n.Making {
		s.step("its offer is ready", a, 0, true, func(r *xrun) { r.offerReady(i) })
		if w.Left.Unknowns > 0 {
			s.step("its offer fails", a, 0, false, func(r *xrun) {
				r.w.Left.Unknowns--
				r.w.N[i].Making = false
				r.fire(i, handover.OfferFailed)
			})
			if n.M.phase == Offered {
				s.step("its offer fails, and the last one is good still", a, 0, false, func(r *xrun) {
					r.w.Left.Unknowns--
					r.w.N[i].Making = false
				})
			}
		}
	}
	if n.M.phase == Offered && s.plant != "a lost 'off' leaves a node with its offer for ever" {
		s.step("its offer is over", a, 0, true, func(r *xrun) { r.fire(i, handover.OfferOver) })
	}
	if n.M.phase == Inviting && n.Ask != 0 && s.prompt(i) {
		s.step("no answer to the invitation in time", a, int(n.Ask), true, func(r *xrun) { r.noAnswer(i, false) })
	}
	if n.M.phase == Asking && s.prompt(i) && s.plant != "a new offer is waited for in vain" {
		s.step("no new offer in time", a, int(n.To), true, func(r *xrun) { r.fire(i, handover.Declined) })
	}
	if n.M.hold.Offer && !n.Aged && n.M.hold.Phase.Waits() {
		s.step("the offer it has grows old", a, int(n.To), false, func(r *xrun) { r.w.N[i].Aged = true })
	}
	if t := int(n.To) - 1; t >= 0 && n.M.hold.Offer && (n.M.phase == HandingOver || n.M.phase == Yielding) && w.Q[i][t].N+w.Q[t][i].N == 0 && !w.N[t].Making {
		s.step("asks for a fresh offer", a, t+1, false, func(r *xrun) { r.send(i, n.To, xmail{mInvite, n.Inv, 0}) })
	}
	if n.Settle != 0 && s.prompt(i) {
		s.step("nothing changed for a while", a, 0, true, func(r *xrun) { r.settled(i) })
	}
	if n.Lost != 0 {
		for j := range s.nodes {
			if n.Lost&bit(j) != 0 {
				s.step("is told that the link broke", a, j+1, true, func(r *xrun) { r.peerLost(i, j) })
			}
		}
	}
	s.introduce(i)
}

// fewLate is how many messages may be under way between a node and another, both
// ways, when a time that it waits for is over. With more of them it waits on: links
// are not so slow that a host fills one with invitations.
const fewLate = 2

func (s *stepper) prompt(i int) bool {
	for j := range s.nodes {
		if s.from.Q[i][j].N+s.from.Q[j][i].N > fewLate {
			return false
		}
	}
	return true
}

func (s *stepper) introduce(i int) {
	w := &s.from
	n, j := &w.N[i], int(w.L.Rec.Owner)-1
	if j < 0 || j == i || !w.L.H[j].Up || n.Child != 0 || n.M.closing() || !n.M.able() || !s.prompt(i) ||
		w.Q[i][j].Any(func(m xmail) bool { return m.Kind == mCandidate }) {
		return
	}
	leads := s.leading && int(n.Leader) == i+1
	again := (leads || s.prefers && i < j) && (w.N[j].Cands&bit(i) == 0 || w.N[j].M.phase == Active && w.N[j].Settle == 0)
	if n.Said && !again {
		return
	}
	s.step("introduces itself", i+1, j+1, true, func(r *xrun) {
		r.w.N[i].Said = true
		x := uint8(0)
		if leads {
			x = 1
		}
		r.send(i, uint8(j+1), xmail{mCandidate, 0, x})
	})
}

// mail tells what i may receive.
func (s *stepper) mail(i int) {
	for j := range s.nodes {
		q := s.from.Q[j][i]
		if m, ok := q.Pop(); ok {
			s.step(mailNames[m.Kind], j+1, i+1, true, func(r *xrun) { r.w.Q[j][i] = q; r.receive(i, j, m) })
			if s.from.Left.Links > 0 {
				s.step("lost: "+mailNames[m.Kind], j+1, i+1, false, func(r *xrun) { r.w.Left.Links--; r.w.Q[j][i] = q })
			}
		}
	}
}

// wishes tells what users and fate may do to i.
func (s *stepper) wishes(i int) {
	w, a := &s.from, i+1
	n, h := &w.N[i], &w.L.H[i]
	if w.Left.Wishes > 0 && n.M.phase != Closed {
		if !n.M.closing() {
			s.step("is told to stop", a, 0, false, func(r *xrun) { r.w.Left.Wishes--; r.fire(i, stop) })
		}
		if n.M.down {
			s.step("is told to resume", a, 0, false, func(r *xrun) { r.w.Left.Wishes--; r.w.N[i].Said = false; r.fire(i, resume) })
		}
	}
	if w.Left.Losses > 0 && (h.Alive || h.Offer || h.Op != explore.NoOp || w.L.Owns(i)) {
		s.step("its session is over", a, 0, false, func(r *xrun) { r.w.Left.Losses--; r.w.L.Lost(i) })
	}
	if w.Left.Ends > 0 && n.Child != 0 && !n.Told {
		s.step("the child fails", a, 0, false, func(r *xrun) { r.w.Left.Ends--; r.ended(i, handover.Ended) })
		s.step("the child fails once too often", a, 0, false, func(r *xrun) { r.w.Left.Ends--; r.ended(i, exhausted) })
	}
	if w.Left.Ends > 0 && n.Unfit == 0 && (n.M.phase == Acquiring || n.M.phase == Adopting || n.M.phase == Backoff) {
		s.step("its props will panic", a, 0, false, func(r *xrun) { r.w.Left.Ends--; r.w.N[i].Unfit = badProps })
		s.step("its props will hang", a, 0, false, func(r *xrun) { r.w.Left.Ends--; r.w.N[i].Unfit = hungProps })
	}
	if w.Left.Crashes > 0 {
		s.step("crashes", a, 0, false, func(r *xrun) {
			r.w.Left.Crashes--
			r.w.N[i] = xnode{}
			r.w.L.Crash(i)
			for j := range r.nodes {
				r.w.Q[j][i] = explore.Queue[xmail]{}
				if r.w.L.H[j].Up && r.w.N[j].M.phase != Closed {
					r.w.N[j].Lost |= bit(i)
				}
			}
		})
	}
}

// leaders tells who may be named leader, and who may hear of it.
func (s *stepper) leaders() {
	if !s.leading {
		return
	}
	w := &s.from
	able := func(i int) bool { return w.L.H[i].Up && !w.N[i].M.closing() }
	over := w.Leader == 0 || !able(int(w.Leader)-1)
	for i := range s.nodes {
		if able(i) && w.Leader != uint8(i+1) {
			if over {
				s.step("is elected", i+1, 0, true, func(r *xrun) { r.w.Leader = uint8(i + 1) })
			} else if w.Left.Wishes > 0 {
				s.step("is elected, though the leader lives", i+1, 0, false, func(r *xrun) { r.w.Left.Wishes--; r.w.Leader = uint8(i + 1) })
			}
		}
		if n := &w.N[i]; w.L.H[i].Up && n.M.phase != Closed && n.Heard != w.Leader {
			s.step("hears who leads", i+1, 0, true, func(r *xrun) { r.onLeader(i) })
		}
	}
	if w.Leader != 0 && w.Left.Wishes > 0 {
		s.step("there is no leader", 0, 0, false, func(r *xrun) { r.w.Left.Wishes--; r.w.Leader = 0 })
	}
}

// links tells of those that may break.
func (s *stepper) links() {
	w := &s.from
	if w.Left.Links == 0 {
		return
	}
	for i := range s.nodes {
		for j := range i {
			if !w.L.H[i].Up || !w.L.H[j].Up || w.Q[i][j].N+w.Q[j][i].N == 0 && (w.N[i].Cands&bit(j)|w.N[j].Cands&bit(i) == 0) {
				continue
			}
			s.step("the link breaks", j+1, i+1, false, func(r *xrun) {
				r.w.Left.Links--
				r.w.Q[i][j], r.w.Q[j][i] = explore.Queue[xmail]{}, explore.Queue[xmail]{}
				r.w.N[i].Lost |= bit(j)
				r.w.N[j].Lost |= bit(i)
			})
		}
	}
}

// check is what must hold in every state.
func (x *xmodel) check(w xworld) error {
	passing := 0
	for i := range w.N {
		n, h := &w.N[i], &w.L.H[i]
		if n.Child == 0 {
			continue
		}
		if (h.Op == explore.Release || h.Op == explore.Transfer) && !n.Left {
			return errI4
		}
		alive := h.Alive && h.Claim == n.Child
		if x.plant == "the gate does not look at the lease" {
			alive = true
		}
		if alive && n.Gate != gateLost {
			passing++
			if n.Child < w.High {
				return errI1
			}
		}
	}
	if passing > 1 {
		return errI1
	}
	return nil
}

// goal: if any node is willing one of them hosts, nobody else does, and all is
// calm; if none is, the name is free or its one host has nobody to give it to.
func (x *xmodel) goal(w xworld) bool {
	hosts, willing := 0, false
	for i := range x.nodes {
		n, h := &w.N[i], &w.L.H[i]
		if !h.Up {
			continue
		}
		willing = willing || n.M.willing()
		switch n.M.phase {
		case Standby, Closed:
		case Active:
			if n.Child == 0 || !h.Alive || h.Claim != n.Child || !w.L.Owns(i) || w.L.Rec.Token != n.Child {
				return false
			}
			hosts++
		default:
			return false
		}
		if h.Op != explore.NoOp || h.Result != explore.NoResult {
			return false
		}
	}
	if !willing {
		return hosts == 1 || hosts == 0 && w.L.Rec.Owner == 0
	}
	if hosts != 1 {
		return false
	}
	return w.N[w.L.Rec.Owner-1].M.willing()
}

// show describes a state in words.
func (x *xmodel) show(w xworld) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  record %+v, high %d, leader %d\n", w.L.Rec, w.High, w.Leader)
	for i := range x.nodes {
		n := w.N[i]
		fmt.Fprintf(&b, "  %c %v %+v lease %+v\n", 'a'+i, n.M.phase, n, w.L.H[i])
		for j := range x.nodes {
			for _, m := range w.Q[i][j].M[:w.Q[i][j].N] {
				fmt.Fprintf(&b, "    under way to %c: %s %d\n", 'a'+j, mailNames[m.Kind], m.N)
			}
		}
	}
	return b.String()
}
