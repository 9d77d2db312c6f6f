package sharding

// This file is what a node does with one shard, as a pure function: phases,
// events and effects. Nothing here does anything; control.go carries the effects
// out.

// Phase is where a node stands with a shard. The package documentation has the
// diagram.
type Phase uint8

const (
	// Away: the shard's lease is not this node's.
	Away Phase = iota
	// Acquiring: ordered to host it; one Acquire is under way.
	Acquiring
	// Offering: the shard's host invited this node to take over; an offer is being
	// made.
	Offering
	// Offered: the host has the offer, and may hand the lease over.
	Offered
	// Adopting: what was handed over is being taken up.
	Adopting
	// Active: the shard's entities run here.
	Active
	// Inviting: they run here, and another node is asked to take over.
	Inviting
	// Draining: a planned end: the entities were told to stop, the lease is kept.
	Draining
	// Asking: there are no entities any more; the offer is too old, and a new one is
	// asked for.
	Asking
	// Transferring: there are no entities; the lease is being handed over.
	Transferring
	// Yielding: entities do not stop; they are shut off, and the lease will be given
	// up though they still run.
	Yielding
	// Stopping: the lease was lost, or yielded; the entities were told to stop.
	Stopping
	// Releasing: there are no entities; the lease is being given up.
	Releasing
)

var phaseNames = [...]string{"away", "acquiring", "offering", "offered", "adopting", "active", "inviting", "draining",
	"asking", "transferring", "yielding", "stopping", "releasing"}

// String returns the phase's name in lower case.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// holds reports whether the lease is, or may be, this node's in p.
func (p Phase) holds() bool { return p >= Active }

// handsOver reports whether the shard is on its way to another node in p.
func (p Phase) handsOver() bool {
	switch p {
	case Inviting, Draining, Asking, Transferring, Yielding:
		return true
	}
	return false
}

// runs reports whether entities may run in p.
func (p Phase) runs() bool {
	switch p {
	case Active, Inviting, Draining, Yielding, Stopping:
		return true
	}
	return false
}

// event is what can happen to a shard on a node.
type event uint8

const (
	host           event = iota // ordered to host a shard that is free
	move                        // ordered to hand it to another node
	quit                        // give it up, and take none: the node is leaving
	stay                        // take shards again
	won                         // Acquire or Adopt: ours when it was answered
	notWon                      // another's, or not known
	lost                        // the term has ended, or the node may not host any more
	invited                     // who was asked made an offer
	declined                    // it did not, or took it back
	drained                     // the entities are gone and their mail is back
	overdue                     // they are not, by the deadline
	stale                       // the offer is too old to be transferred to
	yieldOver                   // nothing passed to the entities for a TTL
	transferred                 // Transfer: done
	notTransferred              // refused, or not known
	released                    // Release returned
	asked                       // the host invites us
	offerMade                   // our offer is ready
	offerFailed                 // it could not be made
	taken                       // the lease was handed over to our offer
	offerOver                   // it will not be
)

// effect is what has to be done, in order.
type effect uint8

const (
	doAcquire   effect = iota // start an Acquire
	doAdopt                   // take up what was handed over
	doOpen                    // let mail through to entities, under the present term
	doInvite                  // ask who is to take over for an offer
	dropInvite                // tell it that nothing comes of it
	doDrain                   // turn mail away, and tell the entities to stop
	doLose                    // shut the entities off, and stop them
	forceStop                 // the same, as they did not stop in time
	startYield                // tell yieldOver after a TTL
	doYield                   // give the lease up though entities still run
	doTransfer                // hand the lease over; only ever with no entities
	doRelease                 // give the lease up; only ever with no entities
	doOffer                   // make an offer
	sendOffer                 // answer the invitation with it
	sendDecline               // answer the invitation with no
	report                    // tell the coordinator that its order came to nothing
)

// machine is a node's state of one shard. The zero value is a shard that is away.
type machine struct {
	phase    Phase
	quitting bool // the node gives up what it has
	offer    bool // who takes over has made an offer
	yields   bool // entities that do not stop are left behind (setting)
}

// next is the transition function. An event that means nothing in a phase
// changes nothing.
func (m machine) next(e event) (machine, []effect) {
	switch e {
	case quit:
		m.quitting = true
	case stay:
		m.quitting = false
	}
	if m.phase.holds() {
		if m.phase <= Inviting {
			return m.hosting(e)
		}
		return m.leaving(e)
	}
	return m.away(e)
}

// away is next while nothing is held.
func (m machine) away(e event) (machine, []effect) {
	if e == host && (m.quitting || m.phase != Away && m.phase != Offered) {
		return m, []effect{report}
	}
	if e == asked && (m.quitting || m.phase != Away) {
		return m, []effect{sendDecline}
	}
	if e == move {
		return m, []effect{report}
	}
	switch m.phase {
	case Away:
		switch e {
		case host:
			return m.to(Acquiring, doAcquire)
		case asked:
			return m.to(Offering, doOffer)
		}
	case Acquiring, Adopting:
		switch e {
		case won:
			if m.quitting {
				return m.to(Releasing, doRelease)
			}
			return m.to(Active, doOpen)
		case notWon:
			return m.to(Away, report)
		}
	case Offering:
		switch {
		case e == offerMade && !m.quitting:
			return m.to(Offered, sendOffer)
		case e == offerMade, e == offerFailed:
			return m.to(Away, sendDecline)
		}
	case Offered:
		switch e {
		case taken, host: // host: the one that had the offer is gone
			return m.to(Adopting, doAdopt)
		case offerOver:
			return m.to(Away)
		case offerFailed: // the host asked for a new one: it has not used the last
			return m.to(Away, sendDecline)
		case quit: // it may have been handed over already: the host tells
			return m, []effect{sendDecline}
		}
	}
	return m, nil
}

// hosting is next while entities run here and are to go on.
func (m machine) hosting(e event) (machine, []effect) {
	switch e {
	case lost:
		return m.to(Stopping, append(m.off(), doLose)...)
	case host, asked:
		return m.refuse(e)
	}
	switch m.phase {
	case Active:
		switch e {
		case move:
			return m.to(Inviting, doInvite)
		case quit:
			return m.to(Draining, doDrain)
		}
	case Inviting:
		switch e {
		case move:
			return m, nil // the coordinator asks again: it is under way
		case invited:
			m.offer = true
			return m.to(Draining, doDrain)
		case declined: // or no answer came: one that is still to come is void
			if m.quitting {
				return m.to(Draining, dropInvite, doDrain)
			}
			return m.to(Active, dropInvite, report)
		}
	}
	return m, nil
}

// leaving is next while the lease is to go, or has gone.
func (m machine) leaving(e event) (machine, []effect) {
	switch e {
	case host, asked:
		return m.refuse(e)
	case move:
		return m, []effect{report}
	}
	switch m.phase {
	case Draining, Yielding:
		switch e {
		case drained:
			if m.offer {
				return m.to(Transferring, doTransfer)
			}
			return m.to(Releasing, doRelease)
		case declined: // taken back; who did waits for word
			if m.offer {
				m.offer = false
				return m, []effect{dropInvite}
			}
		case lost:
			return m.to(Stopping, append(m.off(), doLose)...)
		case overdue:
			if m.phase == Draining && m.yields {
				return m.to(Yielding, forceStop, startYield)
			}
			return m, []effect{forceStop}
		case yieldOver:
			if m.phase == Yielding {
				effects := append(m.off(), doYield)
				m.offer = false
				return m.to(Stopping, effects...)
			}
		}
	case Asking:
		switch e {
		case invited:
			return m.to(Transferring, doTransfer)
		case declined:
			m.offer = false
			return m.to(Releasing, dropInvite, doRelease)
		case lost:
			return m.to(Releasing, append(m.off(), doRelease)...)
		}
	case Transferring:
		switch e {
		case transferred:
			return m.gone()
		case stale:
			return m.to(Asking, doInvite)
		case notTransferred:
			m.offer = false
			return m.to(Releasing, doRelease)
		}
	case Stopping:
		if e == drained {
			// The record may still stand; nothing runs under it any more.
			return m.to(Releasing, doRelease)
		}
	case Releasing:
		if e == released {
			return m.gone()
		}
	}
	return m, nil
}

// refuse answers an order, or an invitation, that comes at the wrong time.
func (m machine) refuse(e event) (machine, []effect) {
	if e == asked {
		return m, []effect{sendDecline}
	}
	return m, []effect{report}
}

// off calls a hand-over off for the node that waits for it.
func (m machine) off() []effect {
	if m.offer || m.phase == Inviting || m.phase == Asking {
		return []effect{dropInvite}
	}
	return nil
}

func (m machine) gone() (machine, []effect) {
	m.offer = false
	return m.to(Away)
}

func (m machine) to(p Phase, effects ...effect) (machine, []effect) {
	m.phase = p
	return m, effects
}
