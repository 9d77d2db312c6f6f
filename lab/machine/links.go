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
)

// Links are how n nodes reach each other: over TCP proxies of this process, one Link
// for each direction of each pair.
//
// Every node has a network namespace of its own, in which the addresses of the others
// are the proxies': so it does not matter how a node dials. Where namespaces are not
// permitted nodes listen on the loopback device, and must dial what Dials says.
type Links struct {
	why    error // there are no namespaces; nil: there are
	places []*Place
	ports  []int
	links  map[[2]int]*Link // from, to
	lines  map[[2]int]*net.TCPListener
	others []net.Listener // to what is not a node
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
}

const (
	linksSubnet = "10.78.0."
	linksPort   = 7000
)

// NewLinks makes the links between n nodes; seed decides their jitter.
func NewLinks(n int, seed uint64) (*Links, error) {
	if n < 1 || n > 100 {
		return nil, fmt.Errorf("%d nodes, must be 1 to 100", n)
	}
	l, err := newLinks(n, seed, true)
	if err == nil {
		return l, nil
	}
	plain, err2 := newLinks(n, seed, false)
	if err2 != nil {
		return nil, errors.Join(err, err2)
	}
	plain.why = err
	return plain, nil
}

func newLinks(n int, seed uint64, isolated bool) (l *Links, err error) {
	l = &Links{links: map[[2]int]*Link{}, lines: map[[2]int]*net.TCPListener{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	for range n {
		if err := l.addNode(n, isolated); err != nil {
			return l, err
		}
	}
	for i := range n {
		for j := range n {
			if i != j {
				l.links[[2]int{i, j}] = newLink(i, j, seed)
			}
		}
	}
	for key := range l.links {
		if err := l.listen(key[0], key[1], isolated); err != nil {
			return l, err
		}
	}
	return l, nil
}

func linksIP(i int) string { return fmt.Sprintf("%s%d", linksSubnet, 10+i) }

// addNode makes the next node's place, of n, and says where it listens.
func (l *Links) addNode(n int, isolated bool) error {
	p, err := NewPlace(isolated)
	if err != nil {
		return err
	}
	l.places = append(l.places, p)
	port := linksPort
	if isolated {
		// With segments as large as the device's own a receiver with a small buffer
		// offers no window for half of one, and gets one each 200 ms.
		commands := []string{"link set lo mtu 1500 up"}
		for i := range n {
			commands = append(commands, "addr add "+linksIP(i)+"/32 dev lo")
		}
		err = p.IP(commands...)
	} else {
		port, err = FreePort()
	}
	l.ports = append(l.ports, port)
	return err
}

// listen takes connections of i to j.
func (l *Links) listen(i, j int, isolated bool) error {
	address := "127.0.0.1:0"
	if isolated {
		address = l.address(j, true)
	}
	var ln net.Listener
	err := l.places[i].Do(func() (err error) {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			err2 := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, sockets) })
			return errors.Join(err, err2)
		}}
		ln, err = config.Listen(l.ctx, "tcp4", address)
		return err
	})
	if err != nil {
		return err
	}
	l.lines[[2]int{i, j}] = ln.(*net.TCPListener)
	l.all.Go(func() { l.accept(ln.(*net.TCPListener), i, j, l.address(j, isolated)) })
	return nil
}

func (l *Links) address(i int, isolated bool) string {
	host := "127.0.0.1"
	if isolated {
		host = linksIP(i)
	}
	return fmt.Sprintf("%s:%d", host, l.ports[i])
}

func (l *Links) accept(ln *net.TCPListener, i, j int, address string) {
	dial := func() (conn half, err error) {
		err = l.places[j].Do(func() error {
			d := net.Dialer{Timeout: 2 * time.Second}
			c, err := d.DialContext(l.ctx, "tcp4", address)
			if err == nil {
				conn = c.(*net.TCPConn)
			}
			return err
		})
		return conn, err
	}
	for {
		conn, err := ln.AcceptTCP()
		if err != nil {
			return // closed: nothing else ends a listener here
		}
		l.all.Go(func() { carry(l.ctx, conn, l.links[[2]int{i, j}], l.links[[2]int{j, i}], dial) })
	}
}

// String says what the links are made of.
func (l *Links) String() string {
	if l.why != nil {
		return fmt.Sprintf("TCP proxies, without network namespaces: %v", l.why)
	}
	return "TCP proxies between network namespaces"
}

// Place is where node i is to be started.
func (l *Links) Place(i int) *Place { return l.places[i] }

// Host is where node i is to listen.
func (l *Links) Host(i int) (host string, port int) {
	if l.why != nil {
		return "127.0.0.1", l.ports[i]
	}
	return linksIP(i), l.ports[i]
}

// Dials tells node i what to dial for the address of another; empty: the address
// itself.
func (l *Links) Dials(i int) map[string]string {
	if l.why == nil {
		return nil
	}
	to := map[string]string{}
	for j := range l.ports {
		if j != i {
			to[l.address(j, false)] = l.lines[[2]int{i, j}].Addr().String()
		}
	}
	return to
}

// Link is the direction from node i to node j.
func (l *Links) Link(i, j int) *Link { return l.links[[2]int{i, j}] }

// Each calls f with every link.
func (l *Links) Each(f func(*Link)) {
	for _, k := range l.links {
		f(k)
	}
}

// Shape gives every link the same shape.
func (l *Links) Shape(s Shape) { l.Each(func(k *Link) { k.Set(s) }) }

// Bytes is how many bytes have arrived over all links.
func (l *Links) Bytes() (n int64) {
	l.Each(func(k *Link) { n += k.Bytes() })
	return n
}

// Close ends all connections, and the places with what still runs there.
func (l *Links) Close() {
	l.cancel()
	for _, ln := range l.lines {
		ln.Close()
	}
	for _, ln := range l.others {
		ln.Close()
	}
	l.all.Wait()
	for _, p := range l.places {
		p.End()
	}
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
