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
		if r.What == didListen || r.What == anything { // of work there is too much
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

// all returns every report so far.
func (c *child) all() ([]report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[:len(c.reports):len(c.reports)], c.garbled
}

// kill ends the process with SIGKILL and returns when it is gone.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return c.ended(patience)
}

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
