//go:build unix

package compared

import (
	"syscall"
	"time"
)

// processorTime is what this process has used of the processors. A ratio of it is
// the same on a machine that does other things as well.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // can't fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
