package settle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
)

// closeOffer ends an offer: what may still be transferred to it is looked for.
func (w *world) closeOffer(i int, nonce uint64) {
	if n := &w.N[i]; n.Offer == nonce && nonce != 0 {
		n.Offer, n.Given, n.Asked, n.Clean = 0, 0, true, false
	}
}

// session opens one for node i, if it has none that is trusted.
func (w *world) session(i int) {
	if n := &w.N[i]; n.Session == 0 || n.Over {
		n.Session++
		n.Over = false
	}
}

func (w *world) tag() uint64 { w.Tags++; return w.Tags }

// call is a call of a user of node i.
func (w *world) call(i int, o settle.Op) {
	n := &w.N[i]
	if o.Kind == settle.Release {
		w.dropAcquires(i)
	}
	if n.At.Phase != settle.Idle {
		w.step(i, settle.Event{What: settle.Overtaken})
	}
	if !n.Queue[0].Any {
		n.Queue[0] = queued{true, o}
	} else {
		n.Queue[1] = queued{true, o}
	}
	if n.At.Phase == settle.Idle {
		w.begin(i)
	}
}

// dropAcquires ends acquisitions for their callers.
func (w *world) dropAcquires(i int) {
	n := &w.N[i]
	var rest [2]queued
	at := 0
	for _, o := range n.Queue {
		if o.Any && o.Kind != settle.Acquire {
			rest[at] = o
			at++
		} else {
			w.closeOffer(i, o.Offer)
		}
	}
	n.Queue = rest
	if n.At.Phase != settle.Idle && n.At.Kind == settle.Acquire {
		w.step(i, settle.Event{What: settle.Dropped})
	}
}

// send sends what is ready.
func (w *world) send(i int) {
	n := &w.N[i]
	if n.At.Kind == settle.Acquire && n.At.Abandoned {
		w.step(i, settle.Event{What: settle.Unwanted})
		return
	}
	r := request{Sent: true, Kind: n.At.Kind}
	e := settle.Event{What: settle.Sent}
	if r.Kind == settle.Acquire {
		w.session(i)
		e.Nonce = w.tag()
		r.Session = n.Session
	}
	w.step(i, e)
	r.Nonce, r.Supersedes, r.Held = e.Nonce, n.At.Stands.Token, n.At.Stands
	switch {
	case r.Kind == settle.Transfer:
		r.To, r.ToSession, r.Offer = uint8(2-i), n.Target, n.At.Offer
	case r.Kind == settle.Release && r.Held.Token == 0:
		r.Look = true
	}
	if r.Kind != settle.Acquire && n.Child {
		w.broke(errChild)
	}
	n.Sends = min(n.Sends+1, 3)
	if most := uint8(1); n.Clean && n.Sends > most {
		if (n.At.Offer != 0 || n.Offer != 0) && !n.Heard { // what was transferred here is refused first, if that was not told
			most = 2
		}
		if n.Sends > most {
			w.broke(errNeedless)
		}
	}
	n.Request = r
}

// answer tells node i what came of its request.
func (w *world) answer(i int) {
	n := &w.N[i]
	r := n.Request
	switch {
	case r.Gone:
		if r.Session == n.Session {
			n.Over = true
			n.At.End()
		}
		w.step(i, settle.Event{What: settle.NoAnswer, Fault: settle.SessionGone})
	case r.Look:
		w.step(i, settle.Event{What: settle.Looked, Answer: r.Answer})
		if n.At.Phase == settle.Asked {
			n.Request = request{Sent: true, Kind: settle.Release, Held: n.At.Stands}
		}
	default:
		w.step(i, settle.Event{What: settle.Answered, Answer: r.Answer})
	}
}

// steps tells all that can happen.
func (w world) steps(tell func(explore.Step[world])) {
	if w.Err[0] != 0 {
		return
	}
	for i := range w.N {
		if i == 1 && w.N[0] == w.N[1] && w.Rec.Node == 0 {
			return // as a, so b
		}
		do := func(what string, sure bool, f func(*world, *node)) {
			to := w
			f(&to, &to.N[i])
			tell(explore.Step[world]{Label: explore.Label{What: what, A: uint8(i + 1)}, Sure: sure, Next: to.renumbered()})
		}
		spend := func(from func(*bounds) *uint8, what string, f func(*world, *node)) {
			if *from(&w.Left) > 0 {
				do(what, false, func(w *world, n *node) { *from(&w.Left)--; f(w, n) })
			}
		}
		n, other := &w.N[i], &w.N[1-i]
		busy := n.At.Phase != settle.Idle
		calls := func(b *bounds) *uint8 { return &b.Calls }
		silent := func(*bounds) *uint8 { return new(uint8) }
		if i == 1 && w.Alone {
			calls = silent
		}
		losts := func(b *bounds) *uint8 { return &b.Losts }
		denials := func(b *bounds) *uint8 { return &b.Denials }
		if !n.Queue[1].Any {
			if !n.Closing && !n.Queue[0].Any {
				spend(calls, "acquire", func(w *world, n *node) { w.call(i, settle.Op{}) })
			}
			spend(calls, "release", func(w *world, n *node) { w.call(i, settle.Op{Kind: settle.Release}) })
			if other.Offer != 0 && !busy && !n.Closing && w.alive(i) {
				spend(calls, "transfer", func(w *world, n *node) {
					n.Target = other.Session
					w.call(i, settle.Op{Kind: settle.Transfer, Offer: other.Offer})
				})
			}
			if n.Offer != 0 && !busy && !n.Closing {
				spend(calls, "adopt", func(w *world, n *node) { w.call(i, settle.Op{Offer: n.Offer}) })
			}
		}
		if n.Offer == 0 && !n.Closing {
			spend(calls, "offer", func(w *world, n *node) { w.session(i); n.Offer = w.tag() })
		}
		if n.Offer != 0 {
			do("the offer ends", true, func(w *world, n *node) { w.closeOffer(i, n.Offer) })
			if int(w.Rec.Node) == i+1 && w.Rec.Nonce == n.Offer && n.Given != w.Rec.Token {
				do("hears that it was transferred", false, func(w *world, n *node) { n.Given = w.Rec.Token })
			}
		}
		switch r := n.Request; {
		case n.At.Phase == settle.Ready:
			do("sends", true, func(w *world, n *node) { w.send(i) })
			if n.At.Kind == settle.Acquire {
				spend(losts, "has no session", func(w *world, n *node) {
					n.Request = request{}
					w.step(i, settle.Event{What: settle.NoSession, Fault: settle.Other})
				})
				spend(denials, "is denied a session", func(w *world, n *node) {
					n.Request = request{}
					w.step(i, settle.Event{What: settle.NoSession, Fault: settle.Denied})
				})
			}
		case n.At.Phase == settle.Pausing:
			do("the pause ends", true, func(w *world, n *node) { w.step(i, settle.Event{What: settle.Due}) })
		case n.At.Phase == settle.Asked && r.Landed:
			do("is answered", true, func(w *world, n *node) { w.answer(i) })
			spend(losts, "the answer is lost", func(w *world, n *node) {
				n.Request = request{}
				w.step(i, settle.Event{What: settle.NoAnswer, Fault: settle.Other})
			})
		case n.At.Phase == settle.Asked:
			do("lands", true, func(w *world, n *node) { w.land(i, &n.Request) })
			spend(losts, "the request is lost", func(w *world, n *node) {
				n.Request = request{}
				w.step(i, settle.Event{What: settle.NoAnswer, Fault: settle.Other})
			})
			if free := late(n); free >= 0 && !r.Look {
				spend(func(b *bounds) *uint8 { return &b.Lates }, "gets no answer yet", func(w *world, n *node) {
					n.Late[free], n.Request = n.Request, request{}
					w.step(i, settle.Event{What: settle.NoAnswer, Fault: settle.Other})
				})
			}
			spend(denials, "is denied", func(w *world, n *node) {
				n.Request = request{}
				w.step(i, settle.Event{What: settle.NoAnswer, Fault: settle.Denied})
			})
			if !r.Look {
				spend(denials, "is denied the name", func(w *world, n *node) {
					w.step(i, settle.Event{What: settle.Answered, Answer: settle.Answer{Fault: settle.Denied}})
				})
				if n.At.Kind == settle.Transfer {
					spend(denials, "can't transfer there", func(w *world, n *node) {
						n.Request = request{}
						w.step(i, settle.Event{What: settle.NoAnswer, Fault: settle.Unsupported})
					})
				}
				spend(denials, "is refused for a reason", func(w *world, n *node) {
					w.step(i, settle.Event{What: settle.Answered, Answer: settle.Answer{Fault: settle.Other}})
				})
			}
		}
		for j := range n.Late {
			if n.Late[j].Sent {
				do("a late request lands", true, func(w *world, n *node) {
					n.Crossed = n.Crossed || n.Late[j].Kind == settle.Acquire
					w.land(i, &n.Late[j])
					n.Late[j] = request{}
				})
			}
		}
		leaves := func(b *bounds) *uint8 { return &b.Leaves }
		if busy && !n.At.Replied {
			spend(leaves, "the caller leaves", func(w *world, n *node) { w.step(i, settle.Event{What: settle.Left}) })
		}
		if busy && !n.Out {
			spend(leaves, "the time is up", func(w *world, n *node) { n.Out = true; w.step(i, settle.Event{What: settle.Left}) })
		}
		if n.Told[0] != 0 {
			do("hears of a deletion", true, func(w *world, n *node) {
				at := n.Told[0]
				copy(n.Told[:], n.Told[1:])
				n.Told[len(n.Told)-1] = 0
				w.step(i, settle.Event{What: settle.Deleted, Token: at})
			})
		}
		w.circumstances(i, do, spend)
	}
}

// late is a place for one more late request of n; -1: none.
func late(n *node) int {
	for j := range n.Late {
		if !n.Late[j].Sent {
			return j
		}
	}
	return -1
}

// circumstances tells what can happen to node i beside its requests.
func (w world) circumstances(i int, do func(string, bool, func(*world, *node)), spend func(func(*bounds) *uint8, string, func(*world, *node))) {
	n := &w.N[i]
	if n.Session != 0 && !n.Over {
		spend(func(b *bounds) *uint8 { return &b.Expiries }, "trust ends", func(w *world, n *node) { n.Over = true })
	}
	if n.At.Status == settle.Held && !w.alive(i) {
		do("notices the loss", true, func(w *world, n *node) { n.At.End() })
	}
	over := n.Session
	if !n.Over {
		over = max(over, 1) - 1
	}
	if over > n.Dead {
		do("the store ends the session", true, func(w *world, n *node) {
			if n.Dead = over; int(w.Rec.Node) == i+1 && w.Rec.Session <= over {
				w.remove()
			}
		})
	}
	if n.At.Phase == settle.Idle && (n.Doubt || n.Asked) {
		do("looks at the name", true, func(w *world, n *node) {
			claimed := n.At.Status != settle.Free && n.At.Stands.Token == w.Rec.Token || n.Offer != 0 && n.Offer == w.Rec.Nonce
			if int(w.Rec.Node) == i+1 && !claimed {
				w.remove()
			}
			n.Doubt = false
			for j := range w.N {
				if o := &w.N[j]; o.Late != [2]request{} || o.At.Phase != settle.Idle {
					return
				}
			}
			n.Asked = false
		})
	}
	if w.Rec.Node != 0 && i == 0 {
		spend(func(b *bounds) *uint8 { return &b.Removals }, "an operator deletes the record", func(w *world, n *node) { w.remove() })
	}
	if w.alive(i) && !n.Child {
		spend(func(b *bounds) *uint8 { return &b.Children }, "a child begins", func(w *world, n *node) { n.Child = true })
	}
	if n.Child && !w.alive(i) {
		do("the child rests", true, func(w *world, n *node) {
			if n.Child = false; n.At.Phase == settle.Waiting {
				n.Out = n.Out && !n.At.Replied
				w.step(i, settle.Event{What: settle.Rested})
			}
		})
	}
	if n.Hangs && !n.Orphan {
		spend(func(b *bounds) *uint8 { return &b.Parents }, "its parent's term ends", func(w *world, n *node) { n.Orphan = true; n.At.End() })
	}
	if !n.Closing {
		spend(func(b *bounds) *uint8 { return &b.Closes }, "is closed", func(w *world, n *node) {
			n.Closing = true
			n.At.End()
			w.dropAcquires(i)
		})
	}
	if !n.Setback && n.Session != 0 {
		spend(func(b *bounds) *uint8 { return &b.Setbacks }, "the store's history seems to go back", func(w *world, n *node) {
			n.Setback, n.Over = true, true
			n.At.End()
		})
	}
	if n.Setback {
		do("that is over", true, func(w *world, n *node) { n.Setback, n.Doubt = false, true })
	}
}

func start(m model) world {
	w := world{Left: m.bounds, Alone: m.alone}
	for i := range w.N {
		w.N[i].Hangs = m.Parents > 0
	}
	if m.moving || m.child {
		w.call(0, settle.Op{})
		w.send(0)
		w.land(0, &w.N[0].Request)
		w.answer(0)
	}
	if m.lost {
		w.N[0].Over = true
		w.N[0].At.End()
	}
	if w.N[0].Child = m.child; m.moving {
		w.session(1)
		w.N[1].Offer = w.tag()
	}
	return w.renumbered()
}

func space(m model) explore.Space[world] {
	return explore.Space[world]{
		Start: []world{start(m)},
		Steps: func(w world, tell func(explore.Step[world])) { w.steps(tell) },
		Key:   func(w world) explore.Key { return explore.Hash(w) },
		Check: world.check, Goal: world.rest, Show: world.show,
	}
}

// model is what is explored, whole within its bounds.
type model struct {
	what string
	bounds
	moving bool // node a has the name, and node b an offer for it
	child  bool // node a has the name, and something hangs on it
	lost   bool // and node a has lost its session
	alone  bool // node b has no users
}

// small and large are the models: of the commit tier, and of the nightly one.
var (
	small = []model{
		{what: "calm", bounds: bounds{Calls: 3, Leaves: 1}},
		{what: "late requests", bounds: bounds{Calls: 2, Lates: 2, Leaves: 1}},
		{what: "an operator's deletion", bounds: bounds{Calls: 2, Losts: 1, Removals: 1}},
		{what: "a parent", bounds: bounds{Calls: 2, Lates: 1, Parents: 1, Leaves: 1}},
		{what: "a child", bounds: bounds{Calls: 3, Children: 1, Leaves: 1}},
		{what: "a node that closes", bounds: bounds{Calls: 2, Lates: 1, Closes: 1, Leaves: 1}},
		{what: "a setback", bounds: bounds{Calls: 2, Lates: 1, Setbacks: 1}},
		{what: "a store that denies", bounds: bounds{Calls: 2, Lates: 1, Denials: 1, Leaves: 1}},
		{what: "a move", bounds: bounds{Calls: 1, Lates: 1, Losts: 1, Denials: 1, Leaves: 1}, moving: true},
		{what: "a move that is denied", bounds: bounds{Calls: 2, Denials: 2}, moving: true},
		{what: "a child of a node that loses its session", bounds: bounds{Calls: 2, Expiries: 1, Leaves: 1}, child: true, alone: true},
		{what: "a child that outlasts the term", bounds: bounds{Calls: 3, Lates: 1, Leaves: 1}, child: true, lost: true, alone: true},
		{what: "a move from a session that expires", bounds: bounds{Calls: 1, Lates: 1, Expiries: 1}, moving: true},
		{what: "a session that expires", bounds: bounds{Calls: 2, Lates: 1, Expiries: 1}},
	}
	large = []model{
		{what: "calm, at length", bounds: bounds{Calls: 5, Leaves: 1}},
		{what: "late requests, at length", bounds: bounds{Calls: 3, Lates: 2, Losts: 1, Leaves: 1}},
		{what: "a session that expires, at length", bounds: bounds{Calls: 3, Lates: 2, Losts: 1, Expiries: 1}},
	}
)

// TestExplore finds every negated clause of the machine, too: see package planted.
func TestExplore(t *testing.T) { visit(t, small, 300_000) }

func TestExploreAtLength(t *testing.T) {
	tier.NightlyOnly(t, "TestExplore")
	visit(t, large, 100_000_000)
}

// visit explores models of fewer than most states: a machine that goes wrong may have no end of them.
func visit(t *testing.T, models []model, most int) {
	for _, m := range models {
		t.Run(m.what, func(t *testing.T) {
			t.Parallel()
			s := space(m)
			s.Most = most
			report := explore.Run(s)
			t.Log(report)
			if report.Violation != nil {
				t.Fatal(report.Violation)
			}
			require.True(t, report.Whole, "more states than expected")
		})
	}
}

// An accepted history forgets every token but that of a held term.
func TestAcceptedHistory(t *testing.T) {
	at := state{Claim: settle.Claim{Last: 7, Seen: 9}, Op: settle.Op{Gone: 8}}
	after, todo := next(at, settle.Event{What: settle.Forgotten})
	require.Equal(t, state{}, after)
	require.Zero(t, todo)
	at.Status, at.Stands = settle.Held, settle.Ref{Token: 5, Nonce: 1}
	after, _ = next(at, settle.Event{What: settle.Forgotten})
	require.Equal(t, settle.Claim{Status: settle.Held, Stands: at.Stands, Last: 5, Seen: 5}, after.Claim)
}
