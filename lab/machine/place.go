//go:build linux

package machine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is a thread with a network namespace of its own, for as long as it lives; nil is that of this process.
type Place struct {
	jobs  chan func()
	Path  string // of the namespace
	begun chan struct{}
	done  chan struct{}
}

// NewPlace makes one.
func NewPlace() (*Place, error) {
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
		err := unix.Unshare(unix.CLONE_NEWNET)
		p.Path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		if ready <- err; err != nil {
			return
		}
		for f := range p.jobs {
			f()
		}
	}
	go serve()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return p, nil
}

// Do runs f in the namespace and returns what it does.
func (p *Place) Do(f func() error) error {
	if p == nil {
		return f()
	}
	err := make(chan error, 1)
	p.jobs <- func() { err <- f() }
	return <-err
}

// IP runs commands of ip(8) there.
func (p *Place) IP(commands ...string) error {
	var out bytes.Buffer
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(commands, "\n")+"\n"), &out, &out
	if err := p.Do(cmd.Run); err != nil {
		return fmt.Errorf("ip %q: %w: %s", commands, err, out.Bytes())
	}
	return nil
}

// End ends the thread.
func (p *Place) End() {
	close(p.jobs)
	<-p.done
}
