package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sharedClock reads a clock that all processes share, and that goes on while the machine sleeps.
func sharedClock() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every Linux has it
	return time.Duration(t.Nano())
}

// itself is this very program, also when its file was replaced.
func itself() string { return "/proc/self/exe" }

// adoptOrphans makes this process the parent of its descendants that lose theirs.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // since Linux 3.4

// attributes are those of the program: it dies with the guard.
func attributes(foreground bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Foreground: foreground, Pdeathsig: syscall.SIGKILL}
}

// descendants are the processes below this one that run, by their ids.
func descendants() map[int]bool {
	below := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		end := bytes.LastIndexByte(text, ')') // a program's name may have anything in it
		if err != nil || end < 0 {
			continue // it has just ended
		}
		var state string
		var parent int
		_, err = fmt.Sscan(string(text[end+1:]), &state, &parent)
		pid, bad := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && bad == nil && state != "Z" {
			below[parent] = append(below[parent], pid)
		}
	}
	found := map[int]bool{}
	for todo := below[os.Getpid()]; len(todo) > 0; todo = todo[1:] {
		found[todo[0]] = true
		todo = append(todo, below[todo[0]]...)
	}
	return found
}

// signal is for all that the program started. The group, while it is surely the program's, misses
// none that is being forked.
func (w *ward) signal(s syscall.Signal) {
	if !w.over {
		_ = syscall.Kill(-w.pid, s) // an error: it has ended, or is another user's
	}
	for pid := range descendants() {
		if group, err := syscall.Getpgid(pid); err == nil && (w.over || group != w.pid) {
			_ = syscall.Kill(pid, s)
		}
	}
}

// endAll ends all below this process but those that are spared.
func endAll(spared map[int]bool) {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		var err error
		for pid := 1; pid > 0; {
			pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		left := descendants()
		for pid := range spared {
			delete(left, pid)
		}
		if errors.Is(err, syscall.ECHILD) || len(left) == 0 && len(spared) > 0 {
			return
		}
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // an error: it has ended, or is another user's
		}
		time.Sleep(pause)
	}
}
