package singleton

import "github.com/holdfast-go/holdfast/internal/handover"

// Each node has one manager for a singleton, an actor. Its phases and transitions
// are a pure function, around that of package handover. How a node becomes the host:
//
//	         free, or to host               won             made
//	Standby ──────────────────▶ Acquiring ───────▶ Starting ─────▶ Active ⇄ Inviting
//	   │ invited                                    ▲    ▲           │
//	   └───────▶ Offering ─▶ Offered ─▶ Adopting ───┘    │           │ child ended
//	                                              won    └─ Backoff ◀┘ by itself
//	                                            pause over
//
// Every other outcome of Acquiring to Adopting (another node has the lease, the outcome is
// not known, the hand-over was called off) leads back to Standby, to wait. A lease that was
// won and is not wanted any more leads to Releasing. How a node ceases to be the host:
//
//	          an offer, or                      ended, with an offer
//	Inviting ──────────────▶ HandingOver ─────────────────────▶ Transferring ─▶ Standby
//	          no node to ask   │      │ ended, without one           │ failed
//	           overdue, yields │      └──────────▶ Releasing ◀───────┘
//	                           ▼                    ▲     └─ done ─▶ Standby
//	                        Yielding                │
//	             a TTL later   ▼                    │
//	             lost ───▶ Stopping ─── ended ──────┘
//
// "Ended" means that the actor has ended and all its mail is back. If the offer is too old by
// then, the host asks for a new one before it transfers the lease (Asking). A child that fails at
// once, time and again, leads from Backoff to Asking, and the node goes last for a while.
// A lost lease leads to
// Stopping from Starting and from every phase with a child, and to Releasing from Backoff. A child
// that is not made in time leads from Starting to Stopping. The end of a child leads from Inviting
// to Releasing. In Yielding the child may still end, as in HandingOver. Manager.Stop leads from every phase to Closed, through the same steps.

// This file is the manager's behaviour as a pure function: phases, events and effects.
// handover.Machine moves the lease. Around it a singleton seeks the lease, and makes and restarts
// its child. controller.go carries the effects out.

// Phase is what a manager does about its singleton on this node.
type Phase uint8

const (
	// Standby: this node does not hold the lease; another node may.
	Standby Phase = iota
	// Acquiring: one Acquire is under way.
	Acquiring
	// Offering: the host invited this node to take over; an offer is being made.
	Offering
	// Offered: the host has our offer; it may hand the lease over.
	Offered
	// Adopting: what was handed over is being taken up.
	Adopting
	// Starting: the lease is ours and the child is being made by its Props.
	Starting
	// Active: the child runs here.
	Active
	// Inviting: the child runs here, and another node is asked to take over.
	Inviting
	// Backoff: the child ended; the lease is kept until it is started again.
	Backoff
	// HandingOver: a planned end: the child was told to stop, the lease is kept.
	HandingOver
	// Yielding: the child does not stop; it is shut off, and the lease will be
	// given up though it still runs (WithOverdue with ReleaseAfterTTL).
	Yielding
	// Transferring: there is no child; the lease is being handed over.
	Transferring
	// Stopping: the lease was lost, or yielded, or the child was not made in time; it
	// was told to stop.
	Stopping
	// Releasing: there is no child; the lease is being given up.
	Releasing
	// Closed: the manager has ended.
	Closed
	// Asking: there is no child; a node is asked to take over a child that fails here, or for a
	// new offer, as the first is too old.
	Asking
)

var phaseNames = [...]string{"standby", "acquiring", "offering", "offered", "adopting", "starting", "active", "inviting", "backoff",
	"handing over", "yielding", "transferring", "stopping", "releasing", "closed", "asking"}

// String returns the phase's name in lower case.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// phases are what the lease's phases are to a manager.
var phases = [...]Phase{handover.Away: Standby, handover.Acquiring: Acquiring, handover.Offering: Offering, handover.Offered: Offered,
	handover.Adopting: Adopting, handover.Opening: Starting, handover.Active: Active, handover.Inviting: Inviting,
	handover.Draining: HandingOver, handover.Asking: Asking, handover.Transferring: Transferring, handover.Yielding: Yielding,
	handover.Stopping: Stopping, handover.Releasing: Releasing}

// event is what can happen to a manager: to its lease, or what follows.
type event = handover.Event

const (
	wanted             event = handover.OwnEvents + iota // this node should host: it leads, or there is no source of leadership
	unwanted                                             // another node should host
	preferredElsewhere                                   // a node that is preferred to this one should host
	free                                                 // the name is believed to be free, or it is time to try again
	failed                                               // the outcome of an acquisition is not known
	spawnFailed                                          // the child could not be made
	unmade                                               // Props have not returned by the deadline
	unstuck                                              // Props that were given up have returned
	backoffOver                                          // time to start the child again
	hopeless                                             // it fails here time and again, and another node would try
	resign                                               // the same, and the lease can't be handed over
	rested                                               // this node may host again
	stop                                                 // the manager is to end
	unreachable                                          // no candidate could be asked to take over
	drain                                                // the node is to host nothing that it does not host now
	undrain                                              // it may host again
)

// effect is what the manager has to do, in order: of its lease, or what follows.
type effect = handover.Effect

const (
	cancelAcquire effect = handover.OwnEffects + iota // make Acquire, or Adopt, return soon
	waitFree                                          // tell free when the name may be free
	retryLater                                        // tell free after a pause that grows
	stopWaiting                                       // neither
	hurrySpawn                                        // as for a planned end, give what makes the child little time
	dropSpawn                                         // shut the child off; tell Ended when none runs, and unstuck when Props have returned
	startBackoff                                      // tell backoffOver after a pause that grows
	cancelBackoff
	startRest // tell rested after a pause that grows
	askLater  // tell unwanted again after a second
	finish    // end the manager
)

// machine is a manager's state. The zero value is a manager that has just been
// made and is not wanted.
type machine struct {
	hold    handover.Machine // of the lease; it quits when the manager is to end
	phase   Phase            // by hold, and by the child
	wanted  bool             // this node is to host
	stuck   bool             // Props that were given up have not returned
	resting bool             // its child failed here: other nodes go first
	drained bool             // the node hosts nothing any more, once it holds nothing
	moving  bool             // a hand-over to a better place is being tried
}

// next is the transition function. An event that means nothing in a phase
// changes nothing.
func (m machine) next(e event) (machine, []effect) {
	s := turn{machine: m}
	s.take(e)
	if m.hold.Phase != handover.Away && s.hold.Phase == handover.Away {
		s.idle(e)
	}
	if p := s.hold.Phase; s.phase != Closed && !(s.phase == Backoff && p == handover.Opening) {
		s.phase = phases[p]
	}
	return s.machine, s.effects
}

func (m machine) willing() bool { return m.wanted && !m.closing() && !m.unfit() }

// unfit reports whether the node could not make the child now, or may not come to. A drained node
// goes on with what it holds.
func (m machine) unfit() bool {
	return m.stuck || m.resting || m.drained && m.hold.Phase == handover.Away
}

// closing reports whether the manager is to end.
func (m machine) closing() bool { return m.hold.Quitting }

// turn is one transition being made.
type turn struct {
	machine
	effects []effect
}

// fire feeds the lease's machine.
func (s *turn) fire(e handover.Event) {
	var effects []effect
	s.hold, effects = s.hold.Next(e)
	s.effects = append(s.effects, effects...)
}

func (s *turn) add(effects ...effect) { s.effects = append(s.effects, effects...) }

func (s *turn) take(e event) {
	switch e {
	case wanted:
		s.wanted = true
	case unwanted:
		s.wanted = false
	case unstuck:
		s.stuck = false
	case rested:
		s.resting = false
	case drain:
		s.drained = true
	case undrain:
		s.drained = false
	case stop:
		if s.phase == Active { // others are asked before the child is
			s.fire(handover.Move)
		}
		s.fire(handover.Quit)
	}
	switch s.phase {
	case Standby:
		s.standby(e)
	case Acquiring, Offering, Offered, Adopting:
		s.seek(e)
	case Starting, Backoff:
		s.begin(e)
	case Active, Inviting:
		s.host(e)
	case Closed:
		if e == handover.Asked {
			s.fire(e)
		}
	default: // the lease is to go, or has gone
		s.leave(e)
	}
}

// standby is what is done while nothing is held, nor tried.
func (s *turn) standby(e event) {
	switch {
	case e == handover.Asked && (s.closing() || s.unfit()):
		s.add(handover.SendDecline)
	case e == handover.Asked:
		s.wanted = true // as far as the host knows, the source of leadership points here
		s.add(stopWaiting)
		s.fire(e)
	case s.closing():
		s.phase = Closed
		s.add(stopWaiting, finish)
	case !s.willing():
		s.add(stopWaiting)
	case e == free, e == wanted, e == unstuck, e == rested, e == undrain:
		s.add(stopWaiting)
		s.fire(handover.Host)
	}
}

// seek is what is done while the lease is being sought.
func (s *turn) seek(e event) {
	acquiring := s.phase == Acquiring
	switch e {
	case handover.Won:
		if acquiring && !s.willing() {
			e = handover.WonInVain
		} // handed over, and wanted elsewhere: from here it can be handed on
		s.fire(e)
	case failed:
		s.fire(handover.NotWon)
	case unwanted, stop:
		if acquiring || e == stop && s.phase == Adopting {
			s.add(cancelAcquire)
		}
	case handover.Taken, handover.OfferOver, free:
		if s.phase == Offered {
			s.add(stopWaiting)
			if e == free {
				e = handover.Taken
			}
		}
		s.fire(e)
	default:
		s.fire(e)
		if s.phase == Offering && s.hold.Phase == handover.Offered {
			s.add(waitFree)
		}
	}
}

// begin is what is done while the lease is ours, and the child is being made, or will be.
func (s *turn) begin(e event) {
	if s.phase == Backoff {
		switch {
		case e == handover.Lost, !s.willing():
			s.add(cancelBackoff)
			s.fire(handover.Ended)
		case e == hopeless:
			s.add(cancelBackoff)
			s.fire(handover.Pass)
		case e == resign:
			s.add(cancelBackoff)
			s.rest()
			s.fire(handover.Ended)
		case e == backoffOver:
			s.phase = Starting
			s.add(handover.DoOpen)
		case e == handover.Asked:
			s.fire(e)
		}
		return
	}
	switch e {
	case handover.Opened:
		s.fire(e)
		if s.closing() || s.wanted {
			s.reconsider()
		} else {
			s.add(askLater) // its tenure: where the leader changes often, the backlog would only travel
		}
	case spawnFailed:
		if !s.willing() {
			s.fire(handover.Ended)
			return
		}
		s.backOff()
	case unwanted, stop:
		s.add(hurrySpawn)
	case handover.Lost, unmade:
		s.stuck = true
		if e == unmade {
			s.rest()
		}
		s.hold, _ = s.hold.Next(handover.Lost) // there is no child to be shut off
		s.add(dropSpawn)
	case handover.Asked:
		s.fire(e)
	}
}

func (s *turn) rest() {
	s.resting = true
	s.add(startRest)
}

func (s *turn) backOff() {
	s.phase = Backoff
	s.add(startBackoff)
}

// host is what is done while the child runs here.
func (s *turn) host(e event) {
	inviting := s.phase == Inviting
	switch e {
	case handover.Ended: // by itself: it was not told to stop yet
		if inviting {
			s.fire(e)
			return
		}
		s.fire(handover.Reopen)
		s.backOff()
	case preferredElsewhere:
		if !inviting {
			s.moving = true
			s.reconsider()
		}
	case unwanted, stop:
		s.reconsider()
	case wanted:
		if inviting && s.staying() {
			s.fire(handover.Keep)
		}
	case handover.Declined, unreachable:
		if !inviting {
			return
		}
		// Better here than nowhere. A manager releases without a successor only when it
		// ends, or when it cannot reach the successor.
		s.moving = false
		if e == unreachable && !s.wanted {
			s.fire(handover.Resign)
			return
		}
		s.fire(handover.Declined)
		if s.hold.Phase == handover.Active && !s.wanted {
			s.add(askLater)
		}
	default:
		s.fire(e)
	}
}

// leave is what is done while the lease is to go, or has gone.
func (s *turn) leave(e event) {
	passes := s.phase == Asking && !s.hold.Offer
	if e == unreachable {
		e = handover.Declined
	}
	s.fire(e)
	switch p := s.hold.Phase; {
	case passes && p == handover.Transferring:
		s.rest()
	case passes && p == handover.Opening:
		s.backOff()
	}
}

// idle goes back to holding nothing, and waits if the node is still to host.
func (s *turn) idle(e event) {
	s.moving = false
	switch {
	case s.closing():
		s.phase = Closed
		s.add(finish)
	case !s.wanted || s.unfit():
	case e == failed:
		s.add(retryLater)
	default:
		s.add(waitFree)
	}
}

func (s *turn) staying() bool { return s.wanted && !s.closing() && !s.moving }

// reconsider begins to hand over a child that should not be here.
func (s *turn) reconsider() {
	if s.hold.Phase == handover.Active && !s.staying() {
		s.fire(handover.Move)
	}
}
