package sharding

import (
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
)

// This file is what shards have around a hand-over in TestExplore: a coordinator that
// orders at will, nodes that leave and stay, memberships that are lost. It carries effects
// out as hosting.go and handoff.go do.

// order is an order of the coordinator's under way: to host, or to hand over to Next what
// is held by Token.
type order struct {
	Given       bool
	Next, Token uint8
}

// xnode is what a node of shards has besides.
type xnode struct {
	Leaving bool
	Next    uint8 // who is to take the shard over
	Order   order
}

type (
	xmodel   = world.Model[handover.Machine, xnode]
	xworld   = world.World[handover.Machine, xnode]
	xrun     = world.Run[handover.Machine, xnode]
	xstepper = world.Stepper[handover.Machine, xnode]
	xbudget  = world.Budget
	xplanted = world.Planted[handover.Machine, xnode]
)

// ofShards is the world.Owner of shards.
type ofShards struct{ yields bool }

func (o ofShards) String() string {
	if o.yields {
		return "yields"
	}
	return ""
}

func (o ofShards) Hold(m handover.Machine) handover.Machine { return m }

func (o ofShards) At(m handover.Machine, p handover.Phase) handover.Machine {
	m.Phase, m.Offer = p, false
	return m
}

func (o ofShards) Next(m handover.Machine, e handover.Event) (handover.Machine, []handover.Effect) {
	return m.Next(e)
}

func (o ofShards) Start(r *xrun) {
	for i := range r.Nodes {
		r.W.N[i].M.Yields = o.yields
	}
}

func (o ofShards) Carry(r *xrun, i int, f handover.Effect) {
	switch f {
	case handover.DoOpen:
		state := r.Given(i)
		if !r.Alive(i) { // it is lost as if it had been opened
			r.W.N[i].Run = r.W.N[i].Term
			r.Fire(i, handover.Lost)
			return
		}
		r.Begin(i, state)
	case handover.DoInvite:
		r.Ask(i, r.Fresh(i), r.W.N[i].O.Next)
	}
}

func (o ofShards) Away(r *xrun, i int)                 { r.W.N[i].O.Next = 0 }
func (o ofShards) Recorded(*xrun)                      {}
func (o ofShards) Unknown() handover.Event             { return handover.NotWon }
func (o ofShards) Silent(r *xrun, i int)               { r.Fire(i, handover.Declined) }
func (o ofShards) Refused(r *xrun, i int)              { r.Fire(i, handover.Declined) }
func (o ofShards) Objects(w *xworld, i int) bool       { return w.N[i].O.Leaving }
func (o ofShards) Receive(*xrun, int, int, world.Mail) {}
func (o ofShards) PeerLost(*xrun, int, int)            {}
func (o ofShards) Links(*xworld, int, int) bool        { return false }
func (o ofShards) Closed(handover.Machine) bool        { return false }
func (o ofShards) Refs(n *xnode) []*uint8              { return []*uint8{&n.Order.Token} }
func (o ofShards) MailName(uint8) string               { return "" }

// able reports whether a node takes shards.
func able(w *xworld, i int) bool {
	return w.L.H[i].Up && !w.N[i].O.Leaving && !w.N[i].M.Quitting
}

// Steps tells what the coordinator may order of i, and what else may become of it.
func (o ofShards) Steps(s *xstepper, i int) {
	if s.Prompt(i) { // orders don't come faster than messages
		o.orders(s, i)
	}
	w := &s.From
	n, a := &w.N[i], i+1
	if n.O.Leaving && !n.M.Quitting {
		s.Step("has waited long enough for others to take its shard", a, 0, true, func(r *xrun) { r.Fire(i, handover.Quit) })
	}
	if w.Left.Wishes > 0 {
		if n.O.Leaving {
			s.Step("is to stay", a, 0, false, func(r *xrun) { r.W.Left.Wishes--; r.W.N[i].O.Leaving = false; r.Fire(i, handover.Stay) })
		} else {
			s.Step("is to leave", a, 0, false, func(r *xrun) { r.W.Left.Wishes--; r.W.N[i].O.Leaving = true })
		}
	}
	if w.Left.Members > 0 && n.M.Phase.Holds() {
		s.Step("loses its membership", a, 0, false, func(r *xrun) { r.W.Left.Members--; r.Fire(i, handover.Lost) })
	}
}

// orders: the coordinator sees to a shard that is free, and to one whose host leaves; else
// it may order anything that was sensible once.
func (o ofShards) orders(s *xstepper, i int) {
	w := &s.From
	n, a := &w.N[i], i+1
	if n.O.Order.Given {
		s.Step("obeys the coordinator", a, 0, true, func(r *xrun) { obey(r, i) })
		if w.Left.Links > 0 {
			s.Step("lost: an order", a, 0, false, func(r *xrun) { r.W.Left.Links--; r.W.N[i].O.Order = order{} })
		}
		return
	}
	free := w.L.Rec.Owner == 0
	if sure := free && able(w, i) && (n.M.Phase == handover.Away || n.M.Phase == handover.Offered); sure || w.Left.Orders > 0 {
		s.Step("is ordered to host", a, 0, sure, func(r *xrun) {
			if !sure {
				r.W.Left.Orders--
			}
			r.W.N[i].O.Order = order{Given: true}
		})
	}
	for j := range s.Nodes {
		if j == i || !w.L.Owns(i) {
			continue
		}
		sure := n.O.Leaving && n.M.Phase == handover.Active && able(w, j) && w.N[j].M.Phase == handover.Away
		if sure || w.Left.Orders > 0 {
			s.Step("is ordered to hand over", a, j+1, sure, func(r *xrun) {
				if !sure {
					r.W.Left.Orders--
				}
				r.W.N[i].O.Order = order{true, uint8(j + 1), r.W.L.Rec.Token}
			})
		}
	}
}

func obey(r *xrun, i int) {
	n := &r.W.N[i]
	o := n.O.Order
	n.O.Order = order{}
	switch {
	case o.Next == 0 && r.Plant == "an order to host is taken for the lease":
		h := &r.W.L.H[i]
		n.Term = r.W.High + 1
		h.Alive, h.Claim, n.M.Phase = true, n.Term, handover.Opening
		r.Begin(i, 0)
	case o.Next == 0:
		if !n.O.Leaving {
			r.Fire(i, handover.Host)
		}
	case n.M.Phase.HandsOver() && n.O.Next == o.Next:
	case n.Term == 0 || n.Term != o.Token:
	default:
		if n.M.Phase == handover.Active {
			n.O.Next = o.Next
		}
		r.Fire(i, handover.Move)
	}
}

// Goal: if any node takes shards one of them hosts, and nobody else is at it; if none
// does, the shard is free.
func (o ofShards) Goal(w *xworld) bool {
	hosts, any := 0, false
	for i := range w.N {
		if !w.L.H[i].Up {
			continue
		}
		any = any || able(w, i)
		switch w.N[i].M.Phase {
		case handover.Away:
		case handover.Active:
			if !w.Hosts(i) || !able(w, i) {
				return false
			}
			hosts++
		default:
			return false
		}
		if !w.Calm(i) {
			return false
		}
	}
	if !any {
		return hosts == 0 && w.L.Rec.Owner == 0
	}
	return hosts == 1
}
