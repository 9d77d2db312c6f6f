//go:build unix

// Package servertest is what kits that start real servers share: a program that is started, halted,
// ended and started again, and what bounds operations on it.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/child"
)

// Program is a program of a group. Its log keeps all that it ever printed. Operations on it are not
// safe for concurrent use, but in Do; Down, Running and Pid are.
type Program struct {
	Kit, Name, Log string
	Tail           func(log string) string // what an error shows of the log
	*child.Process                         // the last that was started
	g              *Group
	state          atomic.Int32
	pid            atomic.Int64
	op             sync.Mutex
}

// Do is one operation after the other. Its error names it.
func (p *Program) Do(what string, operation func() error) error {
	p.op.Lock()
	defer p.op.Unlock()
	if err := operation(); err != nil {
		return fmt.Errorf("%s: %s %s: %w", p.Kit, what, p.Name, err)
	}
	return nil
}

const (
	down int32 = iota
	running
	halted
)

// Down reports whether no process is left, as the operations on it leave it; Running whether it is
// neither that nor halted.
func (p *Program) Down() bool    { return p.state.Load() == down }
func (p *Program) Running() bool { return p.state.Load() == running }

// Halted reports whether Halt was the last.
func (p *Program) Halted() bool { return p.state.Load() == halted }

// Pid is the process; 0 while there is none.
func (p *Program) Pid() int { return int(p.pid.Load()) }

// Start runs cmd, whose output goes to the log.
func (p *Program) Start(cmd *exec.Cmd) error {
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if p.Process, err = child.Start(cmd); err != nil {
		return err
	}
	p.pid.Store(int64(p.Process.Pid()))
	p.state.Store(running)
	return nil
}

// Await repeats probe until it is nil. An error says that the program ended, or why ctx did.
func (p *Program) Await(ctx context.Context, every time.Duration, probe func(context.Context) error) error {
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		if p.Exited() {
			return p.ExitError()
		}
		if ended := Pause(ctx, every); ended != nil {
			return fmt.Errorf("%w; last: %w; the last warnings in its log:\n%s", ended, err, p.LogEnd())
		}
	}
}

// Alive is an error unless there is a process.
func (p *Program) Alive() error {
	if p.Down() {
		return fmt.Errorf("%s is down", p.Name)
	}
	if p.Exited() {
		return p.ExitError()
	}
	return nil
}

// ExitError says that the program ended by itself, and how.
func (p *Program) ExitError() error {
	return fmt.Errorf("%s ended by itself: %v; the last warnings in its log:\n%s", p.Name, p.Err(), p.LogEnd())
}

// LogEnd is what an error shows of the log.
func (p *Program) LogEnd() string {
	f, err := os.Open(p.Log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 256 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd) // from the start, then: longer, but no less
	}
	text, _ := io.ReadAll(io.LimitReader(f, 2*most)) // whatever there is
	return p.Tail(string(text))
}

// Lines are those of a log that are not blank, each at most so wide.
func Lines(log string, width int) (lines []string) {
	for line := range strings.Lines(log) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) == "" {
			continue
		}
		if len(line) > width {
			line = strings.ToValidUTF8(line[:width], "") + " …"
		}
		lines = append(lines, line)
	}
	return lines
}

// Kill ends the process with SIGKILL and returns once it is gone. No-op when it is down.
func (p *Program) Kill() error {
	if p.Down() {
		return nil
	}
	if err := p.Process.Kill(); err != nil {
		return err
	}
	p.Gone()
	return nil
}

// Gone records that the process was ended by other means than Kill.
func (p *Program) Gone() {
	p.state.Store(down)
	p.pid.Store(0)
}

// Close is Kill at the end of all: an error tells of a program that had ended by itself.
func (p *Program) Close() error {
	if p.Down() {
		return nil
	}
	var err error
	if p.Exited() {
		err = p.ExitError()
	}
	return errors.Join(err, p.Kill())
}

// Begin, Pause, Resume and Restart are start, Halt, Continue, and start after a Kill, as operations
// of the program's group.
func (p *Program) Begin(ctx context.Context, start func(context.Context) error) error {
	return p.bounded(ctx, "start", start)
}

func (p *Program) Pause(ctx context.Context) error { return p.bounded(ctx, "pause", p.Halt) }

func (p *Program) Resume() error { return p.Do("resume", p.Continue) }

func (p *Program) Restart(ctx context.Context, start func(context.Context) error) error {
	return p.bounded(ctx, "restart", func(ctx context.Context) error {
		if p.g.Err() != nil {
			return p.g.closed
		}
		if err := p.Kill(); err != nil {
			return err
		}
		return start(ctx)
	})
}

func (p *Program) bounded(ctx context.Context, what string, operation func(context.Context) error) error {
	return p.Do(what, func() error {
		ctx, cancel := p.g.Bounded(ctx)
		defer cancel()
		return operation(ctx)
	})
}

// Halt halts the process with SIGSTOP and returns once none of its threads runs. No-op when it is
// halted; an error when it is down.
func (p *Program) Halt(ctx context.Context) error {
	if p.Halted() {
		return nil
	}
	if err := p.Alive(); err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	p.state.Store(halted)
	return p.Await(ctx, time.Millisecond, func(context.Context) error {
		if is, err := child.Halted(p.Pid()); err != nil || !is {
			return fmt.Errorf("%s is not halted: %w", p.Name, err)
		}
		return nil
	})
}

// Continue lets a halted process go on. No-op when it is running; an error when it is down.
func (p *Program) Continue() error {
	if err := p.Alive(); err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	p.state.Store(running)
	return nil
}

// flag reads a variable of the environment that is 1, 0 or not set.
func flag(name string) (bool, error) {
	v := os.Getenv(name)
	if v == "" {
		return false, nil
	}
	is, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%s: %q, must be 1, 0 or not set", name, v)
	}
	return is, nil
}

// Skip skips a test, and says so on standard error, if the variable env asks for that, or if lacks
// says that something is missing. With HOLDFAST_CI=1 what is missing fails the test.
func Skip(tb testing.TB, kit, server, env string, lacks func() error) {
	tb.Helper()
	skip, err1 := flag(env)
	ci, err2 := flag("HOLDFAST_CI")
	why := errors.New(env + " is set")
	if !skip {
		why = lacks()
	}
	if err := errors.Join(err1, err2); err != nil || ci && !skip && why != nil {
		tb.Fatal(fmt.Errorf("%s: %w", kit, errors.Join(err, why)))
	}
	if why != nil {
		said := fmt.Sprintf("%s: %s skipped (%v)", kit, server, why)
		fmt.Fprintf(os.Stderr, "%s: %s\n", said, tb.Name())
		tb.Skip(said)
	}
}

// Attend ends servers with their test, and shows the logs of one that failed. A program that ended
// by itself fails the test.
func Attend(tb testing.TB, end func() error, programs func() []*Program) {
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, p := range programs() {
				tb.Logf("%s: the last warnings of %s:\n%s", p.Kit, p.Name, p.LogEnd())
			}
		}
		if err := end(); err != nil {
			tb.Error(err)
		}
	})
}

// TempDir makes a directory in which a socket's path is short enough for every system: 104 bytes
// with its end. It is under /tmp if the usual place is too long, or not fit.
func TempDir(prefix string, fit func(base string) bool) (string, error) {
	const longest = 60
	base := os.TempDir()
	if len(base) > longest || !fit(base) {
		base = "/tmp"
	}
	return os.MkdirTemp(base, prefix)
}

// LockFile waits for the lock on a file. The system drops it with the process.
func LockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			err = Pause(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}

// Pause waits for the next look at a condition that can only be polled.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
