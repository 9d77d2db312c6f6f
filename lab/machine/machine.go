//go:build linux

// Package machine is a laboratory of real processes (Linux): what the checks in
// lab/nodes and lab/leases need to start processes, to stand between them, and to
// note what they see.
//
//   - Process: a child that dies with its parent, takes orders and tells reports over pipes; Place:
//     a network namespace that it may be in.
//   - Links: nodes reach each other through the TCP proxies of package faultlink, which delay,
//     throttle, hold back, cut and count.
//   - Now and Clock: the machine's one monotonic clock, by which the notes of all
//     processes compare.
//   - EtcdHistory and Migrate: what both ask of servers.
//   - Journal: what a node notes, in a file in the memory of several processes, which outlives
//     kill -9.
package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/store"
)

// Now reads the machine's monotonic clock, which is the same for all processes.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(ts.Nano())
}

// Clock is the machine's, so that the readings of all Keepers compare; from a reading on at a quarter of
// its rate, if that is not zero.
type Clock struct{ Slow store.Reading }

// Now implements store.Clock.
func (c Clock) Now() store.Reading {
	r := store.Reading{Mono: Now(), Wall: time.Now().UnixNano()}
	if c.Slow != (store.Reading{}) {
		r.Mono, r.Wall = c.Slow.Mono+(r.Mono-c.Slow.Mono)/4, c.Slow.Wall+(r.Wall-c.Slow.Wall)/4
	}
	return r
}

// AfterFunc implements store.Clock.
func (Clock) AfterFunc(d time.Duration, f func()) store.Timer { return time.AfterFunc(d, f) }

// Until calls is every 5 ms until it is true. ErrNever says that it was not within so long.
func Until(ctx context.Context, within time.Duration, what string, is func() bool) error {
	for end := Now() + within; !is(); {
		if Now() >= end {
			return fmt.Errorf("%s: %w within %v", what, ErrNever, within)
		}
		if err := Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Pause waits for d or for ctx to end.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

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

// burnEnv makes Burn burn.
const burnEnv = "HOLDFAST_CLUSTER_BURN"

// Burn uses a processor until it is killed, if this process was started for that.
func Burn() {
	for os.Getenv(burnEnv) != "" {
	}
}

// Burners starts n processes of this program, which must call Burn first, and returns
// what ends them.
func Burners(n int) (end func() error) {
	var all []*child.Process
	end = func() (err error) {
		for _, p := range all {
			err = errors.Join(err, p.Kill())
		}
		return err
	}
	for range n {
		cmd := exec.Command(scene.Must(os.Executable()))
		cmd.Env = append(os.Environ(), burnEnv+"=1", "GOMAXPROCS=1")
		all = append(all, scene.Must(child.Start(cmd)))
	}
	return end
}
