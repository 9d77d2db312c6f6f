package singleton

import (
	"errors"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

// This file is the world of TestExplore: some managers, each the real machine,
// with what stands around it reduced to plain data. It carries effects out as
// controller.go, handover.go and successor.go do.

// The messages between managers.
const (
	mCandidate uint8 = iota + 1
	mGone
	mInvite
	mOffer
	mDeclined
	mHandedOver
	mOff
)

var mailNames = [...]string{"", "Candidate", "Candidate, gone", "Invite", "Offer", "Offer, declined", "HandedOver", "HandedOver, off"}

// xmail is one message. N is the hand-over's number, X the session of an Offer; of
// a Candidate whether it leads; of HandedOver the token of the child whose state
// comes with it.
type xmail struct{ Kind, N, X uint8 }

// Gates.
const (
	gateOpen uint8 = iota
	gateDrains
	gateLost
)

// What is done if nothing changes for a while.
const (
	settleUnwanted uint8 = iota + 1
	settleOutranked
	settleAskAgain
)

// What the Props of the next child do.
const (
	badProps uint8 = iota + 1 // panic
	hungProps
)

// xnode is one manager. Nodes count from 1 in it; 0 is nobody.
type xnode struct {
	M machine

	Term  uint8 // token of the controller's term
	Child uint8 // token that the child was made under; 0: there is none
	Gate  uint8
	Told  bool  // the child was told to stop
	Due   bool  // it has a deadline
	Yield bool  // a TTL is waited for
	Left  bool  // the lease was yielded
	Unfit uint8 // its next child can't be made: badProps, hungProps
	Makes bool  // a child is being made
	Hangs bool  // by what does not return
	Back  bool  // a backoff is waited for

	Wait   uint8 // 1: for the name to be free; 2: for a pause
	Cancel bool  // the acquisition was cancelled

	Inv     uint8 // number of the invitation
	Ask     uint8 // who is being asked
	Rest    uint8 // who is asked next (bits)
	Refused bool
	To      uint8 // who made the offer
	ToSess  uint8
	Aged    bool // the offer it made is too old
	Again   bool // a new one was asked for with no child

	Making bool // an offer is being made
	From   uint8
	TakeN  uint8
	State  uint8 // the token of the child whose state was handed over

	Cands  uint8 // bits
	Said   bool  // introduced itself to the present host
	Heard  uint8 // whom its source of leadership named last
	Leader uint8
	Settle uint8
	Lost   uint8 // nodes whose broken links are still to be told of (bits)
}

// xbudget is what may still happen that nobody can count on.
type xbudget struct {
	Crashes, Losses, Unknowns, Links, Wishes, Ends uint8
}

// xworld is a state.
type xworld struct {
	L      explore.Leases
	N      [explore.Nodes]xnode
	Q      [explore.Nodes][explore.Nodes]explore.Queue[xmail]
	High   uint8 // the highest token a child was made under
	Leader uint8
	Left   xbudget
}

// xmodel is what is the same in all states.
type xmodel struct {
	nodes   int
	leading bool // a source of leadership decides who hosts
	prefers bool // the earlier node is the better
	slow    bool // Props take their time
	setting machine
	bounds  xbudget
	flaws   explore.Flaws
	plant   string
	next    func(machine, event) (machine, []effect)

	phases  [Asking + 1]int // how often each was come to
	events  [unreachable + 1]int
	effects [finish + 1]int
}

// xrun is one step being made.
type xrun struct {
	*xmodel
	w   xworld
	err error
}

var (
	errI1   = errors.New("I1: two children may pass, or an earlier one after a later one")
	errI2   = errors.New("I2: a child begins under a token that is not above all before it")
	errOld  = errors.New("a child gets the state of an earlier one than the last")
	errI4   = errors.New("I4: the lease is given up under a child")
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

func (r *xrun) fire(i int, e event) {
	n := &r.w.N[i]
	was := n.M.phase
	var effects []effect
	n.M, effects = r.next(n.M, e)
	r.events[e]++
	r.phases[n.M.phase]++
	if n.M.phase == Standby && was != Standby {
		n.Said = false
	}
	for _, f := range effects {
		r.carryOut(i, f)
	}
	if n.M.phase == Standby && was != Standby {
		n.From, n.TakeN, n.State = 0, 0, 0
	}
}

func (r *xrun) carryOut(i int, f effect) {
	n, l := &r.w.N[i], &r.w.L
	r.effects[f]++
	switch f {
	case handover.DoAcquire, handover.DoAdopt:
		if n.Child != 0 || n.Term != 0 {
			r.fail(errRule)
		}
		op := explore.Acquire
		if f == handover.DoAdopt {
			op = explore.Adopt
		}
		l.Begin(i, op, 0, 0)
	case cancelAcquire:
		n.Cancel = l.H[i].Op != explore.NoOp
	case waitFree:
		n.Wait = 1
	case retryLater:
		n.Wait = 2
	case stopWaiting:
		n.Wait = 0
	case handover.DoOpen:
		r.spawn(i)
	case hurrySpawn:
	case dropSpawn:
		if !n.Makes {
			n.M.stuck = false
		}
		n.Hangs, n.Makes = n.Makes, false
		r.fire(i, handover.Ended)
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
	case startBackoff:
		n.Back = true
	case cancelBackoff:
		n.Back = false
	case handover.DoInvite:
		r.invite(i)
	case handover.AskAgain:
		n.Again = true
		r.send(i, n.To, xmail{mInvite, n.Inv, 0})
	case handover.DropInvite:
		r.callOff(i)
	case askLater:
		r.settleIn(i, settleAskAgain)
	case handover.DoTransfer:
		if n.Child != 0 {
			r.fail(errI4)
		}
		if n.Aged && !n.Again {
			r.fire(i, handover.Stale)
			return
		}
		l.Begin(i, explore.Transfer, n.To, n.ToSess)
	case handover.DoRelease:
		if n.Child != 0 {
			r.fail(errI4)
		}
		n.Term = 0
		l.Begin(i, explore.Release, 0, 0)
	case handover.DoOffer:
		n.Making = true
	case handover.SendOffer:
		r.send(i, n.From, xmail{mOffer, n.TakeN, l.H[i].Session})
	case handover.Report: // this node orders itself
	case handover.SendDecline:
		r.send(i, n.From, xmail{mDeclined, n.TakeN, 0})
	case finish:
		if n.Child != 0 || n.Term != 0 {
			r.fail(errRule)
		}
		if !l.Owns(i) {
			r.send(i, l.Rec.Owner, xmail{mGone, 0, 0})
		}
		*n = xnode{M: n.M}
	}
}

func (r *xrun) spawn(i int) {
	n := &r.w.N[i]
	switch {
	case !r.alive(i):
		r.fire(i, handover.Lost)
		return
	case n.Child != 0, n.Makes, n.Hangs:
		r.fail(errRule)
	}
	adopted := r.w.L.H[i].Adopted == n.State || r.plant == "the state of a lease that was not adopted is taken"
	if n.State != 0 && adopted && n.State != r.w.High {
		r.fail(errOld)
	}
	n.From, n.TakeN, n.State, r.w.L.H[i].Adopted = 0, 0, 0, 0
	n.Makes = true
	if !r.slow && n.Unfit != hungProps {
		r.made(i)
	}
}

// made: the Props of a child have returned.
func (r *xrun) made(i int) {
	n := &r.w.N[i]
	bad := n.Unfit == badProps
	n.Unfit = 0
	if !r.alive(i) {
		r.fire(i, handover.Lost)
		r.returned(i)
		return
	}
	n.Makes = false
	switch {
	case bad:
		r.fire(i, spawnFailed)
		return
	case n.Child != 0:
		r.fail(errRule)
	case n.Term < r.w.High:
		r.fail(errI2)
	}
	n.Child, n.Gate, n.Told = n.Term, gateOpen, false
	r.w.High = max(r.w.High, n.Term)
	r.fire(i, handover.Opened)
	r.outrank(i)
}

// returned: what was to make a child that was given up has.
func (r *xrun) returned(i int) {
	r.w.N[i].Hangs, r.w.N[i].Said = false, false
	r.fire(i, unstuck)
}

func (r *xrun) ended(i int, e event) {
	n := &r.w.N[i]
	n.Child, n.Gate, n.Told, n.Due, n.Yield, n.Left = 0, gateOpen, false, false, false, false
	r.fire(i, e)
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

func (r *xrun) settleIn(i int, what uint8) {
	if n := &r.w.N[i]; n.Settle == 0 {
		n.Settle = what
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
	all := append(make([]*uint8, 0, 20), &w.N[i].Inv)
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
		all = append(all, &w.N[i].Term, &w.N[i].Child, &w.N[i].State)
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
