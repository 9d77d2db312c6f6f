//go:build linux

package machine

import (
	"net"
	"strings"
	"time"
)

// Way is how a node reaches a server that is no node: over a proxy of this process, with a Link for
// what it sends and one for what comes back.
type Way struct {
	Address           string // where the node dials
	Requests, Replies *Link
}

// Network splits an address as net.Dial wants it: of "unix:///path" the socket, else of TCP.
func Network(address string) (network, to string) {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		return "unix", path
	}
	return "tcp", address
}

// NewWay makes a way from node i to a server, "unix:///path" or "host:port". It ends with Close.
func (l *Links) NewWay(i int, server string) (*Way, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.others = append(l.others, ln)
	w := &Way{Address: ln.Addr().String(), Requests: newLink(i, -1, 0), Replies: newLink(-1, i, 0)}
	l.all.Go(func() {
		l.accept(ln, w.Requests, w.Replies, func() (half, error) {
			network, to := Network(server)
			d := net.Dialer{Timeout: 2 * time.Second}
			c, err := d.DialContext(l.ctx, network, to)
			if err != nil {
				return nil, err
			}
			return c.(half), nil
		})
	})
	return w, nil
}

// half is one of the two connections that a proxy joins: TCP, or a socket of the file system.
type half interface {
	net.Conn
	CloseWrite() error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

var _, _ half = (*net.TCPConn)(nil), (*net.UnixConn)(nil)

// reset closes a connection at once; what was not sent is lost.
func reset(conn half) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // it may be closed already
	}
	conn.Close()
}
