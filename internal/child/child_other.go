//go:build unix && !linux

package child

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// EndWithParent makes signal what a child gets on Linux when this process ends; here it does
// nothing.
func EndWithParent(*exec.Cmd, syscall.Signal) {}

// diesWithParent: this system has no way to tell a child of its parent's death.
func diesWithParent(*exec.Cmd) {}

// Halted reports whether the process is stopped.
func Halted(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("ps: process %d: %w", pid, err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), nil
}
