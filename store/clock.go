package store

import "time"

// Reading is one look at both clocks of a machine.
type Reading struct {
	// Mono is monotonic time since some fixed point. It may stand still while
	// the machine sleeps.
	Mono time.Duration
	// Wall is wall time in nanoseconds since 1970. It may be stepped.
	Wall int64
}

// Clock is the seam through which a Keeper, or a store, sees time, so that a test can
// freeze, drift or step the clock of one node.
type Clock interface {
	// Now must not block or allocate: CheckAlive calls it.
	Now() Reading
	// AfterFunc calls f in an own goroutine after d.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending AfterFunc; *time.Timer is one.
type Timer interface{ Stop() bool }

// SystemClock is the machine's clock. It works under testing/synctest.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

var processStart = time.Now()

func (systemClock) Now() Reading {
	t := time.Now()
	return Reading{Mono: t.Sub(processStart), Wall: t.UnixNano()}
}

func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
