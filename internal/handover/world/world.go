// Package world is what stands around the machines of a hand-over when tests visit every
// state that a few nodes can come to together (package explore): one name's lease in a
// store, links, and what each node runs, all reduced to plain data. It carries effects out
// as Giving, Accepting and their owners do. Singletons and shards are configurations of
// it: an Owner adds what is theirs.
package world

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// The messages between nodes. An Owner's own have kinds from OwnMail on.
const (
	Invite uint8 = iota + 1
	Offer
	Declined
	HandedOver
	Off
	OwnMail
)

var mailNames = [...]string{"", "Invite", "Offer", "Offer, declined", "HandedOver", "HandedOver, off"}

// Mail is one message: N is the hand-over's number, X the session of an Offer; of
// HandedOver the token of what left the states that came before it.
type Mail struct{ Kind, N, X uint8 }

// Gates.
const (
	GateOpen uint8 = iota
	GateDrains
	GateLost
)

// Node is one node's part. Nodes count from 1 in it; 0 is none. M is its machine, O
// what its owner adds.
type Node[M, O comparable] struct {
	M M
	O O

	Term  uint8 // token of the term
	Run   uint8 // token that what runs was begun under; 0: nothing runs
	Gate  uint8
	Told  bool // it was told to stop
	Due   bool // it has a deadline
	Yield bool // a TTL is waited for
	Left  bool // the lease was yielded

	Inv    uint8 // number of the invitation
	To     uint8 // the node that is asked, or made the offer
	ToSess uint8
	Aged   bool  // the offer is too old; until a new one is asked for
	Again  bool  // a new one is, of the same node
	Gave   uint8 // the token that is being transferred

	Making bool // an offer is being made
	From   uint8
	TakeN  uint8
	State  uint8 // the token of what left the states that were handed over

	Lost uint8 // nodes whose broken links are still to be told of (bits)
}

// Budget is what may still happen, and need not.
type Budget struct {
	Crashes, Losses, Unknowns, Links, Wishes, Ends, Orders, Members uint8
}

// World is a state.
type World[M, O comparable] struct {
	L      explore.Leases
	N      [explore.Nodes]Node[M, O]
	Q      [explore.Nodes][explore.Nodes]explore.Queue[Mail]
	High   uint8 // the highest token that anything was begun under
	Leader uint8 // for Owners with one
	Left   Budget
}

// Owner is what singletons, or shards, have around a hand-over.
type Owner[M, O comparable] interface {
	fmt.Stringer // its settings
	Hold(m M) handover.Machine
	// At is a machine that went to a phase, for what is planted.
	At(m M, p handover.Phase) M
	// Next is the machine that ships.
	Next(m M, e handover.Event) (M, []handover.Effect)
	Start(r *Run[M, O])
	// Carry carries out an own effect, DoOpen or DoInvite.
	Carry(r *Run[M, O], i int, f handover.Effect)
	// Away is told when node i came back to holding nothing.
	Away(r *Run[M, O], i int)
	// Recorded is told when the record has changed.
	Recorded(r *Run[M, O])
	// Unknown is what an acquisition of which nothing is known is to the machine.
	Unknown() handover.Event
	// Silent and Refused: the node that is asked did not answer, or said no, while others
	// may be asked.
	Silent(r *Run[M, O], i int)
	Refused(r *Run[M, O], i int)
	// Objects reports whether node i declines any invitation.
	Objects(w *World[M, O], i int) bool
	// Receive takes an own message.
	Receive(r *Run[M, O], i, from int, m Mail)
	// PeerLost is told that the link of node i to j broke.
	PeerLost(r *Run[M, O], i, j int)
	// Steps tells what else node i, and users and fate with it, may come to.
	Steps(s *Stepper[M, O], i int)
	// Links reports whether it makes a difference that the link of i and j breaks though
	// nothing is under way on it.
	Links(w *World[M, O], i, j int) bool
	// Closed reports whether a node has ended, and takes no messages.
	Closed(m M) bool
	Goal(w *World[M, O]) bool
	// Refs are the tokens in what the owner adds to a node.
	Refs(o *O) []*uint8
	MailName(kind uint8) string
}

// Model is what is the same in all states.
type Model[M, O comparable] struct {
	Owner[M, O]
	Nodes  int
	Bounds Budget
	Flaws  explore.Flaws
	Plant  string
	// Instead is run in place of the machine that ships; nil: that is.
	Instead func(M, handover.Event) (M, []handover.Effect)

	Phases  [handover.Releasing + 1]int // how often each was come to
	Events  [64]int
	Effects [64]int
}

// The rules.
var (
	ErrI1   = errors.New("I1: two hosts may pass messages, or an earlier one after a later one")
	ErrI2   = errors.New("I2: something begins under a token that is not above all before it")
	ErrI4   = errors.New("I4: the lease is given up under what runs")
	ErrOld  = errors.New("states of an earlier host than the last are taken")
	ErrRule = errors.New("a rule of the machine is broken")
	errFull = errors.New("the model is too small: more messages on a link than it can hold")
)

// Space is the whole of a model.
func (x *Model[M, O]) Space() explore.Space[World[M, O]] {
	r := &Run[M, O]{Model: x, W: World[M, O]{Left: x.Bounds}}
	for i := range x.Nodes {
		r.W.L.H[i].Up = true
	}
	x.Start(r)
	return explore.Space[World[M, O]]{Start: []World[M, O]{r.W}, Steps: x.steps, Key: explore.Hash[World[M, O]], Check: x.check,
		Goal: func(w World[M, O]) bool { return x.Goal(&w) }, Show: x.show}
}

// String names the model's bounds.
func (x *Model[M, O]) String() string {
	b := fmt.Sprintf("%d nodes", x.Nodes)
	if s := x.Owner.String(); s != "" {
		b += ", " + s
	}
	for _, part := range []struct {
		what string
		n    uint8
	}{{"crashes", x.Bounds.Crashes}, {"losses", x.Bounds.Losses}, {"unknowns", x.Bounds.Unknowns}, {"links", x.Bounds.Links},
		{"wishes", x.Bounds.Wishes}, {"ends", x.Bounds.Ends}, {"orders", x.Bounds.Orders}, {"memberships", x.Bounds.Members}} {
		if part.n > 0 {
			b += fmt.Sprintf(", %s %d", part.what, part.n)
		}
	}
	return b
}

// Explore visits all of some models, and returns how often phases, events and effects were
// come to.
func Explore[M, O comparable](t *testing.T, models []Model[M, O]) (all Model[M, O]) {
	for i := range models {
		x := &models[i]
		t.Run(x.String(), func(t *testing.T) {
			rep := explore.Run(x.Space())
			t.Log(rep)
			if rep.Violation != nil {
				t.Fatal(rep.Violation)
			}
			require.True(t, rep.Whole)
		})
		for p, n := range x.Phases {
			all.Phases[p] += n
		}
		for e, n := range x.Events {
			all.Events[e] += n
		}
		for f, n := range x.Effects {
			all.Effects[f] += n
		}
	}
	return all
}

// Planted is a mistake in a machine, around it, or in the store.
type Planted[M, O comparable] struct {
	what  string
	model Model[M, O]
	want  error
	large bool // nightly, and not for the race detector
}

// Plant is a mistake, and what it is to be found as.
func Plant[M, O comparable](what string, model Model[M, O], want error, large bool) Planted[M, O] {
	return Planted[M, O]{what, model, want, large}
}

// Find requires that what is planted is found, as the violation it is. A model that finds
// nothing has to be one that would have.
func Find[M, O comparable](t *testing.T, planted []Planted[M, O]) {
	for _, p := range tier.Models(planted, nil) {
		if p.large && !tier.Nightly() {
			continue
		}
		t.Run(p.what, func(t *testing.T) {
			p.model.Plant = p.what
			rep := explore.Run(p.model.Space())
			require.NotNil(t, rep.Violation, "not found in %v", rep)
			t.Logf("%v\n%v", rep, rep.Violation)
			require.ErrorIs(t, rep.Violation, p.want)
			require.LessOrEqual(t, len(rep.Violation.Trace), 25)
		})
	}
}

// Instead makes a machine that does something else at one event in some phases.
func Instead[M, O comparable](o Owner[M, O], e handover.Event, in []handover.Phase, do func(m M) (M, []handover.Effect)) func(M, handover.Event) (M, []handover.Effect) {
	return func(m M, got handover.Event) (M, []handover.Effect) {
		if got == e && slices.Contains(in, o.Hold(m).Phase) {
			return do(m)
		}
		return o.Next(m, got)
	}
}

// Without makes a machine that forgets an effect.
func Without[M, O comparable](o Owner[M, O], f handover.Effect, after handover.Phase) func(M, handover.Event) (M, []handover.Effect) {
	return func(m M, e handover.Event) (M, []handover.Effect) {
		was := o.Hold(m).Phase
		m, effects := o.Next(m, e)
		if was == after {
			effects = slices.DeleteFunc(slices.Clone(effects), func(x handover.Effect) bool { return x == f })
		}
		return m, effects
	}
}

// check is what must hold in every state.
func (x *Model[M, O]) check(w World[M, O]) error {
	passing := 0
	for i := range w.N {
		n, h := &w.N[i], &w.L.H[i]
		if n.Run == 0 {
			continue
		}
		if (h.Op == explore.Release || h.Op == explore.Transfer) && !n.Left {
			return ErrI4
		}
		alive := h.Alive && h.Claim == n.Run
		if x.Plant == "the gate does not look at the lease" {
			alive = true
		}
		if alive && n.Gate != GateLost {
			passing++
			if n.Run < w.High {
				return ErrI1
			}
		}
	}
	if passing > 1 {
		return ErrI1
	}
	return nil
}

// Hosts reports whether node i hosts, and all is as it should be for that.
func (w *World[M, O]) Hosts(i int) bool {
	n, h := &w.N[i], &w.L.H[i]
	return n.Run != 0 && n.Gate == GateOpen && h.Alive && h.Claim == n.Run && w.L.Owns(i) && w.L.Rec.Token == n.Run
}

// Calm reports whether nothing is under way between node i and the store.
func (w *World[M, O]) Calm(i int) bool {
	return w.L.H[i].Op == explore.NoOp && w.L.H[i].Result == explore.NoResult
}

// show describes a state in words.
func (x *Model[M, O]) show(w World[M, O]) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  record %+v, high %d, leader %d\n", w.L.Rec, w.High, w.Leader)
	for i := range x.Nodes {
		n := w.N[i]
		fmt.Fprintf(&b, "  %c %v %+v lease %+v\n", 'a'+i, x.Hold(n.M).Phase, n, w.L.H[i])
		for j := range x.Nodes {
			for _, m := range w.Q[i][j].M[:w.Q[i][j].N] {
				fmt.Fprintf(&b, "    under way to %c: %s %d\n", 'a'+j, x.name(m.Kind), m.N)
			}
		}
	}
	return b.String()
}

func (x *Model[M, O]) name(kind uint8) string {
	if kind < OwnMail {
		return mailNames[kind]
	}
	return x.MailName(kind)
}

// Stepper tells the steps of one state.
type Stepper[M, O comparable] struct {
	*Model[M, O]
	From World[M, O]
	tell func(explore.Step[World[M, O]])
}

func (x *Model[M, O]) steps(w World[M, O], tell func(explore.Step[World[M, O]])) {
	s := &Stepper[M, O]{x, w, tell}
	s.leases()
	for i := range x.Nodes {
		if w.L.H[i].Up {
			s.node(i)
			s.mail(i)
			x.Steps(s, i)
			s.fate(i)
		}
	}
	s.links()
}

// Step tells one: do changes a copy of the state. a and b are nodes, from 1.
func (s *Stepper[M, O]) Step(what string, a, b int, sure bool, do func(r *Run[M, O])) {
	r := &Run[M, O]{Model: s.Model, W: s.From}
	do(r)
	s.done(explore.Label{What: what, A: uint8(a), B: uint8(b)}, sure, r)
}

func (s *Stepper[M, O]) done(label explore.Label, sure bool, r *Run[M, O]) {
	if s.From.L.Rec != r.W.L.Rec {
		s.Recorded(r)
	}
	s.canon(&r.W)
	s.tell(explore.Step[World[M, O]]{Label: label, Sure: sure, Next: r.W, Err: r.err})
}

func (s *Stepper[M, O]) leases() {
	s.From.L.Steps(s.Flaws, s.refs(&s.From), s.From.Left.Unknowns > 0, func(label explore.Label, sure, unsure bool, after explore.Leases, err error) {
		r := &Run[M, O]{Model: s.Model, W: s.From, err: err}
		r.W.L = after
		if unsure {
			r.W.Left.Unknowns--
		}
		s.done(label, sure, r)
	})
}

// offersEnd reports whether an unused offer ends: it does unless that is what is planted.
func (x *Model[M, O]) offersEnd() bool {
	return x.Plant != "a lost 'off' leaves a node with its offer for ever"
}

// node tells what one node and its Keeper come to by themselves.
func (s *Stepper[M, O]) node(i int) {
	w := &s.From
	n, h, a := &w.N[i], &w.L.H[i], i+1
	m := s.Hold(n.M)
	if h.Result != explore.NoResult {
		s.Step("hears the store's answer", a, 0, true, func(r *Run[M, O]) { r.hear(i) })
	}
	if h.Loss {
		s.Step("is told of the loss", a, 0, true, func(r *Run[M, O]) {
			r.W.L.H[i].Loss = false
			if r.W.N[i].Term != 0 && !r.Alive(i) {
				r.Fire(i, handover.Lost)
			}
		})
	}
	if h.Offer && s.offersEnd() {
		s.Step("the Keeper's offer ends", a, 0, true, func(r *Run[M, O]) { r.W.L.H[i].Offer = false })
	}
	if n.Run != 0 && n.Told {
		s.Step("what runs ends", a, 0, true, func(r *Run[M, O]) { r.Ended(i, handover.Ended) })
	}
	if n.Run != 0 && n.Told && m.Offer {
		s.Step("what runs ends, and the offer is too old", a, 0, false, func(r *Run[M, O]) { r.W.N[i].Aged = true; r.Ended(i, handover.Ended) })
	}
	if n.Due {
		s.Step("what runs is overdue", a, 0, false, func(r *Run[M, O]) { r.W.N[i].Due = false; r.Fire(i, handover.Overdue) })
	}
	if n.Yield {
		s.Step("a TTL after it was shut off", a, 0, false, func(r *Run[M, O]) { r.W.N[i].Yield = false; r.Fire(i, handover.YieldOver) })
	}
	if n.Making {
		s.Step("its offer is ready", a, 0, true, func(r *Run[M, O]) { r.offerReady(i) })
		if w.Left.Unknowns > 0 {
			s.Step("its offer fails", a, 0, false, func(r *Run[M, O]) {
				r.W.Left.Unknowns--
				r.W.N[i].Making = false
				r.Fire(i, handover.OfferFailed)
			})
			if m.Phase == handover.Offered {
				s.Step("its offer fails, and the last one is good still", a, 0, false, func(r *Run[M, O]) {
					r.W.Left.Unknowns--
					r.W.N[i].Making = false
				})
			}
		}
	}
	if m.Phase == handover.Offered {
		if s.offersEnd() {
			s.Step("its offer is over", a, 0, true, func(r *Run[M, O]) { r.Fire(i, handover.OfferOver) })
		}
		if w.L.Owns(i) {
			s.Step("sees that the record is its own", a, 0, true, func(r *Run[M, O]) { r.Fire(i, handover.Taken) })
		}
	}
	s.asks(i, m)
	for j := range s.Nodes {
		if n.Lost&Bit(j) != 0 {
			s.Step("is told that the link broke", a, j+1, true, func(r *Run[M, O]) { r.peerLost(i, j) })
		}
	}
}

// asks tells what becomes of an invitation of node i while it waits.
func (s *Stepper[M, O]) asks(i int, m handover.Machine) {
	w, n, a := &s.From, &s.From.N[i], i+1
	t := int(n.To) - 1
	if t < 0 || n.Inv == 0 {
		return
	}
	if m.Phase.Asks() && s.Prompt(i) && s.Plant != "no answer is waited for in vain" {
		s.Step("no answer to the invitation in time", a, t+1, true, func(r *Run[M, O]) { r.unanswered(i) })
	}
	if !m.Offer || !m.Phase.Waits() {
		return
	}
	if w.Q[i][t].N+w.Q[t][i].N == 0 && !w.N[t].Making {
		s.Step("asks for a fresh offer", a, t+1, false, func(r *Run[M, O]) { r.Send(i, n.To, Mail{Invite, n.Inv, 0}) })
	}
}

// unanswered: nothing came of whom node i asks.
func (r *Run[M, O]) unanswered(i int) {
	if !r.W.N[i].Again {
		r.Silent(r, i)
		return
	}
	r.Fire(i, handover.Declined)
}

func (r *Run[M, O]) peerLost(i, j int) {
	n := &r.W.N[i]
	n.Lost &^= Bit(j)
	r.PeerLost(r, i, j)
	if r.Hold(n.M).Phase.Asks() && n.Inv != 0 && int(n.To) == j+1 {
		r.unanswered(i)
	}
}

// fewLate is how many messages may be under way between a node and another, both
// ways, when a time that it waits for is over. With more of them it waits on: links
// are not so slow that a host fills one with invitations.
const fewLate = 2

// Prompt reports whether times that node i waits for can be over.
func (s *Stepper[M, O]) Prompt(i int) bool {
	for j := range s.Nodes {
		if s.From.Q[i][j].N+s.From.Q[j][i].N > fewLate {
			return false
		}
	}
	return true
}

// mail tells what i may receive.
func (s *Stepper[M, O]) mail(i int) {
	for j := range s.Nodes {
		q := s.From.Q[j][i]
		if m, ok := q.Pop(); ok {
			s.Step(s.name(m.Kind), j+1, i+1, true, func(r *Run[M, O]) { r.W.Q[j][i] = q; r.receive(i, j, m) })
			if s.From.Left.Links > 0 {
				s.Step("lost: "+s.name(m.Kind), j+1, i+1, false, func(r *Run[M, O]) { r.W.Left.Links--; r.W.Q[j][i] = q })
			}
		}
	}
}

// fate tells what may strike node i.
func (s *Stepper[M, O]) fate(i int) {
	w, h, a := &s.From, &s.From.L.H[i], i+1
	if w.Left.Losses > 0 && (h.Alive || h.Offer || h.Op != explore.NoOp || w.L.Owns(i)) {
		s.Step("its session is over", a, 0, false, func(r *Run[M, O]) { r.W.Left.Losses--; r.W.L.Lost(i) })
	}
	if w.Left.Crashes > 0 {
		s.Step("crashes", a, 0, false, func(r *Run[M, O]) {
			r.W.Left.Crashes--
			r.W.N[i] = Node[M, O]{}
			r.W.L.Crash(i)
			for j := range r.Nodes {
				r.W.Q[j][i] = explore.Queue[Mail]{}
				if r.W.L.H[j].Up && !r.Closed(r.W.N[j].M) {
					r.W.N[j].Lost |= Bit(i)
				}
			}
		})
	}
}

// links adds a step for each link that may break.
func (s *Stepper[M, O]) links() {
	w := &s.From
	if w.Left.Links == 0 {
		return
	}
	for i := range s.Nodes {
		for j := range i {
			if !w.L.H[i].Up || !w.L.H[j].Up || w.Q[i][j].N+w.Q[j][i].N == 0 && !s.Links(w, i, j) {
				continue
			}
			s.Step("the link breaks", j+1, i+1, false, func(r *Run[M, O]) {
				r.W.Left.Links--
				r.W.Q[i][j], r.W.Q[j][i] = explore.Queue[Mail]{}, explore.Queue[Mail]{}
				r.W.N[i].Lost |= Bit(j)
				r.W.N[j].Lost |= Bit(i)
			})
		}
	}
}
