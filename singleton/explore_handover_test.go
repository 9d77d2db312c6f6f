package singleton

import (
	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// This file is what the managers of TestExplore do with what they are told, as
// controller.go, handover.go, successor.go and leader.go have it.

func (r *xrun) hear(i int) {
	n := &r.w.N[i]
	res := r.w.L.Hear(i)
	n.Cancel = false
	switch n.M.phase {
	case Acquiring, Adopting:
		switch res {
		case explore.Done:
			n.Term = r.w.L.H[i].Claim
			r.fire(i, handover.Won)
		case explore.Refused:
			r.fire(i, handover.NotWon)
		default:
			r.fire(i, failed)
		}
	case Transferring:
		r.transferEnded(i, res)
	case Releasing:
		r.fire(i, handover.Released)
	default:
		r.fail(errRule)
	}
}

func (r *xrun) free(i int) {
	if r.w.N[i].M.phase == Offered {
		r.fire(i, handover.Taken)
		return
	}
	r.fire(i, free)
}

func (r *xrun) offerReady(i int) {
	n := &r.w.N[i]
	n.Making = false
	r.w.L.H[i].Offer = true
	switch n.M.phase {
	case Offering:
		r.fire(i, handover.OfferMade)
	case Offered:
		r.carryOut(i, handover.SendOffer)
	}
}

func (r *xrun) peerLost(i, j int) {
	n := &r.w.N[i]
	n.Lost &^= bit(j)
	n.Cands &^= bit(j)
	switch {
	case n.M.phase == Inviting && int(n.Ask) == j+1:
		r.noAnswer(i, false)
	case n.M.phase == Asking && int(n.To) == j+1:
		r.fire(i, handover.Declined)
	}
}

func (r *xrun) receive(i, from int, m xmail) {
	n := &r.w.N[i]
	if n.M.phase == Closed { // it has gone
		return
	}
	switch m.Kind {
	case mCandidate:
		n.Cands |= bit(from)
		r.outrank(i)
		if hosting := n.M.phase >= Starting && n.M.phase <= Backoff; m.X == 1 && r.leading && int(n.Leader) != i+1 && hosting {
			n.Leader = uint8(from + 1)
			r.settleIn(i, settleUnwanted)
		}
	case mGone:
		n.Cands &^= bit(from)
	case mInvite:
		switch {
		case n.M.closing():
			r.send(i, uint8(from+1), xmail{mDeclined, m.N, 0})
		case n.M.phase == Offered && int(n.From) == from+1:
			n.TakeN, n.Making = m.N, true
		case n.M.phase != Standby:
			r.send(i, uint8(from+1), xmail{mDeclined, m.N, 0})
		default:
			n.From, n.TakeN, n.State = uint8(from+1), m.N, 0
			r.fire(i, handover.Asked)
		}
	case mOffer, mDeclined:
		r.onOffer(i, from, m)
	case mHandedOver, mOff:
		if m.N != n.TakeN || int(n.From) != from+1 || n.M.phase != Offering && n.M.phase != Offered {
			return
		}
		if m.Kind == mOff {
			r.fire(i, handover.OfferOver)
			return
		}
		if r.plant == "what was handed over is not adopted by a write" {
			h := &r.w.L.H[i]
			h.Alive, h.Claim, n.Term = true, r.w.L.Rec.Token, r.w.L.Rec.Token
			n.M, _ = n.M.to(handover.Opening)
			r.spawn(i)
			return
		}
		n.State = m.X
		r.fire(i, handover.Taken)
	}
}

func (r *xrun) onLeader(i int) {
	n := &r.w.N[i]
	n.Heard, n.Leader = r.w.Leader, r.w.Leader
	p := n.M.phase
	hosting := p >= Starting && p <= Backoff
	switch {
	case int(n.Leader) == i+1:
		n.Settle, n.Said = 0, false
		r.fire(i, wanted)
	case n.Leader == 0 && (hosting || p >= Offering && p <= Adopting):
		n.Settle = 0
	case !hosting:
		n.Settle = 0
		r.fire(i, unwanted)
	default:
		r.settleIn(i, settleUnwanted)
	}
}

func (r *xrun) settled(i int) {
	n := &r.w.N[i]
	what := n.Settle
	n.Settle = 0
	switch {
	case what == settleOutranked:
		r.fire(i, outranked)
	case what == settleUnwanted, r.leading && int(n.Leader) != i+1:
		r.fire(i, unwanted)
	}
}

// The host's side.

func (r *xrun) rank(i int) int {
	if r.prefers {
		return i
	}
	return 0
}

func (r *xrun) outrank(i int) {
	n := &r.w.N[i]
	for j := range r.nodes {
		if n.M.phase == Active && r.prefers && n.Cands&bit(j) != 0 && r.rank(j) < r.rank(i) {
			r.settleIn(i, settleOutranked)
		}
	}
}

func (r *xrun) invite(i int) {
	n := &r.w.N[i]
	r.noInvitation(i)
	n.Inv = r.fresh(i)
	first := n.Leader
	if first == uint8(i+1) {
		first = 0
	}
	if !r.leading || n.M.closing() {
		for j := range r.nodes {
			if n.Cands&bit(j) != 0 && uint8(j+1) != first && (n.M.closing() || r.rank(j) < r.rank(i)) {
				n.Rest |= bit(j)
			}
		}
	}
	if first != 0 {
		n.Ask = first
		r.send(i, first, xmail{mInvite, n.Inv, 0})
		return
	}
	r.askNext(i)
}

func (r *xrun) askNext(i int) {
	n := &r.w.N[i]
	n.Ask = 0
	for j := range r.nodes {
		if n.Rest&bit(j) != 0 {
			n.Rest &^= bit(j)
			n.Ask = uint8(j + 1)
			r.send(i, n.Ask, xmail{mInvite, n.Inv, 0})
			return
		}
	}
	if n.Refused {
		r.fire(i, handover.Declined)
	} else {
		r.fire(i, unreachable)
	}
}

func (r *xrun) noAnswer(i int, refused bool) {
	n := &r.w.N[i]
	if !refused {
		r.send(i, n.Ask, xmail{mOff, n.Inv, 0})
		n.Cands &^= bit(int(n.Ask) - 1)
	}
	n.Refused = n.Refused || refused
	r.askNext(i)
}

func (r *xrun) callOff(i int) {
	n := &r.w.N[i]
	to := n.To
	if to == 0 {
		to = n.Ask
	}
	r.send(i, to, xmail{mOff, n.Inv, 0})
	r.noInvitation(i)
}

func (r *xrun) noInvitation(i int) {
	n := &r.w.N[i]
	n.Inv, n.Ask, n.Rest, n.Refused, n.To, n.ToSess, n.Aged, n.Again = 0, 0, 0, false, 0, 0, false, false
}

func (r *xrun) onOffer(i, from int, m xmail) {
	n := &r.w.N[i]
	if m.N != n.Inv {
		return
	}
	switch {
	case n.M.hold.Offer && int(n.To) == from+1 && m.Kind == mDeclined:
		r.fire(i, handover.Declined)
	case n.M.hold.Offer && int(n.To) == from+1 && n.M.hold.Phase.Waits():
		n.ToSess, n.Aged = m.X, false
	case n.M.phase == Asking && int(n.To) == from+1:
		n.ToSess, n.Aged = m.X, false
		r.fire(i, handover.Invited)
	case n.M.phase != Inviting || int(n.Ask) != from+1:
	case m.Kind == mDeclined:
		r.noAnswer(i, true)
	default:
		n.To, n.ToSess = n.Ask, m.X
		r.fire(i, handover.Invited)
	}
}

func (r *xrun) transferEnded(i int, res explore.Result) {
	n := &r.w.N[i]
	if res == explore.Unknown && r.plant == "an unknown transfer is taken for done" {
		res = explore.Done
	}
	if res == explore.Refused {
		r.callOff(i)
	} else {
		r.send(i, n.To, xmail{mHandedOver, n.Inv, n.Term})
	}
	r.noInvitation(i)
	switch {
	case res == explore.Done:
		n.Term = 0
		r.fire(i, handover.Transferred)
	case res == explore.Unknown && r.plant == "an unknown transfer is taken for refused, and the child started again":
		r.w.L.H[i].Alive = true
		n.M, _ = n.M.to(handover.Opening)
		n.M.hold.Offer = false
		r.spawn(i)
	default:
		r.fire(i, handover.NotTransferred)
	}
}
