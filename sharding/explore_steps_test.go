package sharding

import (
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
			s.orders(i)
			s.wishes(i)
		}
	}
	s.links()
}

// step tells one: do changes a copy of the state.
func (s *stepper) step(what string, a, b int, sure bool, do func(r *xrun)) {
	r := &xrun{xmodel: s.xmodel, w: s.from}
	do(r)
	s.done(explore.Label{What: what, A: uint8(a), B: uint8(b)}, sure, r)
}

func (s *stepper) done(label explore.Label, sure bool, r *xrun) {
	r.w.canon()
	s.tell(explore.Step[xworld]{Label: label, Sure: sure, Next: r.w, Err: r.err})
}

func (s *stepper) leases() {
	s.from.L.Steps(s.flaws, s.from.refs(), s.from.Left.Unknowns > 0, func(label explore.Label, sure, unsure bool,
		after explore.Leases, err error) {
		r := &xrun{xmodel: s.xmodel, w: s.from, err: err}
		r.w.L = after
		if unsure {
			r.w.Left.Unknowns--
		}
		s.done(label, sure, r)
	})
}

// node tells what one node and its Keeper come to by themselves.
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
	if h.Offer {
		s.step("the Keeper's offer ends", a, 0, true, func(r *xrun) { r.w.L.H[i].Offer = false })
	}
	if n.Run != 0 && n.Told {
		s.step("the entities end", a, 0, true, func(r *xrun) {
			n := &r.w.N[i]
			n.Run, n.Gate, n.Told, n.Due, n.Yield, n.Left = 0, gateOpen, false, false, false, false
			r.fire(i, handover.Ended)
		})
	}
	if n.Due {
		s.step("the entities are overdue", a, 0, false, func(r *xrun) { r.w.N[i].Due = false; r.fire(i, handover.Overdue) })
	}
	if n.Yield {
		s.step("a TTL after the entities were shut off", a, 0, false,
			func(r *xrun) { r.w.N[i].Yield = false; r.fire(i, handover.YieldOver) })
	}
	if n.Making {
		s.step("its offer is ready", a, 0, true, func(r *xrun) { r.offerReady(i) })
		if w.Left.Unknowns > 0 {
			s.step("its offer fails", a, 0, false, func(r *xrun) {
				r.w.Left.Unknowns--
				r.w.N[i].Making = false
				r.fire(i, handover.OfferFailed)
			})
			if n.M.Phase == handover.Offered {
				s.step("its offer fails, and the last one is good still", a, 0, false, func(r *xrun) {
					r.w.Left.Unknowns--
					r.w.N[i].Making = false
				})
			}
		}
	}
	if n.M.Phase == handover.Offered {
		if s.plant != "a lost 'off' leaves a node with its offer for ever" {
			s.step("its offer is over", a, 0, true, func(r *xrun) { r.fire(i, handover.OfferOver) })
		}
		if w.L.Owns(i) {
			s.step("sees that the record is its own", a, 0, true, func(r *xrun) { r.fire(i, handover.Taken) })
		}
	}
	if (n.M.Phase == handover.Inviting || n.M.Phase == handover.Asking) && s.prompt(i) && s.plant != "no answer is waited for in vain" {
		s.step("no answer to the invitation in time", a, int(n.To), true, func(r *xrun) { r.fire(i, handover.Declined) })
	}
	if n.M.Offer && n.M.Phase.Waits() && w.Q[i][n.To-1].N+w.Q[n.To-1][i].N == 0 && !w.N[n.To-1].Making {
		s.step("asks for a fresh offer", a, int(n.To), false, func(r *xrun) { r.send(i, n.To, xmail{mInvite, n.Inv, 0}) })
	}
	if n.M.Offer && !n.Aged && n.M.Phase.Waits() {
		s.step("the offer it has grows old", a, int(n.To), false, func(r *xrun) { r.w.N[i].Aged = true })
	}
	for j := range s.nodes {
		if n.Lost&bit(j) != 0 {
			s.step("is told that the link broke", a, j+1, true, func(r *xrun) {
				n := &r.w.N[i]
				n.Lost &^= bit(j)
				if (n.M.Phase == handover.Inviting || n.M.Phase == handover.Asking) && int(n.To) == j+1 {
					r.fire(i, handover.Declined)
				}
			})
		}
	}
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

func (r *xrun) hear(i int) {
	n := &r.w.N[i]
	res := r.w.L.Hear(i)
	switch n.M.Phase {
	case handover.Acquiring, handover.Adopting:
		if res == explore.Done {
			n.Term = r.w.L.H[i].Claim
			r.fire(i, handover.Won)
			return
		}
		r.fire(i, handover.NotWon)
	case handover.Transferring:
		if res == explore.Unknown && r.plant == "an unknown transfer is taken for done" {
			res = explore.Done
		}
		if res == explore.Refused {
			r.carryOut(i, handover.DropInvite)
		} else {
			r.send(i, n.To, xmail{mHandedOver, n.Inv, n.Gave})
		}
		switch {
		case res == explore.Done:
			r.fire(i, handover.Transferred)
		case res == explore.Unknown && r.plant == "an unknown transfer is taken for refused, and the shard opened again":
			r.w.L.H[i].Alive, n.Term = true, r.w.L.H[i].Claim
			n.M.Phase, n.M.Offer = handover.Active, false
			r.open(i)
		default:
			r.fire(i, handover.NotTransferred)
		}
	case handover.Releasing:
		r.fire(i, handover.Released)
	default:
		r.fail(errRule)
	}
}

func (r *xrun) offerReady(i int) {
	n := &r.w.N[i]
	n.Making = false
	r.w.L.H[i].Offer = true
	switch n.M.Phase {
	case handover.Offering:
		r.fire(i, handover.OfferMade)
	case handover.Offered:
		r.carryOut(i, handover.SendOffer)
	}
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

func (r *xrun) receive(i, from int, m xmail) {
	n, a := &r.w.N[i], uint8(from+1)
	switch m.Kind {
	case mInvite:
		switch {
		case n.Leaving, n.M.Quitting:
			r.send(i, a, xmail{mDeclined, m.N, 0})
		case n.M.Phase == handover.Offered && n.From == a:
			n.TakeN, n.Making = m.N, true
		case n.M.Phase != handover.Away:
			r.send(i, a, xmail{mDeclined, m.N, 0})
		default:
			n.From, n.TakeN, n.State = a, m.N, 0
			r.fire(i, handover.Asked)
		}
	case mOffer, mDeclined:
		switch {
		case n.Inv == 0 || m.N != n.Inv || n.To != a:
		case m.Kind == mDeclined:
			r.fire(i, handover.Declined)
		case n.M.Phase == handover.Inviting, n.M.Phase == handover.Asking:
			n.ToSess, n.Aged = m.X, false
			r.fire(i, handover.Invited)
		case n.M.Offer && n.M.Phase.Waits():
			n.ToSess, n.Aged = m.X, false
		}
	case mHandedOver, mOff:
		switch {
		case m.N != n.TakeN || n.From != a || n.M.Phase != handover.Offering && n.M.Phase != handover.Offered:
		case m.Kind == mOff:
			r.fire(i, handover.OfferOver)
		case r.plant == "what was handed over is not adopted by a write":
			h := &r.w.L.H[i]
			h.Alive, h.Claim, n.Term = true, r.w.L.Rec.Token, r.w.L.Rec.Token
			n.M.Phase = handover.Active
			r.open(i)
		default:
			n.State = m.X
			r.fire(i, handover.Taken)
		}
	}
}

// orders tells what the coordinator may order of i, and what i makes of it. It sees
// to a shard that is free, and to one whose host leaves; else it may order anything
// that was sensible once.
func (s *stepper) orders(i int) {
	w := &s.from
	n, a := &w.N[i], i+1
	if !s.prompt(i) {
		return // orders don't come faster than messages
	}
	if n.Order.Given {
		s.step("obeys the coordinator", a, 0, true, func(r *xrun) { r.obey(i) })
		if w.Left.Links > 0 {
			s.step("lost: an order", a, 0, false, func(r *xrun) { r.w.Left.Links--; r.w.N[i].Order = xorder{} })
		}
		return
	}
	free := w.L.Rec.Owner == 0
	if sure := free && w.able(i) && (n.M.Phase == handover.Away || n.M.Phase == handover.Offered); sure || w.Left.Orders > 0 {
		s.step("is ordered to host", a, 0, sure, func(r *xrun) {
			if !sure {
				r.w.Left.Orders--
			}
			r.w.N[i].Order = xorder{Given: true}
		})
	}
	for j := range s.nodes {
		if j == i || !w.L.Owns(i) {
			continue
		}
		sure := n.Leaving && n.M.Phase == handover.Active && w.able(j) && w.N[j].M.Phase == handover.Away
		if sure || w.Left.Orders > 0 {
			s.step("is ordered to hand over", a, j+1, sure, func(r *xrun) {
				if !sure {
					r.w.Left.Orders--
				}
				r.w.N[i].Order = xorder{true, uint8(j + 1), r.w.L.Rec.Token}
			})
		}
	}
}

func (r *xrun) obey(i int) {
	n := &r.w.N[i]
	o := n.Order
	n.Order = xorder{}
	switch {
	case o.Next == 0 && r.plant == "an order to host is taken for the lease":
		h := &r.w.L.H[i]
		n.Term = r.w.High + 1
		h.Alive, h.Claim, n.M.Phase = true, n.Term, handover.Active
		r.open(i)
	case o.Next == 0:
		if !n.Leaving {
			r.fire(i, handover.Host)
		}
	case n.M.Phase.HandsOver() && n.To == o.Next:
	case n.Term == 0 || n.Term != o.Token:
	default:
		if n.M.Phase == handover.Active {
			n.Inv, n.To, n.ToSess, n.Aged = 0, o.Next, 0, false
		}
		r.fire(i, handover.Move)
	}
}

// wishes tells what users and fate may do to i.
func (s *stepper) wishes(i int) {
	w, a := &s.from, i+1
	n, h := &w.N[i], &w.L.H[i]
	if n.Leaving && !n.M.Quitting {
		s.step("has waited long enough for others to take its shard", a, 0, true, func(r *xrun) { r.fire(i, handover.Quit) })
	}
	if w.Left.Wishes > 0 {
		if n.Leaving {
			s.step("is to stay", a, 0, false, func(r *xrun) { r.w.Left.Wishes--; r.w.N[i].Leaving = false; r.fire(i, handover.Stay) })
		} else {
			s.step("is to leave", a, 0, false, func(r *xrun) { r.w.Left.Wishes--; r.w.N[i].Leaving = true })
		}
	}
	if w.Left.Members > 0 && n.M.Phase.Holds() {
		s.step("loses its membership", a, 0, false, func(r *xrun) { r.w.Left.Members--; r.fire(i, handover.Lost) })
	}
	if w.Left.Losses > 0 && (h.Alive || h.Offer || h.Op != explore.NoOp || w.L.Owns(i)) {
		s.step("its session is over", a, 0, false, func(r *xrun) { r.w.Left.Losses--; r.w.L.Lost(i) })
	}
	if w.Left.Crashes > 0 {
		s.step("crashes", a, 0, false, func(r *xrun) {
			r.w.Left.Crashes--
			r.w.N[i] = xnode{}
			r.w.L.Crash(i)
			for j := range r.nodes {
				r.w.Q[j][i] = explore.Queue[xmail]{}
				if r.w.L.H[j].Up {
					r.w.N[j].Lost |= bit(i)
				}
			}
		})
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
			if !w.L.H[i].Up || !w.L.H[j].Up || w.Q[i][j].N+w.Q[j][i].N == 0 {
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
