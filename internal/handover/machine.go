package handover

// The phases of a Machine. A singleton's manager has a small machine of its own around this one:
// it seeks the lease, and restarts its child. A shard obeys the orders of its coordinator.
//
//	phase         of a singleton      of a shard          leaves on
//	Away          standby, closed     away                Host, Asked
//	Acquiring     acquiring           acquiring           Won, NotWon
//	Offering      offering            offering            OfferMade, OfferFailed, OfferOver
//	Offered       offered             offered             Taken, OfferOver, Host
//	Adopting      adopting            adopting            Won, NotWon
//	Opening       starting, backoff   (within a step)     Opened, Ended, Lost, Pass
//	Active        active              active              Move, Quit, Reopen, Ended, Lost
//	Inviting      inviting            inviting            Invited, Declined, Resign, Keep, Lost
//	Draining      handing over        draining            Ended, Overdue, Declined, Lost
//	Asking        asking              asking              Invited, Declined, Lost
//	Transferring  transferring        transferring        Transferred, Stale, NotTransferred
//	Yielding      yielding            yielding            Ended, YieldOver, Lost
//	Stopping      stopping            stopping            Ended
//	Releasing     releasing           releasing           Released
//
// Orders come from a singleton's own machine (wanted, preferredElsewhere, stop), a shard's
// coordinator (Host, Move) and its node (Quit, Stay).

// This file is the protocol as a pure function: phases, events and effects. Nothing
// here does anything; the owner of a Machine carries its effects out.

// Phase is where a node stands with a name whose lease moves.
type Phase uint8

const (
	// Away: the lease is not this node's.
	Away Phase = iota
	// Acquiring: one Acquire is under way.
	Acquiring
	// Offering: the host invited this node to take over; an offer is being made.
	Offering
	// Offered: the host has the offer, and may hand the lease over.
	Offered
	// Adopting: what was handed over is being taken up.
	Adopting
	// Opening: the lease is this node's; what runs under it is being made, or about to be.
	Opening
	// Active: it runs here.
	Active
	// Inviting: it runs here, and another node is asked to take over.
	Inviting
	// Draining: a planned end: it was told to stop, the lease is kept.
	Draining
	// Asking: nothing runs; a node is asked for an offer, or for a new one, as the first is too old.
	Asking
	// Transferring: nothing runs; the lease is being handed over.
	Transferring
	// Yielding: what runs does not stop; it is shut off, and the lease will be given up
	// though it still runs.
	Yielding
	// Stopping: the lease was lost, or yielded; what runs was told to stop.
	Stopping
	// Releasing: nothing runs; the lease is being given up.
	Releasing
)

var phaseNames = [...]string{"away", "acquiring", "offering", "offered", "adopting", "opening", "active", "inviting", "draining",
	"asking", "transferring", "yielding", "stopping", "releasing"}

// String returns the phase's name in lower case.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// Holds reports whether the lease is, or may be, this node's in p.
func (p Phase) Holds() bool { return p >= Opening }

// HandsOver reports whether the name is on its way to another node in p.
func (p Phase) HandsOver() bool { return p >= Inviting && p <= Yielding }

// Asks reports whether a node that was asked for an offer is waited for in p.
func (p Phase) Asks() bool { return p == Inviting || p == Asking }

// Waits reports whether what runs is to end in p, and the successor waits for that.
func (p Phase) Waits() bool { return p == Draining || p == Yielding }

// Takes reports whether a host may hand over to this node in p.
func (p Phase) Takes() bool { return p == Offering || p == Offered }

// Event is what can happen.
type Event uint8

const (
	// Orders: a coordinator gives them, or a singleton manager gives them to itself.

	Host   Event = iota // take it: it is free
	Move                // hand it to another node
	Keep                // do not, after all
	Resign              // end it though no node takes over
	Pass                // what would run does not come to: hand it to another node
	Quit                // give it up, and take it no more
	Stay                // take it again

	// Answers to effects, and what happens around.

	Won            // Acquire or Adopt: ours when it was answered
	WonInVain      // the same, and it is not wanted any more
	NotWon         // another's, or not known
	Opened         // it runs
	Reopen         // it ended by itself, and will be started again
	Lost           // the term has ended, or the node may not host any more
	Invited        // the node that was asked made an offer
	Declined       // no node made one, or it was taken back
	Ended          // nothing runs any more, and its mail is back
	Overdue        // something does, at the deadline
	Stale          // the offer is too old to be transferred to
	YieldOver      // nothing passed to what runs for a TTL
	Transferred    // Transfer: done
	NotTransferred // refused, or not known
	Released       // Release returned
	Asked          // the host invites us
	OfferMade      // our offer is ready
	OfferFailed    // it could not be made
	Taken          // the lease was handed over to our offer
	OfferOver      // it will not be

	// OwnEvents is the first event that an owner may have for itself.
	OwnEvents
)

// Effect is what has to be done, in order.
type Effect uint8

const (
	DoAcquire   Effect = iota // start an Acquire
	DoAdopt                   // take up what was handed over
	DoOpen                    // begin what runs, under the present term
	DoInvite                  // ask the successor for an offer
	AskAgain                  // ask the node that made the offer for a new one
	DropInvite                // tell the node that was asked that the hand-over is off
	DoDrain                   // turn mail away, and tell what runs to stop
	DoLose                    // shut it off, and stop it
	ForceStop                 // the same, as it did not stop in time
	StartYield                // tell YieldOver after a TTL
	DoYield                   // give the lease up though something still runs
	DoTransfer                // hand the lease over; only ever with nothing running
	DoRelease                 // give the lease up; only ever with nothing running
	DoOffer                   // make an offer
	SendOffer                 // answer the invitation with it
	SendDecline               // answer the invitation with no
	Report                    // tell the coordinator that the order came to nothing

	// OwnEffects is the first effect that an owner may have for itself.
	OwnEffects
)

// Machine is a node's state of one name. The zero value is a name that is away.
type Machine struct {
	Yields   bool // users chose that what does not stop is left behind
	Phase    Phase
	Quitting bool // the node gives up what it has
	Offer    bool // the successor has made an offer
}

// Next is the transition function. An event that means nothing in a phase changes
// nothing; an order at the wrong time is reported, an invitation declined.
func (m Machine) Next(e Event) (Machine, []Effect) {
	switch e {
	case Quit:
		m.Quitting = true
	case Stay:
		m.Quitting = false
	}
	switch {
	case m.Phase < Opening:
		return m.away(e)
	case m.Phase <= Inviting:
		return m.hosting(e)
	}
	return m.leaving(e)
}

// away is Next while nothing is held.
func (m Machine) away(e Event) (Machine, []Effect) {
	switch {
	case e == Host && (m.Quitting || m.Phase != Away && m.Phase != Offered), e == Move:
		return m, []Effect{Report}
	case e == Asked && (m.Quitting || m.Phase != Away):
		return m, []Effect{SendDecline}
	}
	switch m.Phase {
	case Away:
		switch e {
		case Host:
			return m.to(Acquiring, DoAcquire)
		case Asked:
			return m.to(Offering, DoOffer)
		}
	case Acquiring, Adopting:
		switch {
		case e == Won && !m.Quitting:
			return m.to(Opening, DoOpen)
		case e == Won, e == WonInVain:
			return m.to(Releasing, DoRelease)
		case e == NotWon:
			return m.to(Away, Report)
		}
	case Offering:
		switch {
		case e == OfferMade && !m.Quitting:
			return m.to(Offered, SendOffer)
		case e == OfferMade, e == OfferFailed:
			return m.to(Away, SendDecline)
		case e == OfferOver: // called off: what is being made is void
			return m.to(Away)
		}
	case Offered:
		switch e {
		case Taken, Host: // Host: the one that had the offer is gone
			return m.to(Adopting, DoAdopt)
		case OfferOver:
			return m.to(Away)
		case OfferFailed, Quit: // it may have been handed over already: the host tells
			return m, []Effect{SendDecline}
		}
	}
	return m, nil
}

// hosting is Next while the node is the host, and is to go on.
func (m Machine) hosting(e Event) (Machine, []Effect) {
	switch e {
	case Lost:
		return m.to(Stopping, append(m.callOff(), DoLose)...)
	case Ended: // by itself, and for good: or it never came to be
		return m.to(Releasing, append(m.callOff(), DoRelease)...)
	case Host, Asked:
		return m.refuse(e)
	}
	switch m.Phase {
	case Opening:
		switch e {
		case Opened:
			return m.to(Active)
		case Pass:
			return m.to(Asking, DoInvite)
		case Move:
			return m.refuse(e)
		}
	case Active:
		switch e {
		case Move:
			return m.to(Inviting, DoInvite)
		case Quit, Resign:
			return m.to(Draining, DoDrain)
		case Reopen:
			return m.to(Opening)
		}
	case Inviting: // Move: it is under way, and asked for again
		switch {
		case e == Invited:
			m.Offer = true
			return m.to(Draining, DoDrain)
		case e == Resign, e == Declined && m.Quitting:
			return m.to(Draining, DropInvite, DoDrain)
		case e == Declined: // or no answer came: one that is still to come is void
			return m.to(Active, DropInvite, Report)
		case e == Keep:
			return m.to(Active, DropInvite)
		}
	}
	return m, nil
}

// leaving is Next while the lease is to go, or has gone.
func (m Machine) leaving(e Event) (Machine, []Effect) {
	switch e {
	case Host, Asked, Move:
		return m.refuse(e)
	}
	switch m.Phase {
	case Draining, Yielding:
		switch e {
		case Ended:
			if m.Offer {
				return m.to(Transferring, DoTransfer)
			}
			return m.to(Releasing, DoRelease)
		case Declined: // taken back; the node that did waits for word
			effects := m.callOff()
			m.Offer = false
			return m, effects
		case Lost:
			return m.to(Stopping, append(m.callOff(), DoLose)...)
		case Overdue:
			if m.Phase == Draining && m.Yields {
				return m.to(Yielding, ForceStop, StartYield)
			}
			return m, []Effect{ForceStop}
		case YieldOver:
			if m.Phase == Yielding {
				return m.to(Stopping, append(m.callOff(), DoYield)...)
			}
		}
	case Asking:
		switch e {
		case Invited:
			m.Offer = true
			return m.to(Transferring, DoTransfer)
		case Declined, Lost:
			if e == Declined && !m.Offer && !m.Quitting { // Pass: it is tried here again
				return m.to(Opening, DropInvite)
			}
			return m.to(Releasing, append(m.callOff(), DoRelease)...)
		}
	case Transferring:
		switch e {
		case Transferred:
			return m.to(Away)
		case Stale:
			return m.to(Asking, AskAgain)
		case NotTransferred:
			return m.to(Releasing, DoRelease)
		}
	case Stopping:
		if e == Ended {
			// The record may still stand; nothing runs under it any more.
			return m.to(Releasing, DoRelease)
		}
	case Releasing:
		if e == Released {
			return m.to(Away)
		}
	}
	return m, nil
}

// refuse answers an order, or an invitation, that comes at the wrong time.
func (m Machine) refuse(e Event) (Machine, []Effect) {
	if e == Asked {
		return m, []Effect{SendDecline}
	}
	return m, []Effect{Report}
}

// callOff calls off the hand-over that another node waits for, if there is one.
func (m Machine) callOff() []Effect {
	if m.Offer || m.Phase.Asks() {
		return []Effect{DropInvite}
	}
	return nil
}

// to goes to a phase. An offer counts for no longer than it is waited for.
func (m Machine) to(p Phase, effects ...Effect) (Machine, []Effect) {
	m.Phase = p
	m.Offer = m.Offer && p.HandsOver() && p != Inviting
	return m, effects
}
