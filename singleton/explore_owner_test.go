package singleton

import (
	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
)

// This file is what singletons have around a hand-over in TestExplore: candidates, sources
// of leadership, preferences, children that are made, fail and are made anew. It carries
// effects out as controller.go, handover.go, making.go and leader.go do.

// The messages of singletons.
const (
	mCandidate = world.OwnMail + iota
	mGone
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

// xnode is what a manager has besides.
type xnode struct {
	Unfit uint8 // its next child can't be made: badProps, hungProps
	Makes bool  // a child is being made
	Given uint8 // the state that it is to begin with
	Hangs bool  // a child was given up, and what makes it does not return
	Back  bool  // a backoff is waited for
	Tired bool  // its child failed here, and its pause is not over

	Wait   uint8 // 1: for the name to be free; 2: for a pause
	Cancel bool  // the acquisition was cancelled

	Rest    uint8 // who is asked next (bits)
	Refused bool

	Cands  uint8 // bits
	Said   bool  // introduced itself to the present host
	Heard  uint8 // whom its source of leadership named last
	Leader uint8
	Settle uint8
}

type (
	xmodel   = world.Model[machine, xnode]
	xworld   = world.World[machine, xnode]
	xrun     = world.Run[machine, xnode]
	xstepper = world.Stepper[machine, xnode]
	xbudget  = world.Budget
	xplanted = world.Planted[machine, xnode]
)

// ofSingletons is the world.Owner of singletons.
type ofSingletons struct {
	leading bool // a source of leadership decides who hosts
	prefers bool // the earlier node is the better
	slow    bool // Props take their time
	yields  bool
}

func (o ofSingletons) String() (s string) {
	for _, part := range []struct {
		what string
		is   bool
	}{{"a leader", o.leading}, {"a preference", o.prefers}, {"slow Props", o.slow}, {"yields", o.yields}} {
		if part.is && s != "" {
			s += ", "
		}
		if part.is {
			s += part.what
		}
	}
	return s
}

func (o ofSingletons) Hold(m machine) handover.Machine { return m.hold }

func (o ofSingletons) At(m machine, p handover.Phase) machine {
	m.hold.Phase, m.hold.Offer, m.phase = p, false, phases[p]
	return m
}

func (o ofSingletons) Next(m machine, e event) (machine, []effect) { return m.next(e) }
func (o ofSingletons) Unknown() event                              { return failed }
func (o ofSingletons) Objects(*xworld, int) bool                   { return false }
func (o ofSingletons) Closed(m machine) bool                       { return m.phase == Closed }
func (o ofSingletons) Away(r *xrun, i int)                         { r.W.N[i].O.Said, r.W.N[i].O.Given = false, 0 }
func (o ofSingletons) Refs(n *xnode) []*uint8                      { return []*uint8{&n.Given} }
func (o ofSingletons) Silent(r *xrun, i int)                       { o.noAnswer(r, i, false) }
func (o ofSingletons) Refused(r *xrun, i int)                      { o.noAnswer(r, i, true) }
func (o ofSingletons) PeerLost(r *xrun, i, j int)                  { r.W.N[i].O.Cands &^= world.Bit(j) }

func (o ofSingletons) MailName(kind uint8) string {
	return map[uint8]string{mCandidate: "Candidate", mGone: "Candidate, gone"}[kind]
}

func (o ofSingletons) Links(w *xworld, i, j int) bool {
	return w.N[i].O.Cands&world.Bit(j)|w.N[j].O.Cands&world.Bit(i) != 0
}

func (o ofSingletons) Start(r *xrun) {
	for i := range r.Nodes {
		r.W.N[i].M.hold.Yields = o.yields
	}
	if !o.leading {
		for i := range r.Nodes {
			r.Fire(i, wanted)
		}
	}
}

// Recorded: who hosts is told, if it is another, and wants to hear of candidates.
func (o ofSingletons) Recorded(r *xrun) {
	for i := range r.W.N {
		r.W.N[i].O.Said = false
	}
}

func (o ofSingletons) Carry(r *xrun, i int, f effect) {
	n := &r.W.N[i]
	switch f {
	case cancelAcquire:
		n.O.Cancel = r.W.L.H[i].Op != explore.NoOp
	case waitFree:
		n.O.Wait = 1
	case retryLater:
		n.O.Wait = 2
	case stopWaiting:
		n.O.Wait = 0
	case handover.DoOpen:
		o.spawn(r, i)
	case hurrySpawn:
	case dropSpawn:
		if !n.O.Makes {
			n.M.stuck = false
		}
		n.O.Hangs, n.O.Makes, n.O.Given = n.O.Makes, false, 0
		r.Fire(i, handover.Ended)
	case startBackoff:
		n.O.Back = true
	case cancelBackoff:
		n.O.Back = false
	case startRest:
		n.O.Tired = true
	case handover.DoInvite:
		n.Gave = n.O.Given // goes on if nothing comes to run
		o.invite(r, i)
	case askLater:
		settleIn(r, i, settleAskAgain)
	case finish:
		if n.Run != 0 || n.Term != 0 {
			r.Fail(world.ErrRule)
		}
		if l := &r.W.L; !l.Owns(i) {
			r.Send(i, l.Rec.Owner, world.Mail{Kind: mGone})
		}
		*n = world.Node[machine, xnode]{M: n.M}
	}
}

func (o ofSingletons) spawn(r *xrun, i int) {
	n := &r.W.N[i]
	switch {
	case !r.Alive(i):
		r.Fire(i, handover.Lost)
		return
	case n.Run != 0, n.O.Makes, n.O.Hangs:
		r.Fail(world.ErrRule)
	}
	if state := r.Given(i); state != 0 {
		n.O.Given = state
	}
	n.O.Makes = true
	if !o.slow && n.O.Unfit != hungProps {
		o.made(r, i)
	}
}

// made: the Props of a child have returned.
func (o ofSingletons) made(r *xrun, i int) {
	n := &r.W.N[i]
	bad := n.O.Unfit == badProps
	n.O.Unfit = 0
	if !r.Alive(i) {
		r.Fire(i, handover.Lost)
		returned(r, i)
		return
	}
	n.O.Makes = false
	if bad {
		r.Fire(i, spawnFailed)
		return
	}
	state := n.O.Given
	n.O.Given = 0
	r.Begin(i, state)
	o.checkPreferred(r, i)
}

// returned: what was to make a child that was given up has.
func returned(r *xrun, i int) {
	r.W.N[i].O.Hangs, r.W.N[i].O.Said = false, false
	r.Fire(i, unstuck)
}

func settleIn(r *xrun, i int, what uint8) {
	if n := &r.W.N[i]; n.O.Settle == 0 {
		n.O.Settle = what
	}
}

func hosts(p Phase) bool { return p >= Starting && p <= Backoff }

func (o ofSingletons) Receive(r *xrun, i, from int, m world.Mail) {
	n := &r.W.N[i]
	switch m.Kind {
	case mCandidate:
		n.O.Cands |= world.Bit(from)
		o.checkPreferred(r, i)
		if m.X == 1 && o.leading && int(n.O.Leader) != i+1 && hosts(n.M.phase) {
			n.O.Leader = uint8(from + 1)
			settleIn(r, i, settleUnwanted)
		}
	case mGone:
		n.O.Cands &^= world.Bit(from)
	}
}

func (o ofSingletons) rank(i int) int {
	if o.prefers {
		return i
	}
	return 0
}

func (o ofSingletons) checkPreferred(r *xrun, i int) {
	n := &r.W.N[i]
	for j := range r.Nodes {
		if n.M.phase == Active && o.prefers && n.O.Cands&world.Bit(j) != 0 && o.rank(j) < o.rank(i) {
			settleIn(r, i, settleOutranked)
		}
	}
}

func (o ofSingletons) invite(r *xrun, i int) {
	n := &r.W.N[i]
	number := r.Fresh(i)
	r.End(i)
	n.O.Rest, n.O.Refused = 0, false
	first := n.O.Leader
	if first == uint8(i+1) {
		first = 0
	}
	every := n.M.closing() || n.M.phase == Asking
	if !o.leading || every {
		for j := range r.Nodes {
			if n.O.Cands&world.Bit(j) != 0 && uint8(j+1) != first && (every || o.rank(j) < o.rank(i)) {
				n.O.Rest |= world.Bit(j)
			}
		}
	}
	if first != 0 {
		r.Ask(i, number, first)
		return
	}
	o.askNext(r, i, number)
}

func (o ofSingletons) askNext(r *xrun, i int, number uint8) {
	n := &r.W.N[i]
	for j := range r.Nodes {
		if n.O.Rest&world.Bit(j) != 0 {
			n.O.Rest &^= world.Bit(j)
			r.Ask(i, number, uint8(j+1))
			return
		}
	}
	r.End(i)
	if n.O.Refused {
		r.Fire(i, handover.Declined)
	} else {
		r.Fire(i, unreachable)
	}
}

func (o ofSingletons) noAnswer(r *xrun, i int, refused bool) {
	n := &r.W.N[i]
	number := n.Inv
	if !refused {
		n.O.Cands &^= world.Bit(int(n.To) - 1)
		r.CallOff(i)
	}
	n.O.Refused = n.O.Refused || refused
	o.askNext(r, i, number)
}

// Goal: if any node is willing one of them hosts, nobody else does, and all is
// calm; if none is, the name is free or its one host has nobody to give it to.
func (o ofSingletons) Goal(w *xworld) bool {
	hosts, willing := 0, false
	for i := range w.N {
		if !w.L.H[i].Up {
			continue
		}
		willing = willing || w.N[i].M.willing()
		switch w.N[i].M.phase {
		case Standby, Closed:
		case Active:
			if !w.Hosts(i) {
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
	if !willing {
		return hosts == 1 || hosts == 0 && w.L.Rec.Owner == 0
	}
	return hosts == 1 && w.N[w.L.Rec.Owner-1].M.willing()
}
