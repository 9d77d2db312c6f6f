//go:build unix && !linux

package etcdtest

import (
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// diesWithParent: this system has no way to tell a child of its parent's death.
func diesWithParent(*exec.Cmd) {}

// halted reports whether the process is stopped.
func halted(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("ps: process %d: %w", pid, err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), nil
}

// canTellPeers: this system does not tell whose a connection is, so links
// between members can't be cut one by one.
const canTellPeers = false

func originOf(net.Conn, []int) int { return 0 }
