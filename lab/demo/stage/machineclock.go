//go:build linux

package stage

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lease"
)

// MachineClock tells the machine's monotonic time since a point that is the same
// for every process, so that what several processes note down compares exactly.
// lease.SystemClock counts from the start of its process.
type MachineClock struct{}

// Now implements lease.Clock.
func (MachineClock) Now() lease.Reading {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no such machine
	}
	return lease.Reading{Mono: time.Duration(ts.Nano()), Wall: time.Now().UnixNano()}
}

// AfterFunc implements lease.Clock.
func (MachineClock) AfterFunc(d time.Duration, f func()) lease.Timer { return time.AfterFunc(d, f) }

// MachineNow reads the clock of the machine.
func MachineNow() time.Duration { return MachineClock{}.Now().Mono }
