//go:build linux

package stage

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is a process that was started here, with one node, and all it told.
type Child[R any] struct {
	ID       string
	timeline *Timeline
	tell     func(R)
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	done     chan struct{} // closed once it was waited for
	err      error         // how it ended; read after done

	mu      sync.Mutex
	reports []R
	garbled error // something it said was no report
}

// startChild starts this program once more, with args. tell is called with all that
// it reports.
func startChild[R any](id string, t *Timeline, tell func(R), args ...string) (*Child[R], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child[R]{ID: id, timeline: t, tell: tell, cmd: exec.Command(self, args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), NodeEnv+"=1")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what is typed at the terminal is for the parent
	diesWithParent(c.cmd.SysProcAttr)
	stdin, err1 := c.cmd.StdinPipe()
	stdout, err2 := c.cmd.StdoutPipe()
	stderr, err3 := c.cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	c.stdin = stdin
	started := make(chan error, 1)
	go func() {
		// Linux tells the child when the thread that started it ends, not the
		// process: so that thread does nothing else.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		var readers sync.WaitGroup
		readers.Go(func() { c.listen(stdout) })
		readers.Go(func() { c.overhear(stderr) })
		readers.Wait() // Wait closes what they read from
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", id, err)
	}
	return c, nil
}

// listen keeps what the child reports, and tells it.
func (c *Child[R]) listen(from io.Reader) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // a line that was cut off by a kill was no report yet
		}
		var r R
		err = json.Unmarshal(line, &r)
		c.mu.Lock()
		if err != nil {
			c.garbled = errors.Join(c.garbled, fmt.Errorf("%s said %.100q: %w", c.ID, line, err))
		} else {
			c.reports = append(c.reports, r)
		}
		c.mu.Unlock()
		c.tell(r)
	}
}

// overhear prints what the child writes to standard error.
func (c *Child[R]) overhear(from io.Reader) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			c.Say("  | %s", strings.TrimRight(line, "\r\n"))
		}
		if err != nil {
			return
		}
	}
}

// Say puts a line into the timeline.
func (c *Child[R]) Say(format string, args ...any) { c.timeline.Say(c.ID, format, args...) }

// All returns every report so far.
func (c *Child[R]) All() ([]R, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[:len(c.reports):len(c.reports)], c.garbled
}

// Order writes a line to the standard input of the process.
func (c *Child[R]) Order(line string) error {
	_, err := io.WriteString(c.stdin, line+"\n")
	return err
}

// Kill ends the process with SIGKILL, also one that is stopped, and returns when
// it is gone.
func (c *Child[R]) Kill(patience time.Duration) error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return c.ended(patience)
}

// Stop sends SIGSTOP and returns when every thread of the process stands still.
func (c *Child[R]) Stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		switch _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for %s to stop: %w", c.ID, err)
		case !status.Stopped():
			return fmt.Errorf("%s did not stop but end, with status %#x", c.ID, int(status))
		default:
			return nil
		}
	}
}

// Cont sends SIGCONT.
func (c *Child[R]) Cont() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// Leave asks the node to leave, and waits until its process has ended well.
func (c *Child[R]) Leave(patience time.Duration) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", c.ID, err)
	}
	if err := c.ended(patience); err != nil {
		return err
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w", c.ID, c.err)
	}
	return nil
}

func (c *Child[R]) ended(within time.Duration) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s, process %d, has not ended within %v", c.ID, c.cmd.Process.Pid, within)
	}
}
