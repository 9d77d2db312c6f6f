package gate

import (
	"strconv"
	"sync/atomic"
)

// What a gate lets through:
//
//	        Drain
//	open ─────────▶ draining
//	  │                │
//	  │ Lose, or term  │ Lose, or term
//	  │ not alive      │ not alive
//	  ▼                ▼             actor ended, or Close
//	  └────────────▶ lost ──────────────────▶ ended
//	                  (open and draining lead to ended as well)
//
//	what is taken                open     draining  lost      ended
//	front-door mail              passes   diverted  diverted  diverted
//	other mail, PoisonPill       passes   passes    diverted  diverted
//	continuations                pass     pass      withheld  withheld
//	Started                      passes   passes    withheld  withheld
//	Restart                      passes   passes    → Stop    withheld
//	Terminated of a child        passes   passes    lifecycle withheld
//	Terminated of another        passes   passes    withheld  withheld
//	Stop, Failure                ─────── lifecycle ───────    (see below)
//	Watch, Unwatch               ─────── lifecycle ───────    (see below)
//
// "Passes" means: while the term is alive by the clock; the first check that
// fails makes the mode lost. "Lifecycle" is what protoactor needs to end the
// actor and its children; it is always handed on, so Stopping and Stopped
// handlers run after a loss, under a context that is done, and may clean up. It
// is handed on until the actor has ended; then a Watch is answered with
// Terminated and the rest is dropped. An actor that outlives Close is treated as
// lost until then.
//
// An actor whose Started was withheld never worked, so it sees neither Stopping
// nor Stopped: the gate ends it by itself. After a loss a Restart is made a
// Stop, and a restart that was waiting for children becomes a stop too, since a
// new incarnation would run under a dead term. Once an actor has begun to stop,
// front-door mail is diverted (its children may keep it waiting), a Restart is
// withheld, and the rest passes until it ended.

// Mode says what a gate lets through; the table is above.
type Mode uint32

const (
	// Open: everything passes while the term is alive.
	Open Mode = iota
	// Draining: front-door mail is diverted, the rest passes while the term is
	// alive, so that what was begun can be finished.
	Draining
	// Lost: the term ended under the actor. Nothing passes.
	Lost
	// Ended: the actor ended, or the gate was closed. Nothing passes.
	Ended
)

// String returns the mode's name in lower case.
func (m Mode) String() string {
	switch m {
	case Open:
		return "open"
	case Draining:
		return "draining"
	case Lost:
		return "lost"
	case Ended:
		return "ended"
	}
	return "mode " + strconv.Itoa(int(m))
}

// event is what moves a gate from mode to mode.
type event uint8

const (
	drain event = iota
	lose
	end
)

// next is the whole state machine. Modes only grow.
func next(m Mode, e event) Mode {
	switch {
	case e == drain && m == Open:
		return Draining
	case e == lose && m < Lost:
		return Lost
	case e == end:
		return Ended
	}
	return m
}

// state is a mode that moves atomically.
type state struct{ v atomic.Uint32 }

func (s *state) mode() Mode { return Mode(s.v.Load()) }

// apply moves by e; moved is true for the one caller that caused the change.
func (s *state) apply(e event) (was Mode, moved bool) {
	for {
		was = s.mode()
		to := next(was, e)
		if to == was {
			return was, false
		}
		if s.v.CompareAndSwap(uint32(was), uint32(to)) {
			return was, true
		}
	}
}
