package sqlite

import (
	"time"

	"golang.org/x/sys/unix"
)

// doze sleeps for d, a millisecond or so at most, to some ten microseconds. A timer of Go's is up
// to 1 ms late in a process that has nothing else to do.
func doze(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it: it was a pause only
}
