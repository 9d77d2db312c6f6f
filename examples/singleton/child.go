//go:build linux || darwin || freebsd

package main

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

// child is a process that was started here, with one node, and all it told.
type child struct {
	id       string
	timeline *timeline
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	done     chan struct{} // closed once it was waited for
	err      error         // how it ended; read after done

	mu      sync.Mutex
	reports []report
	garbled error // something it said was no report
}

// startChild starts this program once more, with args.
func startChild(id string, t *timeline, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{id: id, timeline: t, cmd: exec.Command(self, args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), nodeEnv+"=1")
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

// listen keeps what the child reports, and prints what people want to know.
func (c *child) listen(from io.Reader) {
	tell := plainReports(c.id, c.timeline)
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // a line that was cut off by a kill was no report yet
		}
		var r report
		err = json.Unmarshal(line, &r)
		c.mu.Lock()
		if err != nil {
			c.garbled = errors.Join(c.garbled, fmt.Errorf("%s said %.100q: %w", c.id, line, err))
		} else {
			c.reports = append(c.reports, r)
		}
		c.mu.Unlock()
		if r.What != didWrite { // of work there is too much
			tell(r)
		}
	}
}

// overhear prints what the child writes to standard error.
func (c *child) overhear(from io.Reader) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			c.say("  | %s", strings.TrimRight(line, "\r\n"))
		}
		if err != nil {
			return
		}
	}
}

func (c *child) say(format string, args ...any) { c.timeline.say(c.id, format, args...) }

// told returns the first report since then that fits.
func (c *child) told(since time.Duration, fits func(report) bool) (report, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.reports {
		if r.At >= since && fits(r) {
			return r, true
		}
	}
	return report{}, false
}

// all returns every report so far.
func (c *child) all() ([]report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[:len(c.reports):len(c.reports)], c.garbled
}

// hold has the node stay in the middle of its next job.
func (c *child) hold() error {
	_, err := io.WriteString(c.stdin, holdCommand+"\n")
	return err
}

// kill ends the process with SIGKILL, also one that is stopped, and returns when
// it is gone.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return c.ended(patience)
}

// stop sends SIGSTOP and returns when every thread of the process stands still.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		switch _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for %s to stop: %w", c.id, err)
		case !status.Stopped():
			return fmt.Errorf("%s did not stop but end, with status %#x", c.id, int(status))
		default:
			return nil
		}
	}
}

func (c *child) cont() error { return c.cmd.Process.Signal(syscall.SIGCONT) }

// leave asks the node to leave, and waits until its process has ended well.
func (c *child) leave() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", c.id, err)
	}
	if err := c.ended(3 * patience); err != nil {
		return err
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w", c.id, c.err)
	}
	return nil
}

func (c *child) ended(within time.Duration) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s, process %d, has not ended within %v", c.id, c.cmd.Process.Pid, within)
	}
}
