//go:build unix && !linux

package etcdtest

import "net"

// canTellPeers: this system does not tell whose a connection is, so links
// between members can't be cut one by one.
const canTellPeers = false

func originOf(net.Conn, []int) int { return 0 }
