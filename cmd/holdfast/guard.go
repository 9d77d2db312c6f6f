//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lease"
)

// The guard is this program once more, between holdfast run and the program it runs, as the parent of
// that. It gets a deadline with each renewal, and ends the program, with all that it started, before
// the deadline that it got last, when holdfast run asks it to, and when that ends. So neither
// SIGKILL nor SIGSTOP of holdfast run leaves a program without a lease. If the guard is killed, its
// program is too, by the system, and holdfast run ends what is left.

// order is what holdfast run tells the guard.
type order struct {
	Start    *program       `json:",omitempty"` // the first
	Deadline time.Duration  `json:",omitempty"` // when the program gets SIGKILL, by sharedClock
	Stop     bool           `json:",omitempty"` // SIGTERM now
	Signal   syscall.Signal `json:",omitempty"` // for the program
}

type program struct {
	Path       string
	Args, Env  []string      // Env: beside the guard's own
	Grace      time.Duration // from SIGTERM to SIGKILL
	Foreground bool          // it gets the terminal
}

// report is how the program ended: nothing that it started runs any more.
type report struct {
	Status  int  // 128 and the signal that ended it, as shells say
	Stopped bool // it was told to end before it had
	Err     string
}

// look is how often clocks are read, which may have been set, or gone on while the machine slept.
const look = 100 * time.Millisecond

// guardProgram is the whole of the guard.
func guardProgram() error {
	runtime.LockOSThread() // the death of the thread that forks the program would end that
	signal.Notify(make(chan os.Signal, 1), passedOn()...)
	in, out := os.NewFile(3, "orders"), os.NewFile(4, "reports")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	adoptOrphans()
	orders := make(chan order)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(in); ; {
			var o order
			if d.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	first := <-orders
	if first.Start == nil {
		return nil // it is not needed
	}
	p := *first.Start
	if sharedClock() >= first.Deadline-p.Grace { // this process was slow, or stopped
		return json.NewEncoder(out).Encode(report{Stopped: true})
	}
	attr := &os.ProcAttr{Env: append(os.Environ(), p.Env...), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: true, Foreground: p.Foreground, Pdeathsig: syscall.SIGKILL}} // it dies with the guard
	started, err := os.StartProcess(p.Path, p.Args, attr)
	if err != nil {
		return json.NewEncoder(out).Encode(report{Status: codeNoStart, Err: err.Error()})
	}
	w := ward{pid: started.Pid, grace: p.Grace, ended: make(chan int, 1), gone: make(chan struct{})}
	w.until(first.Deadline)
	go w.reap()
	_ = json.NewEncoder(out).Encode(w.guard(orders)) // an error: holdfast run has ended
	return nil
}

// ward is the program that is guarded.
type ward struct {
	pid   int // and its group's
	grace time.Duration
	ended chan int      // its status
	gone  chan struct{} // closed: nothing that it started is left, either

	over, termed             bool // it has ended; it was sent SIGTERM
	deadline, termAt, killAt time.Duration
}

// until sets the deadline.
func (w *ward) until(deadline time.Duration) {
	w.deadline = deadline
	if w.killAt = min(w.killAt, deadline); !w.termed && !w.over {
		w.termAt, w.killAt = deadline-w.grace, deadline
	}
}

// reap waits for the program, and for what it left to this process.
func (w *ward) reap() {
	defer close(w.gone)
	for {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &s, 0, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return
		case err != nil || pid != w.pid:
		case s.Signaled():
			w.ended <- 128 + int(s.Signal())
		default:
			w.ended <- s.ExitStatus()
		}
	}
}

// guard returns when nothing of the program is left.
func (w *ward) guard(orders <-chan order) (r report) {
	var again, pause time.Duration // the next SIGKILL
	for {
		now := sharedClock()
		next := w.termAt
		if !w.termed && now >= w.termAt {
			w.termed, w.killAt = true, min(now+w.grace, w.deadline)
			r.Stopped = !w.over
			w.signal(syscall.SIGTERM)
			w.signal(syscall.SIGCONT)
		}
		if w.termed && now >= max(w.killAt, again) {
			w.signal(syscall.SIGKILL)
			pause = min(2*pause+time.Millisecond, time.Second)
			again = sharedClock() + pause // of many processes, to read of all takes time
		}
		if w.termed {
			next = max(w.killAt, again)
		}
		select {
		case o, told := <-orders:
			switch {
			case !told || o.Stop:
				w.termAt = now
				if !told {
					orders = nil
				}
			case o.Signal != 0 && !w.over:
				_ = syscall.Kill(-w.pid, o.Signal) // an error: it is about to be found dead
			case o.Deadline != 0:
				w.until(o.Deadline)
			}
		case r.Status = <-w.ended:
			// What it left is sent SIGTERM, if it does not turn out at once that there is nothing.
			if w.over = true; !w.termed {
				w.termAt = now + time.Millisecond
			}
		case <-w.gone:
			select {
			case r.Status = <-w.ended:
			default:
			}
			return r
		case <-time.After(min(max(next-now, 0), look)):
		}
	}
}

// guard, in holdfast run, is that process.
type guard struct {
	cmd      *exec.Cmd
	orders   *os.File
	reports  chan report // closed when it has ended
	signals  chan syscall.Signal
	spared   map[int]bool  // what ran below this process before
	deadline time.Duration // that it was told last
	slack    time.Duration // by which it may be late
}

// newGuard starts a guard, without a program yet.
func newGuard() (*guard, error) {
	g := &guard{cmd: exec.Command("/proc/self/exe", "run", "--guard"), // this very program, also when its file was replaced
		spared:  descendants(nil),
		reports: make(chan report, 1), signals: make(chan syscall.Signal, 16)}
	adoptOrphans()
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	reports, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), orders.Close())
	}
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	g.cmd.ExtraFiles = []*os.File{in, out}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to our group is not for it
	err = g.cmd.Start()
	_, _ = in.Close(), out.Close()
	if err != nil {
		return nil, errors.Join(err, orders.Close(), reports.Close())
	}
	g.orders = orders
	go func() {
		defer close(g.reports)
		var r report
		if json.NewDecoder(reports).Decode(&r) == nil {
			g.reports <- r
		}
		_ = g.cmd.Wait() // its reports say it all
		_, _ = reports.Close(), orders.Close()
	}()
	return g, nil
}

// start has it run the program.
func (g *guard) start(p program, t lease.Term, margin time.Duration) error {
	d, alive := deadlineOf(t)
	if !alive {
		d = sharedClock()
	}
	g.deadline, g.slack = d, margin/4
	return g.tell(order{Start: &p, Deadline: d})
}

// tell gives up when the guard should have ended the program.
func (g *guard) tell(o order) error {
	_ = g.orders.SetWriteDeadline(time.Now().Add(g.deadline + g.slack - sharedClock())) // pipes have such
	return json.NewEncoder(g.orders).Encode(o)
}

// deadlineOf is how far the term is trusted, by sharedClock.
func deadlineOf(t lease.Term) (time.Duration, bool) {
	now := sharedClock() // first: a pause after it makes the deadline earlier, and not later
	until := t.(lease.Informed).Info().TrustedUntil
	return now + time.Until(until), !until.IsZero()
}

// follow tells the guard of renewals, and of the end of the term, until the program has ended.
func (g *guard) follow(t lease.Term) report {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	lost := t.Context().Done()
	for {
		var err error
		select {
		case r, ok := <-g.reports:
			if !ok {
				return g.end(errors.New("it was killed"))
			}
			return r
		case s := <-g.signals:
			err = g.tell(order{Signal: s})
		case <-lost:
			lost, err = nil, g.tell(order{Stop: true})
		case <-ticker.C:
			d, alive := deadlineOf(t)
			if alive && (d-g.deadline).Abs() > 10*time.Millisecond {
				g.deadline = d
				err = g.tell(order{Deadline: d})
			}
		}
		if err == nil && sharedClock() > g.deadline+g.slack {
			err = errors.New("it did not stop the program in time")
		}
		if err != nil {
			return g.end(err)
		}
	}
}

// end ends a guard that runs no program, or that failed, with all that it left.
func (g *guard) end(failed error) (r report) {
	if g == nil {
		return r
	}
	if failed != nil {
		_ = g.cmd.Process.Kill() // an error: it has ended
	}
	_ = g.orders.Close()
	told := false
	for r = range g.reports {
		told = true
	}
	if failed != nil {
		endAll(g.spared)
		if !told {
			r = report{Status: 128 + int(syscall.SIGKILL), Err: "the program was killed, as its guard failed: " + failed.Error()}
		}
	}
	return r
}

// inForeground reports whether this process has the terminal to itself.
func inForeground() bool {
	for fd := range 2 { // with a pipe behind it, the reader may want the terminal
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
			return false
		}
	}
	return true
}

// toForeground takes the terminal back.
func toForeground() {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp()) // an error: it is gone
	signal.Reset(syscall.SIGTTOU)
}

// sharedClock reads a clock that all processes share, and that goes on while the machine sleeps.
func sharedClock() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every Linux has it
	return time.Duration(t.Nano())
}

// adoptOrphans makes this process the parent of its descendants that lose theirs.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // since Linux 3.4

// descendants are the processes below this one that run, by their ids, but for those that are spared and
// what is below these.
func descendants(spared map[int]bool) map[int]bool {
	below := map[int][]int{}
	all, _ := os.ReadDir("/proc") // an error: there are the others
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		end := bytes.LastIndexByte(text, ')') // a program's name may have anything in it
		if err != nil || end < 0 {
			continue // it has just ended
		}
		var state string
		var parent int
		_, err = fmt.Sscan(string(text[end+1:]), &state, &parent)
		if err == nil && state != "Z" {
			below[parent] = append(below[parent], pid)
		}
	}
	found := map[int]bool{}
	for todo := []int{os.Getpid()}; len(todo) > 0; todo = todo[1:] {
		for _, pid := range below[todo[0]] {
			if !found[pid] && !spared[pid] { // ids that are used again while they are read can make a circle
				found[pid] = true
				todo = append(todo, pid)
			}
		}
	}
	return found
}

// signal is for all that the program started. The group, while it is surely the program's, misses
// none that is being forked.
func (w *ward) signal(s syscall.Signal) {
	if !w.over {
		_ = syscall.Kill(-w.pid, s) // an error: it has ended, or is another user's
	}
	for pid := range descendants(nil) {
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
		left := descendants(spared)
		if errors.Is(err, syscall.ECHILD) || len(left) == 0 && len(spared) > 0 {
			return
		}
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // an error: it has ended, or is another user's
		}
		time.Sleep(pause)
	}
}
