//go:build unix

package checks

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// LaneName is the name under which `go test -exec` runs this program in front of each test binary.
const LaneName = "lane"

// low is the nice value of what runs beside real servers. It leaves them most of the processors; at
// 19 it would hardly run beside other work on the machine.
const low = 3

// The environment of Lane.
const (
	laneRoot  = "HOLDFAST_LANE_ROOT"  // the repository
	laneLock  = "HOLDFAST_LANE_LOCK"  // a file
	laneFlags = "HOLDFAST_LANE_FLAGS" // GOFLAGS for the test binary
)

// Lane becomes the test binary that os.Args names, in its lane: packages that run real servers or
// processes run one at a time at normal priority, and the others beside them at low priority.
//
// The lock is a POSIX record lock. It stays with the process over exec, the servers that the test
// starts do not inherit it, and it ends with the process.
func Lane() {
	runtime.LockOSThread() // Linux has a priority for each thread, and exec keeps that of the caller
	if !Real(scene.Must(filepath.Rel(os.Getenv(laneRoot), scene.Must(os.Getwd())))) {
		scene.Check(syscall.Setpriority(syscall.PRIO_PROCESS, 0, low), "low priority")
	} else {
		fd, err := syscall.Open(os.Getenv(laneLock), syscall.O_RDWR, 0) // stays open in the test binary
		scene.Check(err, "the lane's lock")
		lock := &syscall.Flock_t{Type: syscall.F_WRLCK}
		scene.Check(syscall.FcntlFlock(uintptr(fd), syscall.F_SETLKW, lock), "the lane's lock")
	}
	scene.Check(os.Setenv("GOFLAGS", os.Getenv(laneFlags)))
	scene.Check(syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
}
