//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Links are how nodes that listen on ports of the loopback device reach each other: over TCP proxies
// of this process, one Link for each direction of each pair. A node must dial what Dials says.
type Links struct {
	ports  []int
	links  map[[2]int]*Link // from, to
	lines  map[[2]int]net.Listener
	others []net.Listener // to what is not a node
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// NewLinks makes the links between nodes by their ports; seed decides their jitter.
func NewLinks(ports []int, seed uint64) (*Links, error) {
	l := &Links{ports: ports, links: map[[2]int]*Link{}, lines: map[[2]int]net.Listener{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for i := range ports {
		for j := range ports {
			if i != j {
				l.links[[2]int{i, j}] = newLink(i, j, seed)
			}
		}
	}
	for key := range l.links {
		if err := l.listen(key[0], key[1]); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// segment is how much a packet carries on these links, as on a network. With segments as large as the
// loopback device's a receiver with a small buffer offers no window for half of one, and gets one each
// 200 ms.
const segment = 1400

// narrow is set on sockets before they connect or listen.
func narrow(_, _ string, c syscall.RawConn) (err error) {
	err2 := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, sockets),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, segment))
	})
	return errors.Join(err, err2)
}

// listen takes connections of i to j.
func (l *Links) listen(i, j int) error {
	config := net.ListenConfig{Control: narrow}
	ln, err := config.Listen(l.ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.lines[[2]int{i, j}] = ln
	dial := func() (half, error) {
		d := net.Dialer{Timeout: 2 * time.Second, Control: narrow}
		c, err := d.DialContext(l.ctx, "tcp4", l.address(j))
		if err != nil {
			return nil, err
		}
		return c.(half), nil
	}
	l.all.Go(func() { l.accept(ln, l.links[[2]int{i, j}], l.links[[2]int{j, i}], dial) })
	return nil
}

func (l *Links) address(i int) string { return fmt.Sprintf("127.0.0.1:%d", l.ports[i]) }

// accept takes connections until the listener is closed: nothing else ends one here.
func (l *Links) accept(ln net.Listener, there, back *Link, dial func() (half, error)) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		l.all.Go(func() { carry(l.ctx, conn.(half), there, back, dial) })
	}
}

// String says what the links are made of.
func (l *Links) String() string { return "TCP proxies" }

// Dials tells node i what to dial for the address of another.
func (l *Links) Dials(i int) map[string]string {
	to := map[string]string{}
	for j := range l.ports {
		if j != i {
			to[l.address(j)] = l.lines[[2]int{i, j}].Addr().String()
		}
	}
	return to
}

// Link is the direction from node i to node j.
func (l *Links) Link(i, j int) *Link { return l.links[[2]int{i, j}] }

// Shape gives every link the same shape.
func (l *Links) Shape(s Shape) {
	for _, k := range l.links {
		k.Set(s)
	}
}

// Bytes is how many bytes have arrived over all links.
func (l *Links) Bytes() (n int64) {
	for _, k := range l.links {
		n += k.Bytes()
	}
	return n
}

// Close ends all connections.
func (l *Links) Close() {
	l.cancel()
	for _, ln := range l.lines {
		ln.Close()
	}
	for _, ln := range l.others {
		ln.Close()
	}
	l.all.Wait()
}

// FreePort finds a port of the loopback device that is free, below those that the
// system gives to who connects; never the same one twice, and, so that two processes
// that look at the same moment do not find the same, from a place of its process on.
func FreePort() (int, error) {
	for i := range 10000 {
		port := 20000 + (os.Getpid()*97+i)%10000
		taken.Lock()
		was := taken.ports[port]
		taken.ports[port] = true
		taken.Unlock()
		if was {
			continue
		}
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, ln.Close()
		}
	}
	return 0, errors.New("no free port from 20000 to 29999")
}

var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}
