//go:build unix

package etcdtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that was started, until it has been waited for.
type process struct {
	os   *os.Process
	done chan struct{} // closed once it was waited for
	err  error         // how it ended; read after done
}

// spawn starts cmd. The child dies with this process where the system offers
// that (diesWithParent).
func spawn(cmd *exec.Cmd) (*process, error) {
	diesWithParent(cmd)
	p := &process{done: make(chan struct{})}
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

func (p *process) pid() int { return p.os.Pid }

// exited reports whether the child has ended.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal reaches this child or none: the handle survives the reuse of a pid.
func (p *process) signal(s syscall.Signal) error {
	err := p.os.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		<-p.done
		return fmt.Errorf("process %d has ended: %w", p.pid(), errors.Join(err, p.err))
	}
	return err
}

const killTimeout = 10 * time.Second

// kill ends the child with SIGKILL and waits for it; stopped children too.
func (p *process) kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.NewTimer(killTimeout)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		return fmt.Errorf("process %d still there %v after SIGKILL", p.pid(), killTimeout)
	}
}
