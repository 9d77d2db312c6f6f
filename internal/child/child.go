//go:build unix

// Package child runs processes that die with this one, for kits that test against real servers.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child that was started, until it has been waited for. Safe for concurrent use.
type Process struct {
	os   *os.Process
	done chan struct{} // closed once it was waited for
	err  error         // how it ended; read after done
}

// Start starts cmd. On Linux the child gets SIGKILL when this process ends, however it ends,
// or what EndWithParent says; elsewhere it is left behind by one that does not come to Kill it.
func Start(cmd *exec.Cmd) (*Process, error) {
	diesWithParent(cmd)
	p := &Process{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Linux tells the child when the thread that forked it ends, not the
		// process. So that thread is ours for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.os = cmd.Process
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid is the child's, also after its end.
func (p *Process) Pid() int { return p.os.Pid }

// Exited reports whether the child has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Done is closed once the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the child ended, as exec.Cmd.Wait says it; to be read once it has.
func (p *Process) Err() error { return p.err }

// Signal reaches this child or none: the handle survives the reuse of a pid. An error says that
// the child has ended, and how.
func (p *Process) Signal(s syscall.Signal) error {
	err := p.os.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		<-p.done
		return fmt.Errorf("process %d has ended: %w", p.Pid(), errors.Join(err, p.err))
	}
	return err
}

const killTimeout = 30 * time.Second

// Kill ends the child with SIGKILL, also one that is stopped, and waits for it, for 30 s at most.
func (p *Process) Kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.NewTimer(killTimeout)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return fmt.Errorf("process %d still there %v after SIGKILL", p.Pid(), killTimeout)
	}
}
