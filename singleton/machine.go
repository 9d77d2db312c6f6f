package singleton

// This file is the manager's whole behaviour as a pure function: phases, events
// and effects. Nothing here does anything; controller.go carries the effects
// out.

// Phase is where a manager stands. The package documentation has the diagram.
type Phase uint8

const (
	// Standby: another hosts, or nobody; the lease is not ours.
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
	// Inviting: the child runs here, and somebody is asked to take over.
	Inviting
	// Backoff: the child ended; the lease is kept until it is started anew.
	Backoff
	// HandingOver: a planned end: the child was told to stop, the lease is kept.
	HandingOver
	// Yielding: the child does not stop; it is shut off, and the lease will be
	// given up though it still runs (OnStubborn with Yield).
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
)

var phaseNames = [...]string{"standby", "acquiring", "offering", "offered", "adopting", "starting", "active", "inviting", "backoff",
	"handing over", "yielding", "transferring", "stopping", "releasing", "closed"}

// String returns the phase's name in lower case.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// event is what can happen to a manager.
type event uint8

const (
	wanted         event = iota // this node is to host (it leads, or nobody decides)
	unwanted                    // another is to
	outranked                   // another would better
	free                        // the name is believed to be free, or it is time to try again
	won                         // Acquire or Adopt: ours when it was answered
	notWon                      // another's
	failed                      // not known
	lost                        // the present term has ended
	spawned                     // the child was made
	spawnFailed                 // it could not be
	unmade                      // what is to make it has not returned by its deadline
	unstuck                     // what was to make one that was given up has returned
	childEnded                  // the child is gone and its backlog is back
	exhausted                   // the same, and once too often
	backoffOver                 // time to start the child anew
	released                    // Release returned
	stop                        // the manager is to end
	resume                      // a singleton that is down is to come up again
	invited                     // somebody made us an offer
	declined                    // nobody wants to take over
	unreachable                 // nobody could be asked
	overdue                     // the child has not stopped by its deadline
	yieldOver                   // and nothing passed to it for a TTL
	transferred                 // Transfer: done
	notTransferred              // refused, or not known
	asked                       // the host invites us
	offerMade                   // our offer is ready
	offerFailed                 // it could not be made
	taken                       // the lease was handed over to our offer
	offerOver                   // it will not be
)

// effect is what the manager has to do, in order.
type effect uint8

const (
	doAcquire     effect = iota // start an Acquire
	cancelAcquire               // make it, or Adopt, return soon
	waitFree                    // tell free when the name may be free
	retryLater                  // tell free after a pause that grows
	stopWaiting                 // neither
	doSpawn                     // make the child, behind a gate of the present term
	hurrySpawn                  // as for a planned end, give that little time
	dropSpawn                   // shut off what comes of it; tell childEnded when nothing of the child runs, and unstuck when what was to make it has returned
	drainChild                  // close the gate to what comes through the front door
	stopChild                   // tell the child to stop, and report if it does not
	forceStop                   // shut it off, end its context, and stop it
	startYield                  // tell yieldOver after a TTL
	startBackoff                // tell backoffOver after a pause that grows
	cancelBackoff
	doInvite    // ask who would take over
	dropInvite  // tell who was asked that it is off
	askLater    // tell unwanted again after a while
	doTransfer  // hand the lease over; only ever with no child
	doRelease   // give the lease up; only ever with no child
	doYield     // give the lease up under a child that was shut off a TTL ago
	doOffer     // make an offer
	sendOffer   // answer the invitation with it
	sendDecline // answer the invitation with no
	doAdopt     // take up what was handed over
	finish      // end the manager
)

// machine is a manager's state. The zero value is a manager that has just been
// made and is not wanted.
type machine struct {
	phase    Phase
	wanted   bool // this node is to host
	closing  bool // the manager is to end
	down     bool // a terminal child has ended
	stuck    bool // what was to make a child that was given up has not returned
	moving   bool // a hand-over to a better place is being tried
	offer    bool // who takes over has made an offer
	terminal bool // the child's own end is final (setting)
	yields   bool // a child that does not stop is left behind (setting)
}

// next is the transition function. An event that means nothing in a phase
// changes nothing.
func (m machine) next(e event) (machine, []effect) {
	switch e {
	case wanted:
		m.wanted = true
	case unwanted:
		m.wanted = false
	case stop:
		m.closing = true
	case resume:
		m.down = false
	case unstuck:
		m.stuck = false
	case asked:
		if m.phase != Standby || m.closing || !m.able() {
			return m, []effect{sendDecline}
		}
		m.wanted = true // whoever decides has decided for us, as far as the host knows
		return m.to(Offering, stopWaiting, doOffer)
	}

	switch m.phase {
	case Standby, Acquiring, Offering, Offered, Adopting:
		return m.seek(e)
	case Starting, Active, Inviting, Backoff:
		return m.host(e)
	}
	return m.leave(e)
}

func (m machine) willing() bool { return m.wanted && !m.closing && m.able() }

// able reports whether a child could be made here.
func (m machine) able() bool { return !m.down && !m.stuck }

// seek is next while nothing is held.
func (m machine) seek(e event) (machine, []effect) {
	switch m.phase {
	case Standby:
		switch {
		case m.closing:
			return m.to(Closed, stopWaiting, finish)
		case !m.willing():
			return m, []effect{stopWaiting}
		case e == free, e == wanted, e == resume, e == unstuck:
			return m.to(Acquiring, stopWaiting, doAcquire)
		}

	case Acquiring:
		switch e {
		case won:
			if m.willing() {
				return m.to(Starting, doSpawn)
			}
			return m.to(Releasing, doRelease)
		case notWon:
			return m.idle(waitFree)
		case failed:
			return m.idle(retryLater)
		case unwanted, stop:
			return m, []effect{cancelAcquire}
		}

	case Offering:
		switch {
		case e == offerMade && !m.closing:
			return m.to(Offered, sendOffer, waitFree)
		case e == offerMade, e == offerFailed:
			m, effects := m.idle(waitFree)
			return m, append([]effect{sendDecline}, effects...)
		}

	case Offered:
		switch e {
		case taken, free:
			return m.to(Adopting, stopWaiting, doAdopt)
		case stop: // it may have been handed over already: the host tells
			return m, []effect{sendDecline}
		case offerOver:
			m, effects := m.idle(waitFree)
			return m, append([]effect{stopWaiting}, effects...)
		}

	case Adopting:
		switch e {
		case won:
			if m.closing || m.down {
				return m.to(Releasing, doRelease)
			}
			return m.to(Starting, doSpawn) // wanted elsewhere: from there it can be handed on
		case notWon:
			return m.idle(waitFree)
		case failed:
			return m.idle(retryLater)
		case stop:
			return m, []effect{cancelAcquire}
		}
	}
	return m, nil
}

// host is next while this node is the host.
func (m machine) host(e event) (machine, []effect) {
	switch m.phase {
	case Starting:
		switch e {
		case spawned:
			m.phase = Active
			return m.settleActive()
		case spawnFailed:
			if !m.willing() {
				return m.to(Releasing, doRelease)
			}
			return m.to(Backoff, startBackoff)
		case unwanted, stop:
			return m, []effect{hurrySpawn}
		case lost, unmade:
			m.stuck = true
			return m.to(Stopping, dropSpawn)
		}

	case Active:
		switch e {
		case lost:
			return m.to(Stopping, stopChild)
		case childEnded, exhausted:
			if m.terminal || e == exhausted {
				m.down = true
				return m.to(Releasing, doRelease)
			}
			return m.to(Backoff, startBackoff)
		case outranked:
			m.moving = true
			return m.settleActive()
		case unwanted, stop:
			return m.settleActive()
		}

	case Inviting:
		switch e {
		case lost:
			return m.to(Stopping, dropInvite, stopChild)
		case childEnded, exhausted: // by itself: it was not told to stop yet
			m.down = m.down || m.terminal || e == exhausted
			return m.to(Releasing, dropInvite, doRelease)
		case invited:
			m.offer = true
			return m.to(HandingOver, drainChild, stopChild)
		case wanted:
			if !m.closing && !m.moving {
				return m.to(Active, dropInvite)
			}
		case declined, unreachable:
			// Better here than nowhere: only who ends, or can't reach who is to
			// host, gives the lease up for whoever comes.
			m.moving = false
			switch {
			case m.closing, !m.wanted && e == unreachable:
				return m.to(HandingOver, drainChild, stopChild)
			case !m.wanted:
				return m.to(Active, askLater)
			}
			return m.to(Active)
		}

	case Backoff:
		switch {
		case e == lost, !m.willing():
			return m.to(Releasing, cancelBackoff, doRelease)
		case e == backoffOver:
			return m.to(Starting, doSpawn)
		}
	}
	return m, nil
}

// leave is next while the lease is to go, or has gone.
func (m machine) leave(e event) (machine, []effect) {
	switch m.phase {
	case HandingOver, Yielding:
		switch e {
		case childEnded, exhausted:
			if m.offer {
				return m.to(Transferring, doTransfer)
			}
			return m.to(Releasing, doRelease)
		case declined:
			if m.offer { // it was taken back
				m.offer = false
				return m, []effect{dropInvite}
			}
		case lost:
			if m.phase == HandingOver { // it was asked to stop, and may not have heard
				return m.to(Stopping, append(m.off(), stopChild)...)
			}
			return m.to(Stopping, m.off()...)
		case overdue:
			if m.phase == HandingOver && m.yields {
				return m.to(Yielding, forceStop, startYield)
			}
			return m, []effect{forceStop}
		case yieldOver:
			if m.phase == Yielding {
				return m.to(Stopping, append(m.off(), doYield)...)
			}
		}

	case Transferring:
		switch e {
		case transferred:
			return m.idle(waitFree)
		case notTransferred:
			return m.to(Releasing, doRelease)
		}

	case Stopping:
		if e == childEnded || e == exhausted {
			// The record may still stand; nothing runs under it any more.
			return m.to(Releasing, doRelease)
		}

	case Releasing:
		if e == released {
			return m.idle(waitFree)
		}
	}
	return m, nil
}

// off calls a hand-over off that somebody waits for.
func (m machine) off() []effect {
	if m.offer {
		return []effect{dropInvite}
	}
	return nil
}

func (m machine) to(p Phase, effects ...effect) (machine, []effect) {
	m.phase = p
	return m, effects
}

// idle goes back to holding nothing, and waits in the given way if the node is
// still to host.
func (m machine) idle(wait effect) (machine, []effect) {
	m.moving, m.offer = false, false
	switch {
	case m.closing:
		return m.to(Closed, finish)
	case m.wanted && m.able():
		return m.to(Standby, wait)
	}
	return m.to(Standby)
}

// settleActive begins to hand over an active child that is not to be here.
func (m machine) settleActive() (machine, []effect) {
	if m.wanted && !m.closing && !m.moving {
		return m, nil
	}
	return m.to(Inviting, doInvite)
}
