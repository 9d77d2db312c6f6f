//go:build linux

package machine

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// RSS is the resident memory of a process that it shares with nobody, in bytes; 0 if
// there is no such process.
func RSS(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseUint(string(fields[2]), 10, 64)
	return (resident - min(resident, shared)) * uint64(os.Getpagesize())
}

// Live is Heap after a garbage collection.
func Live() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to
	return Heap()
}

// Processor is the processor time that this process has used.
func Processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of this process: it has no reason to fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Heap is what is allocated on the heap of this process, what waits to be collected
// included.
func Heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
