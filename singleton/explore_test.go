package singleton

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// Models that are visited in the commit tier, and those of the nightly tier.
var (
	smallModels = []xmodel{
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1}},
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Links: 1, Wishes: 1}},
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1, Ends: 1}},
		{Owner: ofSingletons{slow: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Ends: 1}},
		{Owner: ofSingletons{slow: true, leading: true}, Nodes: 2, Bounds: xbudget{Ends: 1}},
		{Owner: ofSingletons{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1}},
		{Owner: ofSingletons{}, Nodes: 3, Bounds: xbudget{Crashes: 1}},
	}
	largeModels = []xmodel{
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Wishes: 1}},
		{Owner: ofSingletons{slow: true}, Nodes: 2, Bounds: xbudget{Wishes: 1, Ends: 1}},
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Crashes: 1, Losses: 1, Unknowns: 1, Wishes: 1, Ends: 1}},
		{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Ends: 1}},
		{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1}},
		{Owner: ofSingletons{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Links: 1, Wishes: 1}},
		{Owner: ofSingletons{leading: true}, Nodes: 2, Bounds: xbudget{Crashes: 1, Links: 1, Wishes: 1}},
		{Owner: ofSingletons{leading: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Wishes: 1}},
		{Owner: ofSingletons{leading: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Wishes: 1}},
		{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Crashes: 1, Links: 1}},
		{Owner: ofSingletons{}, Nodes: 3, Bounds: xbudget{Losses: 1}},
		{Owner: ofSingletons{}, Nodes: 3, Bounds: xbudget{Crashes: 1, Losses: 1}},
	}
)

// TestExplore visits all that some managers can come to together. In every state at
// most one child may pass, and none after one with a higher token; no lease is given
// up under a child that was not shut off a TTL before; and a way leads on to where
// one willing node hosts and all is calm, by what comes about by itself.
func TestExplore(t *testing.T) {
	all := world.Explore(t, tier.Models(smallModels, largeModels))
	if !tier.Nightly() || tier.Racing {
		return // the small models do not come to everything
	}
	for p, n := range all.Phases {
		require.NotZero(t, n, "%v is never come to", handover.Phase(p))
	}
	own := []event{handover.Host, handover.Move, handover.Keep, handover.Resign, handover.Pass, handover.Quit, handover.Stay,
		handover.WonInVain, handover.Reopen} // the manager's machine feeds them to the lease's
	for e, n := range all.Events[:unreachable+1] {
		require.Equal(t, slices.Contains(own, event(e)), n == 0, "event %d", e)
	}
	for f, n := range all.Effects[:finish+1] {
		require.NotZero(t, n, "effect %d", f)
	}
}

// The following is what singletons have around a hand-over in TestExplore: candidates, sources
// of leadership, preferences, children that are made, fail and are made anew. It carries
// effects out as controller.go, handover.go, child.go and leader.go do.

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

// The following is what can happen to singletons in TestExplore, besides hand-overs.

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

// to has the lease's machine go to a phase.
func (m machine) to(p handover.Phase, effects ...effect) (machine, []effect) {
	return ofSingletons{}.At(m, p), effects
}

func ignored(m machine) (machine, []effect) { return m, nil }

// planted are mistakes in the machine, around it, and in the store.
var planted = []xplanted{
	world.Plant("the lease is released before the child has ended", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, unreachable, []handover.Phase{handover.Inviting}, func(m machine) (machine, []effect) { return m.to(handover.Releasing, handover.DoRelease) })}, world.ErrI4, false),
	world.Plant("the lease is transferred while the child runs", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, handover.Invited, []handover.Phase{handover.Inviting}, func(m machine) (machine, []effect) { return m.to(handover.Transferring, handover.DoTransfer) })}, world.ErrI4, false),
	world.Plant("a planned end that is overdue gives the lease up at once", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, handover.Overdue, []handover.Phase{handover.Draining}, func(m machine) (machine, []effect) { return m.to(handover.Stopping, handover.DoYield) })}, world.ErrI4, false),
	world.Plant("an unknown transfer is taken for refused, and what ran begun again", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1, Unknowns: 1}}, world.ErrI1, false),
	world.Plant("an unknown transfer is taken for done", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1, Unknowns: 1}}, explore.ErrDeadEnd, true),
	world.Plant("what was handed over is not adopted by a write", xmodel{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1}}, world.ErrI1, false),
	world.Plant("the states of a lease that was not adopted are taken", xmodel{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1}}, world.ErrOld, true),
	world.Plant("a lost 'off' leaves a node with its offer for ever", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Links: 1, Wishes: 1}, Instead: world.Without(ofSingletons{}, waitFree, handover.Offering)}, explore.ErrDeadEnd, false),
	world.Plant("the gate does not look at the lease", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Losses: 1}}, world.ErrI1, false),
	world.Plant("a loss is not heard while the child runs", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Losses: 1}, Instead: world.Instead(ofSingletons{}, handover.Lost, []handover.Phase{handover.Active}, ignored)}, explore.ErrDeadEnd, false),
	world.Plant("what is won by a node that is to stop is kept", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1},
		Instead: world.Instead(ofSingletons{}, handover.Won, []handover.Phase{handover.Acquiring}, func(m machine) (machine, []effect) {
			if m.closing() {
				m.hold.Phase, m.phase = handover.Away, Closed
				return m, nil
			}
			return m.next(handover.Won)
		})}, explore.ErrDeadEnd, false),
	world.Plant("who is refused does not wait", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1}, Instead: world.Without(ofSingletons{}, waitFree, handover.Acquiring)}, explore.ErrDeadEnd, false),
	world.Plant("a child that can't be made is not tried again", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Ends: 1}, Instead: world.Without(ofSingletons{}, startBackoff, handover.Opening)}, explore.ErrDeadEnd, false),
	world.Plant("no answer is waited for in vain", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1}, Instead: world.Instead(ofSingletons{}, unreachable, []handover.Phase{handover.Inviting}, ignored)}, explore.ErrDeadEnd, false),
	world.Plant("the store releases blindly", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Losses: 1}, Flaws: explore.Flaws{BlindRelease: true}}, world.ErrI2, false),
	world.Plant("the store transfers blindly", xmodel{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Unknowns: 1}, Flaws: explore.Flaws{BlindTransfer: true}}, world.ErrI1, true),
	world.Plant("a holder trusts for longer than the store does", xmodel{Owner: ofSingletons{}, Nodes: 2, Flaws: explore.Flaws{TrustTooLong: true}}, world.ErrI1, false),
	world.Plant("records without a claim are not released", xmodel{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Wishes: 1}, Flaws: explore.Flaws{NoReconciliation: true}}, explore.ErrDeadEnd, true),
}

func TestExploreFindsPlantedMistakes(t *testing.T) { world.Find(t, planted) }
