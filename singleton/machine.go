package singleton

// This file is the manager's whole behaviour as a pure function: phases, events
// and effects. Nothing here does anything; manager.go carries the effects out.

// Phase is where a manager stands. The package documentation has the diagram.
type Phase uint8

const (
	// Standby: another hosts, or nobody; the lease is not ours.
	Standby Phase = iota
	// Acquiring: one Acquire is under way.
	Acquiring
	// Starting: the lease is ours and the child is being made.
	Starting
	// Active: the child runs here.
	Active
	// Backoff: the child ended; the lease is kept until it is started anew.
	Backoff
	// HandingOver: a planned end: the child was told to stop, the lease is kept.
	HandingOver
	// Stopping: the lease was lost; the child was told to stop.
	Stopping
	// Releasing: there is no child; the lease is being given up.
	Releasing
	// Closed: the manager has ended.
	Closed
)

var phaseNames = [...]string{"standby", "acquiring", "starting", "active", "backoff", "handing over", "stopping", "releasing", "closed"}

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
	wanted      event = iota // this node is to host (it leads, or nobody decides)
	unwanted                 // another is to
	free                     // the name is believed to be free, or it is time to try again
	won                      // Acquire: ours when it was answered
	notWon                   // Acquire: another's
	failed                   // Acquire: not known
	lost                     // the present term has ended
	spawned                  // the child was made
	spawnFailed              // it could not be
	childEnded               // the child is gone and its backlog is back
	backoffOver              // time to start the child anew
	released                 // Release returned
	stop                     // the manager is to end
	resume                   // a singleton that is down is to come up again
)

// effect is what the manager has to do, in order.
type effect uint8

const (
	doAcquire     effect = iota // start an Acquire
	cancelAcquire               // make it return soon
	waitFree                    // tell free when the name may be free
	retryLater                  // tell free after a pause that grows
	stopWaiting                 // neither
	doSpawn                     // make the child, behind a gate of the present term
	drainChild                  // close the gate to what comes through the front door
	stopChild                   // tell the child to stop, and report if it does not
	startBackoff                // tell backoffOver after a pause that grows
	cancelBackoff
	doRelease // give the lease up; only ever with no child
	finish    // end the manager
)

// machine is a manager's state. The zero value is a manager that has just been
// made and is not wanted.
type machine struct {
	phase    Phase
	wanted   bool // this node is to host
	closing  bool // the manager is to end
	down     bool // a terminal child has ended
	terminal bool // the child's own end is final (setting)
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
	}
	willing := m.wanted && !m.closing && !m.down

	switch m.phase {
	case Standby:
		switch {
		case m.closing:
			return m.to(Closed, stopWaiting, finish)
		case !willing:
			return m, []effect{stopWaiting}
		case e == free, e == wanted, e == resume:
			return m.to(Acquiring, stopWaiting, doAcquire)
		}

	case Acquiring:
		switch e {
		case won:
			if willing {
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

	case Starting:
		switch e {
		case spawned:
			m.phase = Active
			return m.settleActive()
		case spawnFailed:
			return m.to(Backoff, startBackoff)
		case lost: // before there was a child
			return m.to(Releasing, doRelease)
		}

	case Active:
		switch e {
		case lost:
			return m.to(Stopping, stopChild)
		case childEnded:
			if m.terminal {
				m.down = true
				return m.to(Releasing, doRelease)
			}
			return m.to(Backoff, startBackoff)
		case unwanted, stop:
			return m.settleActive()
		}

	case Backoff:
		switch {
		case e == lost, !willing:
			return m.to(Releasing, cancelBackoff, doRelease)
		case e == backoffOver:
			return m.to(Starting, doSpawn)
		}

	case HandingOver:
		switch e {
		case childEnded:
			return m.to(Releasing, doRelease)
		case lost:
			return m.to(Stopping)
		}

	case Stopping:
		if e == childEnded {
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

func (m machine) to(p Phase, effects ...effect) (machine, []effect) {
	m.phase = p
	return m, effects
}

// idle goes back to holding nothing, and waits in the given way if the node is
// still to host.
func (m machine) idle(wait effect) (machine, []effect) {
	switch {
	case m.closing:
		return m.to(Closed, finish)
	case m.wanted && !m.down:
		return m.to(Standby, wait)
	}
	return m.to(Standby)
}

// settleActive stops an active child that is not to be here.
func (m machine) settleActive() (machine, []effect) {
	if m.wanted && !m.closing {
		return m, nil
	}
	return m.to(HandingOver, drainChild, stopChild)
}
