package child

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// EndWithParent makes signal what a child gets on Linux when this process ends, in place of
// SIGKILL, if cmd starts it.
func EndWithParent(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
}

func diesWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil || cmd.SysProcAttr.Pdeathsig == 0 {
		EndWithParent(cmd, syscall.SIGKILL)
	}
}

// Halted reports whether every thread of the process is stopped: one by one they
// are, some time after the signal was sent.
func Halted(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return false, fmt.Errorf("process %d: no threads in /proc: %w", pid, os.ErrProcessDone)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			return false, nil // a thread that has just ended: look again
		}
		// pid (name) state …, where the name may hold anything.
		end := bytes.LastIndex(stat, []byte(") "))
		if end < 0 || end+2 == len(stat) {
			return false, fmt.Errorf("%s: not understood: %.60q", path, stat)
		}
		if stat[end+2] != 'T' {
			return false, nil
		}
	}
	return true, nil
}
