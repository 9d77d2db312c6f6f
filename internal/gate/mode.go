package gate

import (
	"strconv"
	"sync/atomic"
)

// Mode says what a gate lets through; the package documentation has the table.
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
