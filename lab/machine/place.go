//go:build linux

package machine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Place is a thread from which processes are started. Linux tells a child when
// the thread that started it ends, not the process: so this one lives as long as
// its children may. It can have a network namespace of its own, in which they run.
type Place struct {
	jobs  chan func()
	path  string // of the namespace
	begun chan struct{}
	done  chan struct{}
}

// NewPlace makes a thread, in a network namespace of its own if isolated.
func NewPlace(isolated bool) (*Place, error) {
	p := &Place{jobs: make(chan func()), begun: make(chan struct{}), done: make(chan struct{})}
	ready := make(chan error, 1)
	var serve func()
	serve = func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if unix.Gettid() == os.Getpid() {
			// What is in /proc/net is of this thread: it stays where it is, and is kept
			// busy until another goroutine has another thread.
			go serve()
			<-p.begun
			runtime.UnlockOSThread()
			return
		}
		close(p.begun)
		defer close(p.done)
		if isolated {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				ready <- fmt.Errorf("network namespace: %w", err)
				return
			}
		}
		p.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		ready <- nil
		for f := range p.jobs {
			f()
		}
	}
	go serve()
	return p, <-ready
}

// Path is that of the network namespace.
func (p *Place) Path() string { return p.path }

// Do runs f on the thread and returns what it does.
func (p *Place) Do(f func() error) error {
	err := make(chan error, 1)
	p.jobs <- func() { err <- f() }
	return <-err
}

// Start starts cmd there; it dies with this process.
func (p *Place) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return p.Do(cmd.Start)
}

// IP runs commands of ip(8) there.
func (p *Place) IP(commands ...string) error {
	var out bytes.Buffer
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(commands, "\n")+"\n"), &out, &out
	if err := p.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("ip %q: %w: %s", commands, err, out.Bytes())
	}
	return nil
}

// End ends the thread, and what was started from it and still runs.
func (p *Place) End() {
	close(p.jobs)
	<-p.done
}
