package settle_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// This file is what the machine is explored in: a store with one name, two nodes that use the machine
// as a Keeper does, requests that land late or never, sessions that end, and users that call, leave and
// close at any moment. All of it is plain data.

// The rules.
var (
	errTwo      = errors.New("I1: two nodes believe that they hold the name")
	errBelieves = errors.New("I1: a node believes that it holds what does not stand, and nothing will tell it")
	errGrows    = errors.New("I2: a term's token is not above all before it")
	errStray    = errors.New("I7: a record stands that no node claims, or is to look for")
	errWon      = errors.New("an acquisition is told to be won, and there is no term")
	errHeldBy   = errors.New("an acquisition is told that another holds the name, and the node has it")
	errStands   = errors.New("a release is told to be done, and the record stands")
	errMoved    = errors.New("a transfer is told to be done, and was not applied")
	errRefused  = errors.New("a transfer is told to be refused, and was applied")
	errLine     = errors.New("a term is told to continue what was transferred, and another was between")
	errChild    = errors.New("a name is given up while something stands that hangs on it")
	errReplies  = errors.New("an operation has ended without a word to its caller")
	errReason   = errors.New("a caller is told a reason that is not so")
	errSure     = errors.New("a caller is told for sure what is not sure")
	errNeedless = errors.New("a node does what nothing asks for")
	errUndone   = errors.New("a node does not do what it was asked for")
	errSilent   = errors.New("a term ends, and its owner is told something else, or nothing")
	errServed   = errors.New("what was transferred to an offer is given back, and the offer stands")
	errTooLate  = errors.New("an attempt begins after its time")
)

const nodes = 2

type token = store.Token

// record is what the store has; node 0: nothing. Line: it goes on with what was transferred to its offer.
type record struct {
	Node, Session uint8
	Token         token
	Nonce         uint64
	Line          bool
}

func (r record) held() settle.Ref { return settle.Ref{Token: r.Token, Nonce: r.Nonce} }

// request is one that was sent; Kind says of what, and Look is one that reads.
type request struct {
	Sent, Look, Landed bool
	Kind               settle.Kind
	Session            uint8
	Nonce              uint64 // Acquire
	Supersedes         token
	Held               settle.Ref // Release, Transfer
	To, ToSession      uint8
	Offer              uint64
	Void               bool // the caller was told that it is not applied
	Past               bool // it is of an operation that has ended
	Answer             settle.Answer
	Line               bool
	Gone               bool // the answer: the session is gone
}

// queued is an operation that is next, if there is one.
type queued struct {
	Any bool
	settle.Op
}

// node is a Keeper with a lease of the name.
type node struct {
	At    state
	Queue [2]queued
	Out   bool // the bound of the operation has passed

	Session uint8 // the present one; 0: none was opened yet
	Over    bool  // the trust in it
	Dead    uint8 // by the store, this session and all before are
	HeldBy  uint8 // the session of the term
	Hangs   bool  // the name has a parent
	Orphan  bool  // whose term has ended, for good
	Child   bool  // something stands that hangs on the name
	Closing bool
	Setback bool
	Doubt   bool // the name is suspect
	Asked   bool // and so is what may land late
	Offer   uint64
	Given   token // that was transferred to it, as a watch told
	Moved   bool  // a transfer of the operation was applied
	Clean   bool  // nothing has gone wrong for the operation
	Sends   uint8 // its requests so far
	Heard   bool  // it was told what was transferred to its offer
	Crossed bool  // a late claim has landed meanwhile
	Request request
	Late    [2]request
	Told    [4]token // deletions that the watch has yet to tell
	Target  uint8    // the session of the offer that is transferred to
}

// bounds are how much can happen.
type bounds struct {
	Calls, Lates, Losts, Expiries, Removals, Leaves, Parents, Children, Closes, Setbacks, Denials uint8
}

// world is one state.
type world struct {
	Rec   record
	Last  token
	Tags  uint64 // nonces that were given out
	N     [nodes]node
	Left  bounds
	Alone bool     // node b has no users
	Err   [1]uint8 // the rule that was broken, by its number
}

var rules = []error{nil, errReason, errSure, errNeedless, errUndone, errSilent, errTooLate, errServed, errTwo, errBelieves, errGrows, errStray, errWon, errHeldBy, errStands, errMoved, errRefused, errLine, errChild, errReplies}

func (w *world) broke(rule error) {
	if w.Err[0] == 0 {
		w.Err[0] = uint8(slices.Index(rules, rule))
	}
}

func (w *world) alive(i int) bool {
	n := &w.N[i]
	return n.At.Status == settle.Held && n.HeldBy == n.Session && !n.Over && !(n.Hangs && n.Orphan)
}

// next issues a token.
func (w *world) next() token { w.Last++; return w.Last }

// remove deletes the record; watches will tell.
func (w *world) remove() {
	w.Rec = record{}
	at := w.next()
	for i := range w.N {
		n := &w.N[i]
		n.Clean = false
		if at0 := slices.Index(n.Told[:], 0); at0 >= 0 {
			n.Told[at0] = at
		} else { // the oldest is of no account beside the others
			copy(n.Told[:], n.Told[1:])
			n.Told[len(n.Told)-1] = at
		}
	}
}

// land applies a request of node i.
func (w *world) land(i int, r *request) {
	n := &w.N[i]
	r.Landed = true
	answer := func() {
		r.Answer.Record = settle.Ref{}
		if w.Rec.Node != 0 {
			r.Answer.Record = w.Rec.held()
		}
		r.Answer.Ours = int(w.Rec.Node) == i+1
		r.Line = w.Rec.Line
	}
	defer answer()
	switch {
	case r.Look:
		r.Answer.Another = int(w.Rec.Node) == i+1 && w.Rec.Nonce == n.Offer && n.Offer != 0
	case r.Kind == settle.Acquire:
		switch ours := int(w.Rec.Node) == i+1 && w.Rec.Token == r.Supersedes; {
		case r.Session <= n.Dead:
			r.Gone = true
		case n.Hangs && n.Orphan: // the store compares the parent's record
			r.Answer.Fault = settle.Other
		case w.Rec.Node == 0 || ours:
			line := ours && w.Rec.Line
			if r.Answer.OK = true; ours {
				r.Answer.Replaced = w.Rec.Token
			}
			w.Rec = record{Node: uint8(i + 1), Session: r.Session, Token: w.next(), Nonce: r.Nonce, Line: line}
		}
	case w.Rec.Node == 0 || w.Rec.held() != r.Held:
		r.Answer.Moved = r.Kind == settle.Transfer && w.Rec.Node == r.To && w.Rec.Nonce == r.Offer
	case r.Kind == settle.Release:
		if n.Offer != 0 && w.Rec.Nonce == n.Offer {
			w.broke(errServed)
		}
		r.Answer.OK = true
		clean := n.Clean
		w.remove()
		n.Clean = clean
	case r.ToSession <= w.N[r.To-1].Dead:
		r.Answer.Fault = settle.SessionGone
	default:
		if r.Void {
			w.broke(errRefused)
		}
		r.Answer.OK, n.Moved = true, true
		w.Rec = record{Node: r.To, Session: r.ToSession, Token: w.next(), Nonce: r.Offer, Line: true}
	}
}

// step takes the operation of node i a step on, as a Keeper does.
func (w *world) step(i int, e settle.Event) {
	n := &w.N[i]
	e.Now = settle.Facts{
		Alive: w.alive(i), Orphaned: n.At.Kind == settle.Acquire && n.Hangs && n.Orphan, Children: n.Child,
		Behind: n.Queue[0].Any, Suspect: n.Doubt || n.Asked, Late: n.Out, Spent: n.Out,
		Trusted: n.Request.Session == n.Session && !n.Over, Closing: n.Closing, Setback: n.Setback,
	}
	if e.What == settle.Begin && n.At.Offer != 0 && n.At.Offer == n.Offer && n.At.Kind == settle.Acquire && n.Given != 0 {
		e.Now.Given, n.Heard = settle.Ref{Token: n.Given, Nonce: n.Offer}, true
	}
	was := n.At
	n.clean(e)
	next, todo := next(n.At, e)
	n.At = next
	w.judge(i, was, e, todo)
	n.At.Attempts, n.At.Failures = min(n.At.Attempts, 2), 0
	for _, do := range todo.Of[:todo.N] {
		switch do.Do {
		case settle.Doubt:
			n.Doubt, n.Asked = true, true
		case settle.Hold:
			w.held(i, was)
		case settle.Reply:
			w.reply(i, was, e, do)
			if n.At.Kind == settle.Acquire && n.At.Offer != 0 {
				w.closeOffer(i, n.At.Offer)
			}
		case settle.Proceed:
			if !n.At.Replied {
				w.broke(errReplies)
			}
			w.begin(i)
		}
	}
}

// begin begins what is queued.
func (w *world) begin(i int) {
	n := &w.N[i]
	o := n.Queue[0]
	for j := range n.Late {
		n.Late[j].Past = n.Late[j].Sent
	}
	n.At.Op, n.Request, n.Moved, n.Out = settle.Op{}, request{}, false, false
	n.Clean, n.Sends, n.Heard, n.Crossed = !n.Doubt && !n.Asked, 0, false, false
	if !o.Any {
		return
	}
	n.Queue[0], n.Queue[1] = n.Queue[1], queued{}
	n.At.Op = o.Op
	w.step(i, settle.Event{What: settle.Begin})
}

// held: a term begins.
func (w *world) held(i int, was state) {
	n := &w.N[i]
	n.HeldBy = n.Request.Session
	if n.At.Stands.Token <= was.Last {
		w.broke(errGrows)
	}
	if continues := n.At.Offer != 0 && n.At.Given == n.At.Stands.Token; continues && !n.Request.Line || n.Clean && n.At.Offer != 0 && !continues && n.Request.Line {
		w.broke(errLine)
	}
	if n.Offer != 0 { // what was offered is served
		n.Offer, n.Given, n.Doubt = 0, 0, true
	}
}

// clean notes what goes wrong for the operation.
func (n *node) clean(e settle.Event) {
	wrong := e.Fault != settle.None || e.Answer.Fault != settle.None || e.Now.Orphaned || e.Now.Closing || e.Now.Setback
	switch e.What {
	case settle.Left, settle.Dropped, settle.Deleted, settle.NoAnswer, settle.NoSession:
		wrong = true
	case settle.Answered:
		wrong = wrong || !e.Now.Trusted && n.At.Kind == settle.Acquire
	}
	n.Clean = n.Clean && !wrong
}

// judge looks at one step of the operation of node i.
func (w *world) judge(i int, was state, e settle.Event, todo settle.Effects) {
	n := &w.N[i]
	lost, ended := false, false
	for _, do := range todo.Of[:todo.N] {
		switch do.Do {
		case settle.Lose:
			lost = true
			if (do.Why == settle.RecordGone) != (e.What == settle.Deleted) {
				w.broke(errReason)
			}
		case settle.EndTerm:
			ended = true
		case settle.Pause, settle.Doubt, settle.CountBack:
			if n.Clean {
				w.broke(errNeedless)
			}
		}
	}
	over := was.Status == settle.Held && n.At.Status == settle.Ended
	if over != (lost || ended) || lost && e.Now.Alive && e.What != settle.Deleted || ended && !e.Now.Alive {
		w.broke(errSilent)
	}
	if was.Kind == settle.Acquire && n.Out && !e.Answer.OK && !e.Now.Orphaned && e.What != settle.Sent && e.What != settle.Begin && was.Phase != n.At.Phase &&
		(n.At.Phase == settle.Ready || n.At.Phase == settle.Pausing) {
		w.broke(errTooLate)
	}
	switch e.What {
	case settle.NoAnswer:
		w.judgeFailure(i, was, e)
	case settle.NoSession:
		ends := e.Fault == settle.Denied || n.At.Abandoned || n.Out || n.Closing || n.Setback || e.Now.Orphaned
		if ends != (n.At.Phase == settle.Idle) && !n.At.Unknown {
			w.broke(errUndone)
		}
	}
	if e.What == settle.Begin {
		asks := n.At.Phase != settle.Idle
		switch {
		case e.Now.Setback:
			if asks {
				w.broke(errNeedless)
			}
		case e.Now.Orphaned && asks != (was.Stands != settle.Ref{}):
			w.broke(errNeedless)
		case e.Now.Orphaned:
		case was.Kind == settle.Acquire && e.Now.Alive, was.Kind == settle.Release && was.Status == settle.Free && !e.Now.Suspect,
			was.Kind == settle.Transfer && !e.Now.Alive:
			if asks {
				w.broke(errNeedless)
			}
		case !asks:
			w.broke(errUndone)
		}
	}
}

// judgeFailure looks at a step after a request that got no answer.
func (w *world) judgeFailure(i int, was state, e settle.Event) {
	n := &w.N[i]
	over := n.At.Phase == settle.Idle
	definite := e.Fault == settle.Denied || was.Kind == settle.Acquire && e.Fault == settle.SessionGone || was.Kind == settle.Transfer && e.Fault == settle.Unsupported
	idle := e.Now.Orphaned || was.Abandoned && !n.Out // nothing has a use for the acquisition
	switch {
	case definite && n.At.Unknown != was.Unknown, !definite && !n.At.Unknown && !over:
		w.broke(errSure)
	case e.Fault == settle.Denied || definite && was.Kind == settle.Transfer:
		if !over {
			w.broke(errNeedless)
		}
	case n.Closing && was.Kind != settle.Release, n.Setback:
	case was.Kind == settle.Acquire && idle:
		if looks := n.At.Kind == settle.Release; looks != n.At.Unknown {
			w.broke(errUndone)
		}
	case was.Kind == settle.Release && was.Abandoned && over != (was.Attempts >= 2):
		w.broke(errUndone)
	}
}

// unsure: something of the operation of node i may be applied yet, or was, and no answer says so.
func (n *node) unsure(e settle.Event) bool {
	for _, r := range n.Late {
		if r.Sent && !r.Past {
			return true
		}
	}
	return n.Request.Sent && !n.Request.Look && e.What != settle.Answered
}

// reply judges an answer to a caller.
func (w *world) reply(i int, was state, e settle.Event, do settle.Effect) {
	n := &w.N[i]
	ours := int(w.Rec.Node) == i+1
	a := e.Answer
	warranted := map[settle.Why]bool{
		settle.Plainly:        do.OK || was.Kind == settle.Release,
		settle.AsAnswered:     e.Fault != settle.None || a.Fault != settle.None,
		settle.AnotherHolds:   e.What == settle.Answered && !a.OK && a.Fault == settle.None && !a.Ours && a.Record != settle.Ref{},
		settle.NotHeld:        e.What == settle.Begin && !e.Now.Alive,
		settle.LeftByCaller:   e.What == settle.Left || e.What == settle.Dropped,
		settle.ParentLost:     e.Now.Orphaned,
		settle.NodeClosed:     n.Closing && was.Kind != settle.Release,
		settle.InSetback:      n.Setback,
		settle.NotSettled:     n.Out,
		settle.NotAnswered:    n.Out,
		settle.Refused:        was.Kind == settle.Transfer && (e.Fault == settle.Denied || e.What == settle.Answered && !a.OK),
		settle.MaybeMoved:     was.Unknown && !a.Ours,
		settle.ChildrenHeld:   n.Child && was.Kind != settle.Transfer,
		settle.ChildrenRefuse: n.Child && was.Kind == settle.Transfer,
	}
	switch {
	case !warranted[do.Why]:
		w.broke(errReason)
	case do.Maybe && n.Clean:
		w.broke(errUndone)
	case !do.OK && !do.Maybe && do.Why != settle.Plainly && do.Why != settle.AnotherHolds && !a.OK && n.unsure(e):
		w.broke(errSure)
	}
	switch was.Kind {
	case settle.Acquire:
		switch {
		case do.OK && n.At.Status != settle.Held:
			w.broke(errWon)
		case do.Why == settle.AnotherHolds && n.At.Status != settle.Free:
			w.broke(errHeldBy)
		}
	case settle.Release:
		stood := n.Request.Answer.Ours && !n.Request.Answer.Another // when it was answered
		if !n.Request.Sent {
			stood = ours && !n.Doubt && !n.Asked && (n.Offer == 0 || w.Rec.Nonce != n.Offer)
		}
		if do.Why == settle.Plainly && stood && !n.Crossed { // else it is looked for
			w.broke(errStands)
		}
	case settle.Transfer:
		switch {
		case do.OK && !n.Moved:
			w.broke(errMoved)
		case !do.OK && e.What == settle.Answered && a.Fault == settle.None && a.Record != was.Stands && n.At.Status != settle.Free:
			w.broke(errUndone) // it was lost before
		case !do.OK && !do.Maybe && n.Moved:
			w.broke(errRefused)
		case !do.OK && !do.Maybe:
			for j := range n.Late {
				n.Late[j].Void = n.Late[j].Sent && n.Late[j].Kind == settle.Transfer
			}
		}
	}
}

// check is what holds in every state.
func (w world) check() error {
	if w.Err[0] != 0 {
		return rules[w.Err[0]]
	}
	believers := 0
	for i := range w.N {
		n := &w.N[i]
		ours := int(w.Rec.Node) == i+1
		told := slices.ContainsFunc(n.Told[:], func(at token) bool { return at >= n.At.Stands.Token })
		if w.alive(i) && !told {
			believers++
			if !ours || w.Rec.Token != n.At.Stands.Token {
				return errBelieves
			}
		}
		claimed := n.At.Status != settle.Free && n.At.Stands.Token == w.Rec.Token || n.At.Phase != settle.Idle ||
			n.Offer != 0 && n.Offer == w.Rec.Nonce
		if n.At.Phase == settle.Waiting && n.At.Replied && n.Queue[0].Any {
			return errUndone
		}
		if ours && !claimed && !n.Doubt && !n.Asked && w.Rec.Session > n.Dead && w.Rec.Session == n.Session && !n.Over {
			return errStray
		}
	}
	if believers > 1 {
		return errTwo
	}
	return nil
}

// rest is a state in which nothing is left to be done.
func (w world) rest() bool {
	for i := range w.N {
		n := &w.N[i]
		if n.At.Phase != settle.Idle || n.Queue[0].Any || n.Late != [2]request{} || n.Doubt || n.Asked ||
			n.Told[0] != 0 || n.At.Status == settle.Held && !w.alive(i) {
			return false
		}
		ours := int(w.Rec.Node) == i+1
		if ours && (n.At.Status == settle.Free || n.At.Stands.Token != w.Rec.Token) && n.Offer == 0 && w.Rec.Session == n.Session && !n.Over {
			return false
		}
	}
	return true
}

// zeros are what a state does not have.
var zeros = regexp.MustCompile(`\w+:(0|false|\{\s*\}|\[[\s{}0]*\])? ?`)

func (w world) show() string {
	s := fmt.Sprintf("store: %+v, last %d; left %+v", w.Rec, w.Last, w.Left)
	for i, n := range w.N {
		s += fmt.Sprintf("\n%c: %+v", 'a'+i, n)
	}
	for was := ""; was != s; {
		was, s = s, zeros.ReplaceAllStringFunc(s, func(f string) string {
			if strings.HasSuffix(strings.TrimSpace(f), ":") { // its value is not zero
				return f
			}
			return ""
		})
	}
	return s
}

// renumbered has tokens and nonces by their order alone.
func (w world) renumbered() world {
	var bufTokens [64]*token
	var bufNonces [64]*uint64
	tokens, nonces := bufTokens[:0], bufNonces[:0]
	held := func(h *settle.Ref) { tokens, nonces = append(tokens, &h.Token), append(nonces, &h.Nonce) }
	tokens = append(tokens, &w.Rec.Token, &w.Last)
	nonces = append(nonces, &w.Rec.Nonce, &w.Tags)
	for i := range w.N {
		n := &w.N[i]
		held(&n.At.Stands)
		tokens = append(tokens, &n.At.Last, &n.At.Seen, &n.At.Gone, &n.At.Given, &n.Given)
		nonces = append(nonces, &n.At.Nonce, &n.At.Offer, &n.Offer, &n.Queue[0].Offer, &n.Queue[1].Offer)
		for j := range n.Told {
			tokens = append(tokens, &n.Told[j])
		}
		for _, r := range []*request{&n.Request, &n.Late[0], &n.Late[1]} {
			held(&r.Held)
			held(&r.Answer.Record)
			tokens = append(tokens, &r.Supersedes, &r.Answer.Replaced)
			nonces = append(nonces, &r.Nonce, &r.Offer)
		}
	}
	explore.Rank(tokens)
	explore.Rank(nonces)
	return w
}

// state is all that decisions are made from, beside the circumstances.
type state struct {
	settle.Claim
	settle.Op
}

// next is Next on a copy.
func next(at state, e settle.Event) (state, settle.Effects) {
	out := settle.Next(&at.Claim, &at.Op, &e)
	return at, out
}
