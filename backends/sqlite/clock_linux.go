package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
)

// machineClock is CLOCK_BOOTTIME with the kernel's ID of the boot.
var machineClock = sync.OnceValues(func() (clock, error) {
	if err := sharedTime("/proc/self/ns"); err != nil {
		return clock{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return clock{}, fmt.Errorf("%w: the kernel's ID of the boot can't be read: %w", store.ErrUnsupported, err)
	}
	return clock{boot: strings.TrimSpace(string(boot)), now: bootTime}, nil
})

func bootTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // it is there since Linux 2.6.39
	return time.Duration(t.Nano())
}

// machineTime is the time namespace that the kernel begins with: its inode is a constant.
const machineTime = "time:[4026531834]"

// sharedTime returns an error unless the process, of which dir has the namespaces, reads the clock that
// the machine's other processes read. A time namespace may shift it.
func sharedTime(dir string) error {
	own, err := os.Readlink(dir + "/time")
	if errors.Is(err, fs.ErrNotExist) { // a kernel without time namespaces, if this is one at all
		if _, err = os.Stat(dir); err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: whether this process has the machine's clock can't be known: %w", store.ErrUnsupported, err)
	}
	if own != machineTime {
		return fmt.Errorf("%w: this process is in a time namespace of its own (%s), whose clock may differ from that of "+
			"the machine's other processes", store.ErrUnsupported, own)
	}
	return nil
}

// doze sleeps for d, a millisecond or so at most, to some ten microseconds. A timer of Go's is up
// to 1 ms late in a process that has nothing else to do.
func doze(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it: it was a pause only
}
