//go:build unix

package etcdtest

import (
	"errors"
	"fmt"
	"net"

	"github.com/holdfast-go/holdfast/internal/faultlink"
)

// All that members say to each other goes through the peer proxy of the one that
// is called. Which member calls can't be told from its address, since all are on
// loopback, and not from what it says, since leases are renewed over other
// requests than raft's: it is found by the process that owns the connection.

// peerLink finds the link of a connection to one member.
func (c *Cluster) peerLink(to *Member) func(net.Conn) *Link {
	if !canTellPeers {
		link := faultlink.New()
		return func(net.Conn) *Link { return link }
	}
	return func(conn net.Conn) *Link {
		from := map[int]*Member{}
		var pids []int
		for _, m := range c.members {
			if pid := m.Pid(); pid != 0 {
				from[pid], pids = m, append(pids, pid)
			}
		}
		m, ok := from[originOf(conn, pids)]
		if !ok {
			return nil
		}
		return c.between[[2]*Member{m, to}]
	}
}

// Isolate cuts the member off from all others, both ways; clients still reach it.
// A leader that is isolated steps down within an election timeout.
func (m *Member) Isolate() error { return m.eachPeer((*Link).Cut) }

// Rejoin heals every link between the member and the others.
func (m *Member) Rejoin() error { return m.eachPeer((*Link).Heal) }

// eachPeer breaks or mends both links to each other member: a member sends some of what it
// has to say over connections that the other made.
func (m *Member) eachPeer(f func(*Link)) error {
	if !canTellPeers {
		return fmt.Errorf("etcdtest: links between members: %w", errors.ErrUnsupported)
	}
	for pair, link := range m.c.between {
		if (pair[0] == m) != (pair[1] == m) {
			f(link)
		}
	}
	return nil
}
