package world

import (
	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// Run is one step being made.
type Run[M, O comparable] struct {
	*Model[M, O]
	W   World[M, O]
	err error
}

// Fail notes a broken rule.
func (r *Run[M, O]) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Alive reports whether node i's term is.
func (r *Run[M, O]) Alive(i int) bool {
	h, n := &r.W.L.H[i], &r.W.N[i]
	return n.Term != 0 && h.Alive && h.Claim == n.Term
}

// Fire feeds the machine of node i.
func (r *Run[M, O]) Fire(i int, e handover.Event) {
	n := &r.W.N[i]
	was := r.Hold(n.M).Phase
	var effects []handover.Effect
	next := r.Next
	if r.Instead != nil {
		next = r.Instead
	}
	n.M, effects = next(n.M, e)
	now := r.Hold(n.M).Phase
	r.Events[e]++
	r.Phases[now]++
	if now == handover.Away && was != handover.Away {
		r.Away(r, i)
	}
	for _, f := range effects {
		r.carryOut(i, f)
	}
	if now == handover.Away && was != handover.Away {
		r.forget(i)
	}
}

func (r *Run[M, O]) forget(i int) {
	n := &r.W.N[i]
	r.End(i)
	n.Gave, n.From, n.TakeN, n.State, n.Term, n.Due = 0, 0, 0, 0, 0, false
}

// End ends the invitation of node i.
func (r *Run[M, O]) End(i int) {
	n := &r.W.N[i]
	n.Inv, n.To, n.ToSess, n.Aged, n.Again = 0, 0, 0, false, false
}

// Ask has node i ask one for an offer.
func (r *Run[M, O]) Ask(i int, number, to uint8) {
	n := &r.W.N[i]
	r.End(i)
	n.Inv, n.To = number, to
	r.Send(i, to, Mail{Invite, number, 0})
}

// CallOff tells the node that was asked that the hand-over is off.
func (r *Run[M, O]) CallOff(i int) {
	if n := &r.W.N[i]; n.Inv != 0 {
		r.Send(i, n.To, Mail{Off, n.Inv, 0})
	}
	r.End(i)
}

func (r *Run[M, O]) carryOut(i int, f handover.Effect) {
	n, l := &r.W.N[i], &r.W.L
	r.Effects[f]++
	switch f {
	case handover.DoAcquire, handover.DoAdopt:
		if n.Run != 0 || n.Term != 0 {
			r.Fail(ErrRule)
		}
		op := explore.Acquire
		if f == handover.DoAdopt {
			op = explore.Adopt
		}
		l.Begin(i, op, 0, 0)
	case handover.AskAgain:
		n.Aged, n.Again = false, true
		r.Send(i, n.To, Mail{Invite, n.Inv, 0})
	case handover.DropInvite:
		r.CallOff(i)
	case handover.DoDrain:
		n.Gate, n.Told, n.Due = max(n.Gate, GateDrains), true, true
	case handover.DoLose:
		n.Gate, n.Told, n.Due = GateLost, true, false
	case handover.ForceStop:
		n.Gate, n.Due = GateLost, false
	case handover.StartYield:
		n.Yield = true
	case handover.DoYield:
		if n.Gate != GateLost {
			r.Fail(ErrI4)
		}
		n.Left = true
		l.Begin(i, explore.Release, 0, 0)
		l.H[i].Quiet = true
	case handover.DoTransfer:
		if n.Run != 0 {
			r.Fail(ErrI4)
		}
		if n.Aged {
			r.Fire(i, handover.Stale)
			return
		}
		if n.Term <= r.W.High { // else nothing ran under it: what it was given goes on
			n.Gave = n.Term
		}
		n.Term = 0
		l.Begin(i, explore.Transfer, n.To, n.ToSess)
	case handover.DoRelease:
		if n.Run != 0 {
			r.Fail(ErrI4)
		}
		n.Term, n.Gave = 0, 0
		l.Begin(i, explore.Release, 0, 0)
	case handover.DoOffer:
		n.Making = true
	case handover.SendOffer:
		r.Send(i, n.From, Mail{Offer, n.TakeN, l.H[i].Session})
	case handover.SendDecline:
		r.Send(i, n.From, Mail{Declined, n.TakeN, 0})
	case handover.Report: // who orders does so at will
	default:
		r.Carry(r, i, f)
	}
}

// Given is the state that node i begins with: that which was handed over, if the lease was
// adopted with it. It is taken, and 0 if there is none.
func (r *Run[M, O]) Given(i int) uint8 {
	n, h := &r.W.N[i], &r.W.L.H[i]
	state := n.State
	if h.Adopted != state && r.Plant != "the states of a lease that was not adopted are taken" {
		state = 0
	}
	n.From, n.TakeN, n.State, h.Adopted = 0, 0, 0, 0
	return state
}

// Begin has something run on node i, which was given a state.
func (r *Run[M, O]) Begin(i int, state uint8) {
	n := &r.W.N[i]
	switch {
	case n.Run != 0:
		r.Fail(ErrRule)
	case n.Term < r.W.High:
		r.Fail(ErrI2)
	case state != 0 && state != r.W.High:
		r.Fail(ErrOld)
	}
	n.Run, n.Gate, n.Told = n.Term, GateOpen, false
	r.W.High = max(r.W.High, n.Term)
	r.Fire(i, handover.Opened)
}

// Ended: what ran on node i has ended.
func (r *Run[M, O]) Ended(i int, e handover.Event) {
	n := &r.W.N[i]
	n.Run, n.Gate, n.Told, n.Due, n.Yield, n.Left = 0, GateOpen, false, false, false, false
	r.Fire(i, e)
}

// hold takes the lease of node i for held, as one that is mistaken would.
func (r *Run[M, O]) hold(i int, token uint8) {
	n, h := &r.W.N[i], &r.W.L.H[i]
	h.Alive, h.Claim, n.Term = true, token, token
	n.M = r.At(n.M, handover.Opening)
}

// Send has j, counted from 1, told; messages to a node that is gone are lost.
func (r *Run[M, O]) Send(i int, j uint8, m Mail) {
	if j == 0 || !r.W.L.H[j-1].Up {
		return
	}
	if !r.W.Q[i][j-1].Push(m) {
		r.Fail(errFull)
	}
}

func (r *Run[M, O]) hear(i int) {
	n := &r.W.N[i]
	res := r.W.L.Hear(i)
	switch r.Hold(n.M).Phase {
	case handover.Acquiring, handover.Adopting:
		switch res {
		case explore.Done:
			n.Term = r.W.L.H[i].Claim
			r.Fire(i, handover.Won)
		case explore.Refused:
			r.Fire(i, handover.NotWon)
		default:
			r.Fire(i, r.Unknown())
		}
	case handover.Transferring:
		if res == explore.Unknown && r.Plant == "an unknown transfer is taken for done" {
			res = explore.Done
		}
		if res == explore.Refused {
			r.CallOff(i)
		} else {
			r.Send(i, n.To, Mail{HandedOver, n.Inv, n.Gave})
			r.End(i)
		}
		switch {
		case res == explore.Done:
			r.Fire(i, handover.Transferred)
		case res == explore.Unknown && r.Plant == "an unknown transfer is taken for refused, and what ran begun again":
			r.hold(i, r.W.L.H[i].Claim)
			r.Carry(r, i, handover.DoOpen)
		default:
			r.Fire(i, handover.NotTransferred)
		}
	case handover.Releasing:
		r.Fire(i, handover.Released)
	default:
		r.Fail(ErrRule)
	}
}

func (r *Run[M, O]) offerReady(i int) {
	n := &r.W.N[i]
	n.Making = false
	r.W.L.H[i].Offer = true
	switch r.Hold(n.M).Phase {
	case handover.Offering:
		r.Fire(i, handover.OfferMade)
	case handover.Offered:
		r.carryOut(i, handover.SendOffer)
	}
}

func (r *Run[M, O]) receive(i, from int, m Mail) {
	n, a := &r.W.N[i], uint8(from+1)
	if r.Closed(n.M) {
		return
	}
	h := r.Hold(n.M)
	switch m.Kind {
	case Invite:
		switch {
		case h.Quitting, r.Objects(&r.W, i):
			r.Send(i, a, Mail{Declined, m.N, 0})
		case h.Phase == handover.Offered && n.From == a:
			n.TakeN, n.Making = m.N, true
		case h.Phase != handover.Away:
			r.Send(i, a, Mail{Declined, m.N, 0})
		default:
			n.From, n.TakeN, n.State = a, m.N, 0
			r.Fire(i, handover.Asked)
		}
	case Offer, Declined:
		switch {
		case n.Inv == 0 || m.N != n.Inv || n.To != a:
		case m.Kind == Declined && h.Phase.Asks() && !n.Again:
			r.Refused(r, i)
		case m.Kind == Declined:
			r.Fire(i, handover.Declined)
		case h.Phase.Asks():
			n.ToSess = m.X
			r.Fire(i, handover.Invited)
		case h.Offer && h.Phase.Waits():
			n.ToSess = m.X
		}
	case HandedOver, Off:
		switch {
		case m.N != n.TakeN || n.From != a || !h.Phase.Takes():
		case m.Kind == Off:
			r.Fire(i, handover.OfferOver)
		case r.Plant == "what was handed over is not adopted by a write":
			r.hold(i, r.W.L.Rec.Token)
			r.Carry(r, i, handover.DoOpen)
		default:
			n.State = m.X
			r.Fire(i, handover.Taken)
		}
	default:
		r.Receive(r, i, from, m)
	}
}

// Bit is node i in a set.
func Bit(i int) uint8 { return 1 << i }

// Fresh is a number that no invitation of i bears.
func (r *Run[M, O]) Fresh(i int) (n uint8) {
	for _, p := range r.W.numbers(i) {
		n = max(n, *p)
	}
	return n + 1
}

// numbers are all places where an invitation of i is spoken of.
func (w *World[M, O]) numbers(i int) []*uint8 {
	all := append(make([]*uint8, 0, 24), &w.N[i].Inv)
	for j := range w.N {
		if int(w.N[j].From) == i+1 {
			all = append(all, &w.N[j].TakeN)
		}
		for k := range w.Q[i][j].N {
			if m := &w.Q[i][j].M[k]; m.Kind == Invite || m.Kind == HandedOver || m.Kind == Off {
				all = append(all, &m.N)
			}
		}
		for k := range w.Q[j][i].N {
			if m := &w.Q[j][i].M[k]; m.Kind == Offer || m.Kind == Declined {
				all = append(all, &m.N)
			}
		}
	}
	return all
}

// refs are the tokens outside the leases.
func (x *Model[M, O]) refs(w *World[M, O]) []*uint8 {
	all := append(make([]*uint8, 0, 32), &w.High)
	for i := range w.N {
		n := &w.N[i]
		all = append(append(all, &n.Term, &n.Run, &n.Gave, &n.State), x.Refs(&n.O)...)
		for j := range w.N {
			for k := range w.Q[i][j].N {
				if m := &w.Q[i][j].M[k]; m.Kind == HandedOver {
					all = append(all, &m.X)
				}
			}
		}
	}
	return all
}

// canon makes states alike that differ in names only.
func (x *Model[M, O]) canon(w *World[M, O]) {
	w.L.Compress(x.refs(w)...)
	for i := range w.N {
		var is [64]uint8
		n := uint8(0)
		for _, p := range w.numbers(i) {
			if *p != 0 {
				if is[*p] == 0 {
					n++
					is[*p] = n
				}
				*p = is[*p]
			}
		}
	}
}
