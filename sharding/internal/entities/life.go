package entities

// Phase is where an entity stands.
type Phase uint8

const (
	// Remembering: its id is being written to the store of remembered entities.
	Remembering Phase = iota
	// Starting: its actor is about to be made.
	Starting
	// Making: its actor is being made, and may run already.
	Making
	// Active: mail goes to its actor.
	Active
	// Stopping: its actor was told to stop.
	Stopping
	// Collecting: its actor has ended; its mail is coming back.
	Collecting
	// Backoff: it waits until it is started again.
	Backoff
	// Gone: it is none of the shard's any more.
	Gone
)

// Event is what happens to an entity.
type Event uint8

const (
	Remembered Event = iota // its id is in the store
	Due                     // its turn to be made has come
	GateMade                // its gate is there, and its actor may be made
	Made                    // its actor was made, and may have ended since
	MadeBadly               // so it was, and what made it failed then
	NotMade                 // it could not be made, or its gate not
	Asked                   // it asked to be stopped
	Unneeded                // it is not needed for now
	Overdue                 // it did not stop by its deadline
	Ending                  // its shard ends, or is lost: Now says which
	Done                    // its actor has ended
	Collected               // and its mail is back
	BackedOff               // the pause before it is started again is over
	Panicked                // its actor has
)

// Effect is what has to be done, in order.
type Effect uint8

const (
	Remember   Effect = iota // write its id to the store
	Make                     // have its actor made: Due comes
	MakeGate                 // make its gate: GateMade or NotMade comes
	Spawn                    // make its actor: Made, MadeBadly or NotMade comes
	Deliver                  // give its actor what waits
	Drain                    // close the gate to what comes
	Lose                     // close the gate to everything, for why the shard was lost
	LoseLate                 // the same, as it did not stop in time
	StopGently               // stop the actor, in the way that its user chose
	StopNow                  // stop it at once
	StopMade                 // stop what came of making it, and no later life
	Await                    // Overdue comes at its deadline
	TellLate                 // tell that it does not stop
	GiveUp                   // close the gate for good: its actor is being made, and not waited for
	Pause                    // BackedOff comes after a pause of Life.Tries
	Requeue                  // its mail goes to the next host; the entity is gone
	Remove                   // the entity is gone, and no mail waits
)

// Now is how things stand when something happens.
type Now struct {
	Ending    bool // the shard's entities were told to stop, or there is no host here
	Lost      bool // the shard is lost, or its deadline has passed: no node waits for entities
	Barred    bool // the entities were shut off, and the end is about to follow
	Unwritten bool // the id has to be remembered, and is not
	Forgotten bool // ids are remembered, and this one is not
	Mail      bool // some waits
	Unused    bool // Done: its actor had taken nothing but Started
	Actor     bool // what makes its actor has come so far that there is one
	Long      bool // it has lived for so long that earlier failures do not count
}

// Life is an entity's state. The zero value is one whose id will be remembered: see Begin.
type Life struct {
	Phase   Phase
	Gate    bool  // its present life has a gate
	Actor   bool  // and an actor, which is known
	Crashed bool  // and has panicked, or could not be made
	Leaving bool  // it asked to be stopped
	Unused  bool  // it ended itself and had taken nothing: it would again, at once
	GivenUp bool  // it is Gone, and its actor is being made
	Tries   uint8 // pauses in a row
}

// mostTries is where pauses do not get longer any more.
const mostTries = 31

// Begin is the life of an entity that mail came for, or that is remembered.
func Begin(now Now) (Life, []Effect) { return Life{}.again(now) }

// Next is the transition function. An event that means nothing in a phase changes nothing.
func (l Life) Next(e Event, now Now) (Life, []Effect) {
	switch e {
	case Remembered:
		if l.Phase == Remembering && !now.Ending {
			return l.to(Starting, Make)
		}
	case Due:
		if l.Phase == Starting && !now.Ending && !now.Barred {
			return l.to(Making, MakeGate)
		}
	case GateMade, Made, MadeBadly, NotMade:
		return l.making(e, now)
	case Asked:
		switch l.Phase {
		case Active:
			l.Leaving = true
			return l.passivate()
		case Making: // it may run already
			l.Leaving = true
		}
	case Unneeded:
		if l.Phase == Active && !now.Ending {
			return l.passivate()
		}
	case Overdue:
		if l.Phase == Stopping {
			return l, []Effect{LoseLate, StopNow, TellLate}
		}
	case Ending:
		return l.end(now)
	case Done:
		l.Unused = (l.Phase < Stopping || l.Leaving) && now.Unused
		return l.to(Collecting)
	case Collected:
		return l.ended(now)
	case BackedOff:
		if l.Phase == Backoff {
			return l.again(now)
		}
	case Panicked:
		l.Crashed = true
	}
	return l, nil
}

// making is Next while an actor is being made.
func (l Life) making(e Event, now Now) (Life, []Effect) {
	if e == GateMade {
		l = Life{Phase: l.Phase, Gate: true, Tries: l.Tries}
		switch {
		case now.Lost:
			l, effects := l.giveUp(now)
			return l, append([]Effect{Lose}, effects...)
		case now.Barred:
			return l, []Effect{Lose, Spawn}
		}
		return l, []Effect{Spawn}
	}
	switch {
	case l.GivenUp:
		return l, []Effect{StopMade}
	case e == NotMade:
		l.Crashed = true
		return l.ended(now)
	}
	var effects []Effect
	l.Actor = true
	if l.Phase == Making {
		switch l.Phase = Active; {
		case now.Ending:
			l, effects = l.end(now)
		case l.Leaving: // in Started already: its next life gets the mail
			l, effects = l.passivate()
		default:
			effects = []Effect{Deliver}
		}
	}
	if e == MadeBadly { // when the actor had begun, whose end its gate tells
		l.Crashed = true
		effects = append(effects, StopMade)
	}
	return l, effects
}

// again starts the actor, after what must be before.
func (l Life) again(now Now) (Life, []Effect) {
	if now.Unwritten {
		return l.to(Remembering, Remember)
	}
	return l.to(Starting, Make)
}

func (l Life) passivate() (Life, []Effect) { return l.to(Stopping, Drain, StopGently, Await) }

// end tells an entity to stop whose shard ends.
func (l Life) end(now Now) (Life, []Effect) {
	switch l.Phase {
	case Active:
		if now.Lost {
			return l.to(Stopping, Lose, StopNow)
		}
		return l.to(Stopping, Drain, StopGently)
	case Stopping, Collecting:
		if now.Lost && l.Gate && l.Actor {
			return l, []Effect{Lose, StopNow}
		}
	case Making: // Made does the rest, unless that is not waited for
		if now.Lost && l.Gate {
			l, effects := l.giveUp(now)
			return l, append([]Effect{Lose}, effects...)
		}
	case Remembering, Starting, Backoff:
		return l.to(Gone, Requeue)
	}
	return l, nil
}

// giveUp goes on without what is to make the actor, which may hang: nothing passes to
// the actor. If it has begun it is stopped.
func (l Life) giveUp(now Now) (Life, []Effect) {
	if now.Actor {
		l.Actor = true
		return l.to(Stopping, GiveUp, StopMade)
	}
	l.GivenUp = true
	return l.to(Gone, GiveUp, Requeue)
}

// ended: the actor is gone, and its mail is back.
func (l Life) ended(now Now) (Life, []Effect) {
	l.Gate, l.Actor = false, false
	switch {
	case now.Ending:
		return l.to(Gone, Requeue)
	case !now.Mail && now.Forgotten:
		return l.to(Gone, Remove)
	case l.Crashed, l.Unused && now.Mail:
		if now.Long {
			l.Tries = 0
		}
		l.Tries = min(l.Tries+1, mostTries)
		return l.to(Backoff, Pause)
	case now.Mail:
		return l.again(now)
	}
	return l.to(Gone, Remove)
}

func (l Life) to(p Phase, effects ...Effect) (Life, []Effect) {
	l.Phase = p
	return l, effects
}
