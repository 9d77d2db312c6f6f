package sharding

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// This file is the world of TestExplore: one shard on some nodes, each with the real
// machine, and what stands around it reduced to plain data. It carries effects out
// as control.go, handoff.go and hosting.go do.

// The messages between nodes.
const (
	mInvite uint8 = iota + 1
	mOffer
	mDeclined
	mHandedOver
	mOff
)

var mailNames = [...]string{"", "Invite", "Offer", "Offer, declined", "HandedOver", "HandedOver, off"}

// xmail is one message: N is the hand-over's number, X the session of an Offer; of
// HandedOver the token of the entities whose states came before it.
type xmail struct{ Kind, N, X uint8 }

// xorder is an order of the coordinator's under way: to host, or to hand over to
// Next what is held by Token.
type xorder struct {
	Given       bool
	Next, Token uint8
}

const (
	gateOpen uint8 = iota
	gateDrains
	gateLost
)

// xnode is one node's part. Nodes count from 1 in it; 0 is nobody.
type xnode struct {
	M handover.Machine

	Term  uint8 // token of the term
	Run   uint8 // token that entities were started under; 0: there are none
	Gate  uint8
	Told  bool // they were told to stop
	Due   bool // they have a deadline
	Yield bool // a TTL is waited for
	Left  bool // the lease was yielded

	Inv    uint8 // number of the invitation
	To     uint8 // who is to host next
	ToSess uint8
	Aged   bool  // its offer is too old
	Again  bool  // a new one was asked for with no entities
	Gave   uint8 // the token that is being transferred

	Making bool
	From   uint8
	TakeN  uint8
	State  uint8 // the token of the entities whose states were handed over

	Leaving bool
	Order   xorder
	Lost    uint8 // nodes whose broken links are still to be told of (bits)
}

// xbudget is what may still happen that nobody can count on.
type xbudget struct {
	Crashes, Losses, Unknowns, Links, Wishes, Orders, Members uint8
}

// xworld is a state.
type xworld struct {
	L    explore.Leases
	N    [explore.Nodes]xnode
	Q    [explore.Nodes][explore.Nodes]explore.Queue[xmail]
	High uint8 // the highest token entities were started under
	Left xbudget
}

// xmodel is what is the same in all states.
type xmodel struct {
	nodes  int
	yields bool
	bounds xbudget
	flaws  explore.Flaws
	plant  string
	next   func(handover.Machine, handover.Event) (handover.Machine, []handover.Effect)

	phases  [handover.Releasing + 1]int // how often each was come to
	events  [handover.OfferOver + 1]int
	effects [handover.Report + 1]int
}

// xrun is one step being made.
type xrun struct {
	*xmodel
	w   xworld
	err error
}

var (
	errI1   = errors.New("I1: two hosts' entities may pass, or an earlier one's after a later one's")
	errI2   = errors.New("I2: a shard is opened under a token that is not above all before it")
	errOld  = errors.New("entities get the states of earlier ones than the last")
	errI4   = errors.New("I4: the lease is given up under entities")
	errRule = errors.New("a rule of the machine is broken")
	errFull = errors.New("the model is too small: more messages on a link than it can hold")
)

func (r *xrun) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *xrun) alive(i int) bool {
	h, n := &r.w.L.H[i], &r.w.N[i]
	return n.Term != 0 && h.Alive && h.Claim == n.Term
}

func (r *xrun) fire(i int, e handover.Event) {
	n := &r.w.N[i]
	was := n.M.Phase
	var effects []handover.Effect
	n.M, effects = r.next(n.M, e)
	r.events[e]++
	r.phases[n.M.Phase]++
	for _, f := range effects {
		r.carryOut(i, f)
	}
	if n.M.Phase == handover.Away && was != handover.Away {
		r.forget(i)
	}
}

func (r *xrun) forget(i int) {
	n := &r.w.N[i]
	n.Inv, n.To, n.ToSess, n.Aged, n.Again, n.Gave, n.From, n.TakeN, n.State, n.Term, n.Due = 0, 0, 0, false, false, 0, 0, 0, 0, 0, false
}

func (r *xrun) carryOut(i int, f handover.Effect) {
	n, l := &r.w.N[i], &r.w.L
	r.effects[f]++
	switch f {
	case handover.DoAcquire, handover.DoAdopt:
		if n.Run != 0 || n.Term != 0 {
			r.fail(errRule)
		}
		op := explore.Acquire
		if f == handover.DoAdopt {
			op = explore.Adopt
		}
		l.Begin(i, op, 0, 0)
	case handover.DoOpen:
		r.open(i)
	case handover.DoInvite:
		n.Inv = r.fresh(i)
		r.send(i, n.To, xmail{mInvite, n.Inv, 0})
	case handover.AskAgain:
		n.Again = true
		r.send(i, n.To, xmail{mInvite, n.Inv, 0})
	case handover.DropInvite:
		if n.Inv != 0 {
			r.send(i, n.To, xmail{mOff, n.Inv, 0})
		}
		n.Inv, n.ToSess, n.Aged, n.Again = 0, 0, false, false
	case handover.DoDrain:
		n.Gate, n.Told, n.Due = max(n.Gate, gateDrains), true, true
	case handover.DoLose:
		n.Gate, n.Told, n.Due = gateLost, true, false
	case handover.ForceStop:
		n.Gate, n.Due = gateLost, false
	case handover.StartYield:
		n.Yield = true
	case handover.DoYield:
		if n.Gate != gateLost {
			r.fail(errI4)
		}
		n.Left = true
		l.Begin(i, explore.Release, 0, 0)
		l.H[i].Quiet = true
	case handover.DoTransfer:
		if n.Run != 0 {
			r.fail(errI4)
		}
		if n.Aged && !n.Again {
			r.fire(i, handover.Stale)
			return
		}
		n.Gave, n.Term = n.Term, 0
		l.Begin(i, explore.Transfer, n.To, n.ToSess)
	case handover.DoRelease:
		if n.Run != 0 {
			r.fail(errI4)
		}
		n.Term = 0
		l.Begin(i, explore.Release, 0, 0)
	case handover.DoOffer:
		n.Making = true
	case handover.SendOffer:
		r.send(i, n.From, xmail{mOffer, n.TakeN, l.H[i].Session})
	case handover.SendDecline:
		r.send(i, n.From, xmail{mDeclined, n.TakeN, 0})
	case handover.Report: // the coordinator orders at will
	}
}

func (r *xrun) open(i int) {
	n, h := &r.w.N[i], &r.w.L.H[i]
	state := n.State
	if h.Adopted != state && r.plant != "the states of a lease that was not adopted are taken" {
		state = 0
	}
	n.From, n.TakeN, n.State, h.Adopted = 0, 0, 0, 0
	if n.Run != 0 {
		r.fail(errRule)
	}
	n.Run = n.Term
	if !r.alive(i) {
		r.fire(i, handover.Lost)
		return
	}
	if n.Term < r.w.High {
		r.fail(errI2)
	}
	if state != 0 && state != r.w.High {
		r.fail(errOld)
	}
	n.Gate, n.Told = gateOpen, false
	r.fire(i, handover.Opened)
	r.w.High = max(r.w.High, n.Term)
}

// send has j, counted from 1, told; messages to who is not there are lost.
func (r *xrun) send(i int, j uint8, m xmail) {
	if j == 0 || !r.w.L.H[j-1].Up {
		return
	}
	if !r.w.Q[i][j-1].Push(m) {
		r.fail(errFull)
	}
}

func bit(i int) uint8 { return 1 << i }

// fresh is a number that no invitation of i bears.
func (r *xrun) fresh(i int) (n uint8) {
	for _, p := range r.w.numbers(i) {
		n = max(n, *p)
	}
	return n + 1
}

// numbers are all places where an invitation of i is spoken of.
func (w *xworld) numbers(i int) []*uint8 {
	all := append(make([]*uint8, 0, 24), &w.N[i].Inv)
	for j := range w.N {
		if int(w.N[j].From) == i+1 {
			all = append(all, &w.N[j].TakeN)
		}
		for k := range w.Q[i][j].N {
			if m := &w.Q[i][j].M[k]; m.Kind == mInvite || m.Kind == mHandedOver || m.Kind == mOff {
				all = append(all, &m.N)
			}
		}
		for k := range w.Q[j][i].N {
			if m := &w.Q[j][i].M[k]; m.Kind == mOffer || m.Kind == mDeclined {
				all = append(all, &m.N)
			}
		}
	}
	return all
}

// refs are the tokens outside the leases.
func (w *xworld) refs() []*uint8 {
	all := append(make([]*uint8, 0, 24), &w.High)
	for i := range w.N {
		all = append(all, &w.N[i].Term, &w.N[i].Run, &w.N[i].Gave, &w.N[i].State, &w.N[i].Order.Token)
		for j := range w.N {
			for k := range w.Q[i][j].N {
				if m := &w.Q[i][j].M[k]; m.Kind == mHandedOver {
					all = append(all, &m.X)
				}
			}
		}
	}
	return all
}

// canon makes states alike that differ in names only.
func (w *xworld) canon() {
	w.L.Compress(w.refs()...)
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

// able reports whether a node takes shards.
func (w *xworld) able(i int) bool {
	return w.L.H[i].Up && !w.N[i].Leaving && !w.N[i].M.Quitting
}

// check is what must hold in every state.
func (x *xmodel) check(w xworld) error {
	passing := 0
	for i := range w.N {
		n, h := &w.N[i], &w.L.H[i]
		if n.Run == 0 {
			continue
		}
		if (h.Op == explore.Release || h.Op == explore.Transfer) && !n.Left {
			return errI4
		}
		alive := h.Alive && h.Claim == n.Run
		if x.plant == "the gate does not look at the lease" {
			alive = true
		}
		if alive && n.Gate != gateLost {
			passing++
			if n.Run < w.High {
				return errI1
			}
		}
	}
	if passing > 1 {
		return errI1
	}
	return nil
}

// goal: if any node takes shards one of them hosts, and nobody else is at it; if none
// does, the shard is free.
func (x *xmodel) goal(w xworld) bool {
	hosts, any := 0, false
	for i := range x.nodes {
		n, h := &w.N[i], &w.L.H[i]
		if !h.Up {
			continue
		}
		any = any || w.able(i)
		switch n.M.Phase {
		case handover.Away:
		case handover.Active:
			if n.Run == 0 || n.Gate != gateOpen || !h.Alive || h.Claim != n.Run || !w.L.Owns(i) || w.L.Rec.Token != n.Run || !w.able(i) {
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
	if !any {
		return hosts == 0 && w.L.Rec.Owner == 0
	}
	return hosts == 1
}

// show describes a state in words.
func (x *xmodel) show(w xworld) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  record %+v, high %d\n", w.L.Rec, w.High)
	for i := range x.nodes {
		n := w.N[i]
		fmt.Fprintf(&b, "  %c %v %+v lease %+v\n", 'a'+i, n.M.Phase, n, w.L.H[i])
		for j := range x.nodes {
			for _, m := range w.Q[i][j].M[:w.Q[i][j].N] {
				fmt.Fprintf(&b, "    under way to %c: %s %d\n", 'a'+j, mailNames[m.Kind], m.N)
			}
		}
	}
	return b.String()
}
