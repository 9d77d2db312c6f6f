// Package settle decides how an operation of a lease goes on: acquire, release, transfer or adopt, from
// the call to its definite end. It is a pure function, [Next], of what a node knows of the name, and of
// what happens. Nothing here asks a store, waits, or tells anybody; the owner of an [Op] carries its
// effects out, in order.
//
// The one rule behind it: an outcome that is not known is never settled by reading, as the request may
// still land after the read. Only a conditional write that yields a newer token makes a lease alive
// again, and what may land late is left to reconciliation, which looks at the names that are suspect.
//
//	phase    what is going on                       leaves on
//	Idle     nothing                                Begin
//	Waiting  children of a name to be given up      Rested, Left, Overtaken
//	Ready    a request is about to be sent          Sent, Unwanted, NoSession
//	Asked    a request is under way                 Answered, Looked, NoAnswer
//	Pausing  before another attempt                 Due
//
// Left, Dropped, Deleted and Forgotten can come in every phase, and change none but Waiting.
package settle

import "github.com/holdfast-go/holdfast/store"

// Status is what a node knows of its lease.
//
//	           won (new token)               lost, or given up
//	┌──────┐ ───────────────────▶ ┌──────┐ ───────────────────▶ ┌───────┐
//	│ Free │                      │ Held │                      │ Ended │
//	└──────┘ ◀──┐                 └──────┘ ◀── won (newer) ──── └───────┘
//	            └──────────── dropped: nothing of ours stands ──────┘
type Status uint8

const (
	// Free: nothing of this lease stands, as far as is known.
	Free Status = iota
	// Held: a term that nothing ended yet. CheckAlive can be true in no other; even then the session's
	// deadline decides.
	Held
	// Ended: a term that is over while its record may still stand. The record stays claimed: work may
	// still be running under it.
	Ended
)

// Ref is one ownership of the name.
type Ref struct {
	Token store.Token
	Nonce uint64
}

// Claim is what a lease claims of its name.
type Claim struct {
	Status Status
	Stands Ref         // what stands, or may: a claim replaces it, a release or transfer gives it up; zero while Free
	Last   store.Token // the highest token the lease ever had
	Seen   store.Token // the highest token of the name that was ever seen, of any owner
}

// End ends the term, if there is one: it is lost, or about to be given up.
func (c *Claim) End() {
	if c.Status == Held {
		c.Status = Ended
	}
}

// Drop forgets what may still stand.
func (c *Claim) Drop() { c.Status, c.Stands = Free, Ref{} }

// Kind is what an operation is to do. An adoption is an Acquire with an Offer.
type Kind uint8

// The kinds.
const (
	Acquire Kind = iota
	Release
	Transfer
)

// Phase is where an operation stands; the package's doc has them all.
type Phase uint8

// The phases.
const (
	Idle Phase = iota
	Waiting
	Ready
	Asked
	Pausing
)

// Op is one operation. A lease has one at a time; the others queue behind it.
type Op struct {
	Kind      Kind
	Phase     Phase
	Sent      bool  // a request was sent: it may be applied
	Unknown   bool  // the outcome of an attempt is unknown: it may still land
	Abandoned bool  // the caller has left: an acquisition that wins is given back
	Replied   bool  // the caller has its answer
	Attempts  int   // that were made
	Failures  uint8 // of these, how many in a row came to nothing: pauses grow with them

	Offer uint64      // the nonce of the offer that is adopted, or transferred to; 0: none
	Nonce uint64      // of the claim that was sent last
	Gone  store.Token // the highest token that is known to have been deleted
	Given store.Token // the token of the record that was transferred to Offer, or has replaced it since
}

// What is what can happen.
type What uint8

// The events.
const (
	Begin     What = iota // the operation is next
	Sent                  // a request is about to be sent, of an Acquire with Event.Nonce
	Unwanted              // its caller has left, and it was not sent
	NoSession             // nor was it, as there is no session for it
	NoAnswer              // none came, or an error (Event.Fault) that is not about the name
	Answered              // Event.Answer
	Looked                // Event.Answer has the record that stands, of a release that does not know
	Due                   // the pause is over
	Rested                // nothing that hangs on the name stands any more
	Overtaken             // another operation is next
	Left                  // the caller leaves
	Dropped               // a Release or Close takes an Acquire's place
	Deleted               // Event.Token of the name was deleted
	Forgotten             // the store's history went back, and that was accepted
)

// Fault is what is wrong, as far as it matters.
type Fault uint8

// The faults.
const (
	None        Fault = iota
	SessionGone       // definite: nothing was applied
	Denied            // definite, as far as this request goes
	Unsupported
	Other // among them: the record of the parent's term does not stand
)

// Answer is the store's for the name.
type Answer struct {
	OK       bool
	Fault    Fault
	Record   Ref  // that stands; zero: none does
	Ours     bool // it is of this incarnation
	Another  bool // Looked: and came of no acquisition of this lease
	Moved    bool // it is of the maker of Op.Offer, and came of a transfer to that
	Replaced store.Token
}

// Event is what happens, and when.
type Event struct {
	What   What
	Now    Facts
	Answer Answer
	Fault  Fault       // NoSession, NoAnswer
	Nonce  uint64      // Sent
	Token  store.Token // Deleted
}

// Facts are the circumstances at the moment of an event.
type Facts struct {
	Alive    bool // the lease's term is
	Orphaned bool // the parent's term that the operation is for is not, or there is none
	Children bool // something that hangs on the name stands
	Behind   bool // another operation is queued
	Suspect  bool // something of the name may land late
	Trusted  bool // Answered: so is the session that was asked under
	Late     bool // no further attempt may be made
	Spent    bool // nor after a pause
	Closing  bool // the node's: it acquires no more
	Closed   bool // and does nothing more
	Setback  bool // the store's history went back
	ByStore  bool // and the store itself says so
	Given    Ref  // Acquire, to adopt: the record that was transferred to the offer, once that was told
}

// Do is what has to be done.
type Do uint8

// The effects.
const (
	Send      Do = iota // the request of the operation's kind
	Await               // what hangs on the name
	Pause               // then it is Due
	Lose                // the term: why it ended
	EndTerm             // it is given up
	Forget              // that anything of it may stand
	Doubt               // the name: something of it stands, or may land late
	Hold                // a term begins, by the answer; OK: it settled what was unknown, or replaced
	CountBack           // what was won, or may come to be, is given back
	Reply               // to the caller: OK and Why
	Note                // for logs and errors: why a win does not count
	Proceed             // with what is queued: it has ended, as OK and Why say
)

// Why says more of an end, for errors and logs.
type Why uint8

// The reasons.
const (
	Plainly        Why = iota // there is no more to say
	Expired                   // the session's deadline passed
	RecordGone                // the record was deleted
	AsAnswered                // the fault says why
	AnotherHolds              // the name
	NotHeld                   // there is no term to transfer
	LeftByCaller              // or by another call of it
	ParentLost                // the parent's term has ended
	NodeClosed                // no more is done
	InSetback                 // the store's history went back
	Inconsistent              // the answer is not one to the claim
	EarlierStands             // the record of an earlier claim does
	NoReason                  // an answer that refuses, and does not say why
	NotSettled                // in time, though the store answers
	NotAnswered               // in time
	Refused                   // a transfer was surely not applied
	MaybeMoved                // an earlier attempt of it may have been applied
	ChildrenHeld              // something that hangs on the name stands
	ChildrenRefuse            // so a transfer was surely not applied
)

// Effect is one thing to be done. Maybe: what was asked for may be applied, so the error is an unknown
// outcome.
type Effect struct {
	Do    Do
	OK    bool
	Maybe bool
	Why   Why
}

// Effects are what has to be done, in order.
type Effects struct {
	N  int
	Of [8]Effect
}

// step is one call of Next.
type step struct {
	*Claim
	*Op
	e   *Event
	out *Effects
}

// Next is the machine. It takes c and o on in place, which spares the stacks of callers two copies, and
// depends on nothing else.
func Next(c *Claim, o *Op, e *Event) (out Effects) {
	s := &step{c, o, e, &out}
	switch e.What {
	case Begin:
		s.begin()
	case Sent:
		s.Phase, s.Sent = Asked, true
		s.Attempts++
		if s.Kind == Acquire {
			s.Nonce = e.Nonce
		}
	case Unwanted:
		s.fail(LeftByCaller)
	case NoSession:
		s.Attempts++
		if e.Fault == Denied {
			s.fail(AsAnswered)
		} else {
			s.retry()
		}
	case NoAnswer:
		s.unanswered(e.Fault)
	case Looked:
		s.looked(e.Answer)
	case Answered:
		s.Seen = max(s.Seen, e.Answer.Record.Token)
		switch {
		case s.Kind == Acquire:
			s.acquired(e.Answer)
		case s.Kind == Transfer:
			s.moved(e.Answer)
		case e.Answer.Fault != None:
			s.unanswered(e.Answer.Fault)
		default: // removed, or it had gone before
			s.gone()
		}
	case Due:
		if s.e.Now.Closed || s.Abandoned {
			s.retry()
		} else {
			s.send()
		}
	case Rested:
		if s.e.Now.Setback {
			s.failed(InSetback, true)
		} else {
			s.send()
		}
	case Overtaken:
		s.giveWay()
	case Left:
		s.left()
	case Dropped:
		s.Abandoned = true
		s.reply(false, LeftByCaller, s.Sent)
	case Deleted:
		s.deleted()
	case Forgotten:
		s.Last, s.Seen, s.Gone = 0, 0, 0
		if s.Status == Held {
			s.Last, s.Seen = s.Stands.Token, s.Stands.Token
		}
	}
	return out
}

func (s *step) do(d Do, why Why) { s.add(Effect{Do: d, Why: why}) }

func (s *step) add(e Effect) {
	s.out.Of[s.out.N] = e
	s.out.N++
}

func (s *step) drop() {
	s.Drop()
	s.do(Forget, Plainly)
}

// reply answers the caller, once.
func (s *step) reply(ok bool, why Why, maybe bool) {
	if !s.Replied {
		s.Replied = true
		s.add(Effect{Do: Reply, OK: ok, Why: why, Maybe: maybe})
	}
}

// end ends the operation: what of it may still land is suspect.
func (s *step) end(ok bool, why Why, maybe bool) {
	if s.Unknown {
		s.do(Doubt, Plainly)
	}
	s.Phase = Idle
	s.reply(ok, why, maybe)
	s.add(Effect{Do: Proceed, OK: ok, Why: why})
}

// fail ends it without a definite outcome.
func (s *step) fail(why Why) { s.failed(why, s.Unknown) }

func (s *step) failed(why Why, maybe bool) {
	if s.Kind != Transfer {
		// The caller of Acquire or Release has nothing running under the old term. After a Transfer the
		// claim stays until it calls one of them.
		if s.Stands != (Ref{}) {
			s.do(Doubt, Plainly)
		}
		s.drop()
	}
	s.end(false, why, maybe)
}

func (s *step) begin() {
	if !s.e.Now.Alive && s.Status == Held { // found dead before anything else noticed
		s.End()
		s.do(Lose, Expired)
	}
	switch s.Kind {
	case Acquire:
		switch {
		case s.e.Now.Alive:
			s.end(true, Plainly, false)
		case s.e.Now.Setback:
			s.fail(InSetback)
		case s.e.Now.Orphaned && s.Stands != Ref{}:
			s.giveBack(s.Stands, ParentLost, false) // the caller has nothing running under it
		case s.e.Now.Orphaned:
			s.end(false, ParentLost, false)
		default:
			if g := s.e.Now.Given; g.Token > s.Stands.Token {
				s.stands(g)
				s.Given = g.Token
			}
			s.send()
		}
	case Release:
		s.stop()
		switch {
		case s.Status == Free && !s.e.Now.Suspect:
			s.end(false, Plainly, false)
		case s.e.Now.Setback:
			s.failed(InSetback, true)
		default:
			s.part()
		}
	case Transfer:
		if !s.e.Now.Alive {
			s.end(false, NotHeld, false)
			return
		}
		s.stop()
		s.part()
	}
}

// stands notes a record of this node's, with no term.
func (s *step) stands(r Ref) { s.Status, s.Stands, s.Last = Ended, r, max(s.Last, r.Token) }

// stop ends the term at its owner's wish.
func (s *step) stop() {
	if s.Status == Held {
		s.End()
		s.do(EndTerm, Plainly)
	}
}

// part gives up what stands, when nothing that hangs on the name does. Nothing can begin to, as the term
// that it would begin under has ended.
func (s *step) part() {
	if !s.e.Now.Children {
		s.send()
		return
	}
	s.Phase = Waiting
	s.do(Await, Plainly)
	s.yield()
}

func (s *step) send() {
	s.Phase = Ready
	s.do(Send, Plainly)
}

// giveBack turns a win whose caller has gone into a release. One that is not known, the zero record, is
// looked for first.
func (s *step) giveBack(won Ref, why Why, maybe bool) {
	s.do(CountBack, Plainly)
	if s.drop(); won != (Ref{}) {
		s.stands(won)
	}
	s.reply(false, why, maybe)
	s.Kind, s.Failures, s.Abandoned = Release, 0, false
	s.part()
}

// giveWay ends a release that waits for children, if its caller has gone: what comes next settles the
// name.
func (s *step) giveWay() (gone bool) {
	if s.Phase != Waiting || !s.Replied {
		return false
	}
	if s.Unknown {
		s.do(Doubt, Plainly)
	}
	s.Phase = Idle
	return true
}

// yield gives way to what is queued.
func (s *step) yield() {
	if s.e.Now.Behind && s.giveWay() {
		s.do(Proceed, Plainly)
	}
}

// left: what is under way goes on without a caller.
func (s *step) left() {
	if s.Replied {
		return
	}
	s.Abandoned = true
	switch {
	case s.Phase != Waiting:
		s.reply(false, LeftByCaller, true)
	case s.Kind == Transfer:
		s.end(false, ChildrenRefuse, false)
	default:
		s.reply(false, ChildrenHeld, true)
		s.yield()
	}
}

// unanswered: there is no answer.
func (s *step) unanswered(f Fault) {
	switch moves := s.Kind == Transfer && !s.Unknown; {
	case moves && f == Denied:
		s.end(false, Refused, false) // it is ours still: the claim stays until Acquire or Release
	case f == Denied, f == Unsupported && s.Kind == Transfer:
		s.fail(AsAnswered)
	case f == SessionGone && s.Kind == Acquire: // definite: nothing was applied
		s.retry()
	default:
		s.Unknown = true
		s.retry()
	}
}

// retry sends again after a pause that grows, unless its bounds are reached.
func (s *step) retry() {
	switch now := &s.e.Now; {
	case now.Closed, now.Closing && s.Kind != Release:
		s.fail(NodeClosed)
	case now.ByStore:
		s.fail(InSetback)
	case now.Orphaned:
		s.unwanted(ParentLost)
	case s.Abandoned && s.Kind == Acquire && !now.Late:
		s.unwanted(LeftByCaller)
	case s.Abandoned && s.Kind == Release && s.Attempts < 2:
		s.send() // the one attempt may have ended with its caller
	case s.Abandoned, now.Spent:
		s.failed(NotAnswered, true)
	default:
		s.Failures = min(s.Failures+1, 100)
		s.Phase = Pausing
		s.do(Pause, Plainly)
	}
}

// unwanted ends a claim that is of no use any more. If it may stand it is looked for, and released.
func (s *step) unwanted(why Why) {
	if !s.Unknown {
		s.fail(why)
		return
	}
	s.giveBack(Ref{}, why, true)
}

// acquired: a definite answer to a claim.
func (s *step) acquired(a Answer) {
	switch {
	case a.Fault != None: // of this one: an earlier request may have landed
		s.fail(AsAnswered)
	case a.OK:
		s.won(a)
	case a.Ours && a.Record.Token != s.Stands.Token:
		// An earlier request of ours landed. Own it again, so that whatever is still under way finds
		// its condition broken.
		s.stands(a.Record)
		if a.Record.Nonce == s.Offer {
			s.Given = a.Record.Token
		}
		s.do(Note, EarlierStands)
		s.claimAgain()
	case a.Ours, a.Record == Ref{}:
		s.do(Note, NoReason)
		s.retry()
	default:
		s.drop()
		s.end(false, AnotherHolds, false)
	}
}

// claimAgain repeats a claim at once: the next one settles it.
func (s *step) claimAgain() {
	if s.Abandoned || s.e.Now.Closing || s.e.Now.Late {
		s.fail(NotSettled)
		return
	}
	s.send()
}

// won: the store made us owner.
func (s *step) won(a Answer) {
	if s.Given != 0 && a.Replaced == s.Given {
		s.Given = a.Record.Token // what was transferred goes on in this
	}
	switch {
	case a.Record.Nonce != s.Nonce, a.Record.Token == 0:
		s.do(Note, Inconsistent)
		s.giveBack(a.Record, Inconsistent, false)
	case s.e.Now.Setback:
		s.giveBack(a.Record, InSetback, false)
	case s.Abandoned, s.e.Now.Closing:
		s.giveBack(a.Record, NodeClosed, false)
	case !s.e.Now.Trusted:
		s.winAgain(a.Record, Expired)
	case a.Record.Token <= s.Gone: // it was taken away before its answer came
		s.winAgain(a.Record, RecordGone)
	case s.e.Now.Orphaned:
		s.giveBack(a.Record, ParentLost, false)
	default:
		settled := s.Unknown || s.Stands != Ref{}
		s.Status, s.Stands, s.Last = Held, a.Record, a.Record.Token
		s.add(Effect{Do: Hold, OK: settled})
		s.end(true, Plainly, false)
	}
}

// winAgain: what was won does not count. It may stand or not: own the name under a newer token.
func (s *step) winAgain(r Ref, why Why) {
	s.stands(r)
	s.Unknown = true
	s.do(Note, why)
	s.claimAgain()
}

// looked: what stands was read, for a release that does not know.
func (s *step) looked(a Answer) {
	if !a.Ours || a.Another {
		s.Unknown = true // what was asked for may still land
		s.gone()
		return
	}
	s.stands(a.Record)
}

// gone: nothing of what is released stands.
func (s *step) gone() {
	s.drop()
	s.end(false, Plainly, false)
}

// moved: a definite answer to a transfer.
func (s *step) moved(a Answer) {
	switch {
	case a.OK, a.Moved:
		s.drop() // moved; or an earlier attempt of ours had moved it
		s.end(true, Plainly, false)
	case s.Unknown && a.Fault != None:
		s.fail(AsAnswered) // an earlier attempt may have moved it, or may come to
	case s.Unknown && !a.Ours:
		s.drop() // not ours any more: it may have been moved, and moved on since
		s.end(false, MaybeMoved, true)
	default:
		if a.Fault == None && a.Record != s.Stands {
			s.drop() // it was lost before
			s.do(Doubt, Plainly)
		}
		s.end(false, Refused, false) // while it is ours the claim stays until Acquire or Release
	}
}

// deleted: a watch tells of it, early or late. It can end a term, never begin one.
func (s *step) deleted() {
	switch {
	case s.Phase != Idle && s.Kind == Acquire && s.e.Token > s.Last:
		// It may be about what the operation has won, or is going to, while its answer is on its way: a
		// win at or below it is none any more. And there is another look when all is settled.
		s.Gone = max(s.Gone, s.e.Token)
		s.do(Doubt, Plainly)
	case s.Phase == Idle && s.Status == Held && s.e.Token >= s.Stands.Token:
		s.End()
		s.do(Lose, RecordGone)
	}
}
