package explore

import (
	"errors"
)

// Nodes is how many nodes Leases can have.
const Nodes = 3

// Record is what the store has under the one name. Owner counts from 1; 0: the
// name is free. From is the token of the ownership that was transferred into it; 0
// if it came about otherwise.
type Record struct{ Owner, Session, Token, From uint8 }

// Op is an operation of a Handle.
type Op uint8

// The operations.
const (
	NoOp Op = iota
	Acquire
	Adopt // an Acquire that takes up what was handed over
	Release
	Transfer
)

// Result is how an operation ended, until its caller hears of it.
type Result uint8

// The results. Refused and Unknown say of Acquire: another's, and not known.
const (
	NoResult Result = iota
	Done
	Refused
	Unknown
)

// Late is a request whose caller knows no answer. It may land at any time.
type Late struct {
	Op      Op
	Token   uint8 // its condition; of Acquire 0: the name is free
	Session uint8 // of the new owner
	To      uint8 // Transfer
}

// Handle is one node's lease of the name, with the node's session.
type Handle struct {
	Up            bool
	Session       uint8 // its number; a new one after each end of trust
	Alive         bool  // CheckAlive
	Loss          bool  // that it ended is still to be told
	Claim         uint8 // the token of what stands, or may
	Adopted       uint8 // Record.From of what the last Acquire replaced, if it was to adopt
	Offer         bool  // an offer is open
	Op            Op    // under way
	Result        Result
	To, ToSession uint8 // of a Transfer
	Quiet         bool  // Op's result is not waited for
	Late          Late
}

// Leases is a store with one name, and the Keepers of the nodes, reduced to what
// can be told from outside: conditional requests, answers that may be lost,
// sessions that end, the trust in them ending strictly before. It is plain data.
type Leases struct {
	Rec Record
	H   [Nodes]Handle
}

// Flaws are mistakes that can be planted.
type Flaws struct {
	TrustTooLong     bool // the store's time ends before the holder's trust
	BlindRelease     bool // a Release without a condition
	BlindTransfer    bool // a Transfer without a condition
	NoReconciliation bool // records without a claim are left
}

// ErrTokens: a store issued a token that is not above all before it.
var ErrTokens = errors.New("I2: a token does not grow")

func (l *Leases) next(refs []*uint8) uint8 {
	top := uint8(0)
	for _, p := range l.tokens(refs) {
		top = max(top, *p)
	}
	return top + 1
}

func (l *Leases) tokens(refs []*uint8) []*uint8 {
	all := append(refs, &l.Rec.Token, &l.Rec.From)
	for i := range l.H {
		all = append(all, &l.H[i].Claim, &l.H[i].Adopted)
		if l.H[i].Late.Op != NoOp {
			all = append(all, &l.H[i].Late.Token)
		}
	}
	return all
}

// Compress renumbers tokens, those that refs point to as well: only their order
// counts.
func (l *Leases) Compress(refs ...*uint8) {
	Rank(l.tokens(refs))
}

// Owns reports whether the record is node i's.
func (l *Leases) Owns(i int) bool { return int(l.Rec.Owner) == i+1 }

// Begin begins an operation of node i. It ends trust where that is to end before
// anything is sent. to and session are a Transfer's target.
func (l *Leases) Begin(i int, op Op, to, session uint8) {
	h := &l.H[i]
	if op == Release && h.Op == Release { // behind one that is not waited for
		h.Quiet = false
		return
	}
	h.Op, h.Result, h.Quiet, h.Adopted = op, NoResult, false, 0
	switch op {
	case Transfer:
		if !h.Alive {
			h.Op, h.Result = NoOp, Refused
			return
		}
		h.To, h.ToSession, h.Alive = to, session, false
	case Release:
		h.Alive = false
	}
}

// Hear takes the result of node i's operation.
func (l *Leases) Hear(i int) (r Result) {
	r, l.H[i].Result = l.H[i].Result, NoResult
	return r
}

// Leave: the operation of node i is not waited for any more; its request is under
// way. At most one such request of a node is followed.
func (l *Leases) Leave(i int) {
	if h := &l.H[i]; h.Late.Op == NoOp {
		h.Late = h.request()
	}
	l.end(i, Unknown)
}

func (l *Leases) end(i int, r Result) {
	h := &l.H[i]
	if h.Op == Adopt {
		h.Offer = false
	}
	if h.Op != Transfer || r == Done {
		if r != Done || h.Op == Release || h.Op == Transfer {
			h.Claim = 0
		}
	}
	if !h.Quiet {
		h.Result = r
	}
	h.Op, h.To, h.ToSession, h.Quiet = NoOp, 0, 0, false
}

// Lost ends the trust of node i in its session, and the session: renewals fail,
// or the clock passed the deadline.
func (l *Leases) Lost(i int) {
	h := &l.H[i]
	h.Loss = h.Loss || h.Alive
	h.Session++
	h.Alive, h.Offer = false, false
}

// Crash ends node i. A request may be under way.
func (l *Leases) Crash(i int) {
	h := l.H[i]
	late := h.Late
	if late.Op == NoOp && h.Op != NoOp {
		late = h.request()
	}
	l.H[i] = Handle{Session: h.Session + 1, Late: late}
}

func (h *Handle) request() Late {
	late := Late{Op: h.Op, Token: h.Claim, Session: h.Session}
	switch h.Op {
	case Adopt:
		late.Op = Acquire
	case Transfer:
		late.To, late.Session = h.To, h.ToSession
	}
	return late
}

// Steps tells what the store and the Keepers can do next. refs point to tokens
// outside, in after to those of the copy; unsure is whether outcomes may be
// unknown.
func (l *Leases) Steps(f Flaws, refs []*uint8, unsure bool, tell func(label Label, sure, usedUnsure bool, after Leases, err error)) {
	for i := range l.H {
		n, h := uint8(i+1), &l.H[i]
		if h.Op != NoOp {
			l.answers(f, i, refs, tell)
			if unsure && h.Late.Op == NoOp {
				a := *l
				a.Leave(i)
				tell(Label{"an answer of the store is lost", n, 0}, false, true, a, nil)
			}
		}
		if h.Late.Op != NoOp {
			a := *l
			a.land(f, i, refs)
			tell(Label{"a late request lands", n, 0}, false, false, a, nil)
			a = *l
			a.H[i].Late = Late{}
			tell(Label{"a late request is gone", n, 0}, false, false, a, nil)
		}
		if l.Owns(i) && h.Up && h.Op == NoOp && l.Rec.Token != h.Claim && !f.NoReconciliation {
			a := *l
			a.Rec = Record{}
			tell(Label{"a record nobody claims is released", n, 0}, !h.Offer, false, a, nil)
		}
		if l.Owns(i) && (!h.Up || l.Rec.Session != h.Session || f.TrustTooLong) {
			a := *l
			a.Rec = Record{}
			tell(Label{"the record expires", n, 0}, !h.Up || l.Rec.Session != h.Session, false, a, nil)
		}
	}
}

// answers are the definite ends of node i's operation.
func (l *Leases) answers(f Flaws, i int, refs []*uint8, tell func(label Label, sure, usedUnsure bool, after Leases, err error)) {
	n, h, a := uint8(i+1), &l.H[i], *l
	switch h.Op {
	case Acquire, Adopt:
		if l.Rec.Owner != 0 && !l.Owns(i) {
			a.end(i, Refused)
			tell(Label{"the store refuses an acquire", n, 0}, true, false, a, nil)
			return
		}
		token := l.next(refs)
		a.end(i, Done)
		if a.H[i].Adopted = 0; h.Op == Adopt {
			a.H[i].Adopted = l.Rec.From
		}
		a.Rec = Record{n, h.Session, token, 0}
		a.H[i].Claim, a.H[i].Alive, a.H[i].Loss, a.H[i].Offer = token, true, false, false
		var err error
		if token <= l.Rec.Token {
			err = ErrTokens
		}
		tell(Label{"the store grants an acquire", n, 0}, true, false, a, err)
	case Release:
		if f.BlindRelease || l.Owns(i) && l.Rec.Token == h.Claim {
			a.Rec = Record{}
		}
		a.end(i, Done)
		tell(Label{"the store takes a release", n, 0}, true, false, a, nil)
	case Transfer:
		if l.Rec.Token != h.Claim && !f.BlindTransfer {
			a.end(i, Refused)
			a.H[i].Claim = 0
			tell(Label{"the store refuses a transfer", n, 0}, true, false, a, nil)
			return
		}
		gone := !l.H[h.To-1].Up || l.H[h.To-1].Session != h.ToSession
		if gone {
			b := *l
			b.end(i, Refused)
			tell(Label{"the store refuses a transfer: the session is gone", n, h.To}, true, false, b, nil)
		}
		a.end(i, Done)
		a.Rec = Record{h.To, h.ToSession, l.next(refs), h.Claim}
		tell(Label{"the store transfers", n, h.To}, !gone, false, a, nil)
	}
}

// land carries out node i's late request, if its condition still holds.
func (l *Leases) land(f Flaws, i int, refs []*uint8) {
	late := l.H[i].Late
	switch late.Op {
	case Acquire:
		if l.Rec.Owner == 0 && late.Token == 0 || l.Owns(i) && l.Rec.Token == late.Token {
			l.Rec = Record{uint8(i + 1), late.Session, l.next(refs), 0}
		}
	case Release:
		if l.Owns(i) && l.Rec.Token == late.Token || f.BlindRelease {
			l.Rec = Record{}
		}
	case Transfer:
		if l.Owns(i) && l.Rec.Token == late.Token || f.BlindTransfer {
			l.Rec = Record{late.To, late.Session, l.next(refs), late.Token}
		}
	}
	l.H[i].Late = Late{}
}
