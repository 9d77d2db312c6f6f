package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
)

// machineClock is CLOCK_BOOTTIME with the kernel's ID of the boot.
var machineClock = sync.OnceValues(func() (clock, error) {
	if err := sharedTime("/proc/self"); err != nil {
		return clock{}, err
	}
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	boot := strings.TrimSpace(string(b))
	if err == nil && !bootID.MatchString(boot) {
		err = fmt.Errorf("%.64q is none", boot)
	}
	if err != nil {
		return clock{}, fmt.Errorf("%w: the kernel's ID of the boot can't be read: %w", store.ErrUnsupported, err)
	}
	if _, err := bootTime(); err != nil {
		return clock{}, fmt.Errorf("%w: CLOCK_BOOTTIME: %w", store.ErrUnsupported, err)
	}
	return clock{boot: boot, now: func() time.Duration {
		d, _ := bootTime() // it was there, so it is
		return d
	}}, nil
})

var bootID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func bootTime() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano()), err
}

// machineTime is the time namespace that the kernel begins with: its inode is a constant.
const machineTime = "time:[4026531834]"

var noOffset = regexp.MustCompile(`(?m)^(boottime|7)\s+0\s+0$`)

// sharedTime returns an error unless the process, of which dir is the folder in /proc, reads the
// clock that the machine's other processes read. A time namespace may shift it.
func sharedTime(dir string) error {
	own, err := os.Readlink(dir + "/ns/time")
	switch {
	case errors.Is(err, fs.ErrNotExist): // a kernel without time namespaces, if this is one at all
		if _, err = os.Stat(dir + "/ns"); err == nil {
			return nil
		}
		fallthrough
	case err != nil:
		return fmt.Errorf("%w: whether this process has the machine's clock can't be known: %w", store.ErrUnsupported, err)
	case own == machineTime:
		return nil
	}
	// The offsets that can be read are those of the namespace that children get.
	children, err := os.Readlink(dir + "/ns/time_for_children")
	if err == nil && children == own {
		if b, err := os.ReadFile(dir + "/timens_offsets"); err == nil && noOffset.Match(b) {
			return nil
		}
	}
	return fmt.Errorf("%w: this process is in a time namespace of its own (%s), whose clock differs from that of "+
		"the machine's other processes", store.ErrUnsupported, own)
}

// doze sleeps for d, a millisecond or so at most, to some ten microseconds. A timer of Go's is up
// to 1 ms late in a process that has nothing else to do.
func doze(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it: it was a pause only
}
