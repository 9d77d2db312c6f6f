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
