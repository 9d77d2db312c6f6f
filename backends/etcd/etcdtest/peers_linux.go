package etcdtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// canTellPeers: originOf works here.
const canTellPeers = true

// originOf returns which of the processes is at the other end of a loopback TCP
// connection that was accepted here, or 0.
func originOf(conn net.Conn, pids []int) int {
	remote, ok1 := conn.RemoteAddr().(*net.TCPAddr)
	local, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return 0
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0
	}
	inode := ""
	for line := range strings.Lines(string(table)) {
		// sl local remote state queues timer retransmits uid timeout inode …
		f := strings.Fields(line)
		if len(f) >= 10 && portOf(f[1]) == remote.Port && portOf(f[2]) == local.Port {
			inode = f[9]
			break
		}
	}
	if inode == "" || inode == "0" {
		return 0
	}
	want := "socket:[" + inode + "]"
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == want {
				return pid
			}
		}
	}
	return 0
}

// portOf reads the port of an address like 0100007F:1F90.
func portOf(addr string) int {
	_, hex, _ := strings.Cut(addr, ":")
	port, err := strconv.ParseUint(hex, 16, 16)
	if err != nil {
		return -1
	}
	return int(port)
}
