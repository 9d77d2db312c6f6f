//go:build unix && !linux

package main

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Here only the program's group is ended, and a guard that is killed leaves its program behind.

func sharedClock() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // POSIX has it
	return time.Duration(t.Nano())
}

func itself() string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return path
}

func adoptOrphans() {}

func attributes(foreground bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Foreground: foreground}
}

func descendants() map[int]bool { return nil }

func (w *ward) signal(s syscall.Signal) { _ = syscall.Kill(-w.pid, s) } // an error: nothing is left

func endAll(map[int]bool) {}
