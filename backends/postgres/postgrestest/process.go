//go:build unix

package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/child"
)

// Kill ends all processes of the server with SIGKILL, as the kernel does when it runs out of
// memory, and returns once they are gone. The data stay, for Restart. No-op when it is down.
func (s *Server) Kill() error { return s.ending("kill", s.kill) }

// KillPostmaster ends the first process with SIGKILL: the others find out by themselves, and finish
// what they do. It returns once all are gone. No-op when the server is down.
func (s *Server) KillPostmaster() error {
	return s.ending("kill the postmaster of", func() error {
		if err := s.resume(); err != nil { // a stopped one would find out nothing
			return err
		}
		backends, err := childrenOf(s.proc.Pid())
		if err != nil {
			return err
		}
		if err := s.proc.Kill(); err != nil {
			return err
		}
		return gone(backends)
	})
}

// StopImmediate is pg_ctl stop -m immediate: no checkpoint, so that the next start recovers from
// the log. It returns once the server is gone. No-op when it is down.
func (s *Server) StopImmediate() error {
	return s.ending("stop", func() error { return s.shutDown(syscall.SIGQUIT) })
}

// Stop is pg_ctl stop -m fast: sessions are ended and a checkpoint is written. It returns once the
// server is gone. No-op when it is down.
func (s *Server) Stop() error {
	return s.ending("stop", func() error { return s.shutDown(syscall.SIGINT) })
}

// ending is an operation after which the server is down.
func (s *Server) ending(what string, end func() error) error {
	return s.proc.Do(what, func() error {
		if s.proc.Down() {
			return nil
		}
		err := s.proc.Alive()
		if err == nil {
			err = end()
		}
		if err == nil {
			s.proc.Gone()
		}
		return err
	})
}

// killTimeout is how long processes may take to be gone.
const killTimeout = 20 * time.Second

func (s *Server) shutDown(signal syscall.Signal) error {
	if err := s.resume(); err != nil {
		return err
	}
	backends, err := childrenOf(s.proc.Pid())
	if err != nil {
		return err
	}
	if err := s.proc.Signal(signal); err != nil {
		return err
	}
	t := time.NewTimer(killTimeout)
	defer t.Stop()
	select {
	case <-s.proc.Done():
		return gone(backends)
	case <-t.C:
		return errors.Join(fmt.Errorf("still there %v after %v", killTimeout, signal), s.kill())
	}
}

// kill stops the postmaster first, so that it begins no process that is not seen.
func (s *Server) kill() error {
	defer s.guardNot()
	if s.proc.Exited() {
		return nil
	}
	if err := s.halt(); err != nil {
		return err
	}
	backends, err := childrenOf(s.proc.Pid())
	if err != nil {
		return err
	}
	signalAll(backends, syscall.SIGKILL)
	if err := s.proc.Kill(); err != nil {
		return err
	}
	return gone(backends)
}

// gone is kill, unless the server is down.
func (s *Server) gone() error {
	if s.proc.Down() {
		return nil
	}
	if err := s.kill(); err != nil {
		return err
	}
	s.proc.Gone()
	return nil
}

// end is kill for good: it removes what is not in the server's directory.
func (s *Server) end() error {
	var errs []error
	if !s.proc.Down() {
		if s.proc.Exited() {
			errs = append(errs, s.proc.ExitError())
		} else {
			errs = append(errs, s.shutDown(syscall.SIGQUIT))
		}
		s.proc.Gone()
	}
	s.guardNot()
	removeSharedMemory(s.data)
	if s.disk != "" {
		errs = append(errs, s.unmountDisk())
	}
	return errors.Join(errs...)
}

// halt halts the postmaster.
func (s *Server) halt() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return s.proc.Halt(ctx)
}

// Pause halts every process of the server with SIGSTOP and returns once none runs. Connections
// stay. No-op when it is paused; an error when it is down.
func (s *Server) Pause() error { return s.proc.Do("pause", s.pause) }

func (s *Server) pause() error {
	if s.proc.Halted() {
		return nil
	}
	if err := s.halt(); err != nil {
		return err
	}
	backends, err := childrenOf(s.proc.Pid()) // all there will be
	if err != nil {
		return err
	}
	if s.watchdog, err = guardPids(append([]int{s.proc.Pid()}, backends...)); err != nil {
		return err
	}
	signalAll(backends, syscall.SIGSTOP)
	for _, pid := range backends {
		if err := awaitHalt(pid); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return nil
}

// Resume lets a paused server go on. No-op when it is running; an error when it is down.
func (s *Server) Resume() error {
	return s.proc.Do("resume", func() error {
		if err := s.proc.Alive(); err != nil {
			return err
		}
		return s.resume()
	})
}

func (s *Server) resume() error {
	if !s.proc.Halted() {
		return nil
	}
	backends, err := childrenOf(s.proc.Pid())
	if err != nil {
		return err
	}
	signalAll(backends, syscall.SIGCONT)
	if err := s.proc.Continue(); err != nil {
		return err
	}
	s.guardNot()
	return nil
}

// Restart kills the server if it runs and starts it again with the data and the address it had. It
// returns once the server answers; what it lost track of it has recovered from its log by then.
func (s *Server) Restart(ctx context.Context) error {
	return s.proc.Do("restart", func() error {
		ctx, cancel := s.g.Bounded(ctx)
		defer cancel()
		if s.g.Err() != nil {
			return errClosed
		}
		if err := s.gone(); err != nil {
			return err
		}
		return s.start(ctx)
	})
}

// watchdog lets stopped processes go on when this process dies: they end then, by the signal that
// waits for the first of them. Stopped ones would stay for good.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

func guardPids(pids []int) (*watchdog, error) {
	args := []string{"-c", `trap "" INT TERM HUP; read -r _; kill -CONT "$@" 2>/dev/null`, "sh"}
	for _, pid := range pids {
		args = append(args, strconv.Itoa(pid))
	}
	cmd := exec.Command("/bin/sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal for this process's group is not for it
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return &watchdog{cmd, pipe}, nil
}

// guardNot ends the watchdog, if there is one.
func (s *Server) guardNot() {
	if s.watchdog == nil {
		return
	}
	_ = s.watchdog.cmd.Process.Kill() // else it says CONT to processes that may be others by now
	s.watchdog.pipe.Close()
	_ = s.watchdog.cmd.Wait() // killed
	s.watchdog = nil
}

// signalAll tells every process that is still there.
func signalAll(pids []int, signal syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, signal) // gone: nothing to tell
	}
}

// awaitHalt waits until every thread of a process that was told to stop has. It is
// os.ErrProcessDone of one that has ended, which stays a zombie while its parent is stopped.
func awaitHalt(pid int) error {
	deadline := time.Now().Add(killTimeout)
	for {
		if !present(pid) {
			return fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
		}
		done, err := child.Halted(pid)
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d still runs %v after SIGSTOP", pid, killTimeout)
		}
		time.Sleep(time.Millisecond)
	}
}

// gone waits until no process of these is left.
func gone(pids []int) error {
	deadline := time.Now().Add(killTimeout)
	for len(pids) > 0 {
		pids = slices.DeleteFunc(pids, func(pid int) bool { return !present(pid) })
		if len(pids) > 0 && time.Now().After(deadline) {
			return fmt.Errorf("processes %v still there after %v", pids, killTimeout)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// childrenOf are the processes that a process has begun, zombies among them.
func childrenOf(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return childrenByPS(pid)
	}
	var found []int
	for _, path := range stats {
		if parent, _, ok := statOf(path); ok && parent == pid {
			of, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil {
				found = append(found, of)
			}
		}
	}
	return found, nil
}

// statOf reads parent and state of a process.
func statOf(path string) (parent int, state byte, ok bool) {
	stat, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	// pid (name) state parent …, where the name may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, fields[0][0], err == nil
}

// present reports whether a process is there, and no zombie.
func present(pid int) bool {
	if _, state, ok := statOf(fmt.Sprintf("/proc/%d/stat", pid)); ok {
		return state != 'Z' && state != 'X'
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

func childrenByPS(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var found []int
	for line := range bytes.Lines(out) {
		var of, parent int
		if _, err := fmt.Sscan(string(line), &of, &parent); err == nil && parent == pid {
			found = append(found, of)
		}
	}
	return found, nil
}
