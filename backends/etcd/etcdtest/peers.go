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

// Peer is the link that connections made by one member to another take. Requests
// and replies both use it; a member sends some of what it has to say over
// connections that the other made, so a test that wants silence cuts both ways. It is
// errors.ErrUnsupported outside Linux.
func (c *Cluster) Peer(from, to *Member) (*Link, error) {
	if !canTellPeers {
		return nil, fmt.Errorf("etcdtest: links between members: %w", errors.ErrUnsupported)
	}
	l, ok := c.between[[2]*Member{from, to}]
	if !ok || from == to {
		return nil, fmt.Errorf("etcdtest: no link between these members")
	}
	return l, nil
}

// Isolate cuts the member off from all others, both ways; clients still reach it.
// A leader that is isolated steps down within an election timeout.
func (m *Member) Isolate() error { return m.eachPeer((*Link).Cut) }

// Rejoin heals every link between the member and the others.
func (m *Member) Rejoin() error { return m.eachPeer((*Link).Heal) }

func (m *Member) eachPeer(f func(*Link)) error {
	for _, other := range m.c.members {
		if other == m {
			continue
		}
		out, err := m.c.Peer(m, other)
		if err != nil {
			return err
		}
		in, err := m.c.Peer(other, m)
		if err != nil {
			return err
		}
		f(out)
		f(in)
	}
	return nil
}
