//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
)

// proxies: nodes reach each other and etcd over TCP proxies of this process, one
// for each pair and direction of dialling. What is sent over a cut link waits, as
// on a network that comes back.
type proxies struct {
	why    error // there are no namespaces
	places []*place
	ports  []int
	lines  map[[2]int]net.Listener // from, to
	routes []*etcdtest.Route
	end    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	cut     map[[2]int]bool
	changed chan struct{}
}

func newProxies(c *etcdtest.Cluster, n int) (p *proxies, err error) {
	p = &proxies{lines: map[[2]int]net.Listener{}, cut: map[[2]int]bool{}, changed: make(chan struct{})}
	p.end, p.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = p.close() // the error tells why
		}
	}()
	for range n {
		pl, err := newPlace(false)
		if err != nil {
			return p, err
		}
		p.places = append(p.places, pl)
		r, err := c.NewRoute()
		if err != nil {
			return p, err
		}
		p.routes = append(p.routes, r)
		port, err := freePort()
		if err != nil {
			return p, err
		}
		p.ports = append(p.ports, port)
	}
	for i := range n {
		for j := range n {
			if i == j {
				continue
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return p, err
			}
			p.lines[[2]int{i, j}] = ln
			p.all.Go(func() { p.accept(ln, i, j) })
		}
	}
	return p, nil
}

// freePort finds a port that nobody listens on, below those that the system gives to
// who connects.
func freePort() (int, error) {
	for port := 20000; port < 30000; port++ {
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
	return 0, fmt.Errorf("no free port from 20000 on")
}

var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

func (p *proxies) String() string {
	if p.why != nil {
		return fmt.Sprintf("TCP proxies, as there are no network namespaces: %v", p.why)
	}
	return "TCP proxies"
}

func (p *proxies) place(i int) *place { return p.places[i] }

func (p *proxies) host(i int) (string, int) { return "127.0.0.1", p.ports[i] }

func (p *proxies) dials(i int) map[string]string {
	to := map[string]string{}
	for j, port := range p.ports {
		if j != i {
			to[fmt.Sprintf("127.0.0.1:%d", port)] = p.lines[[2]int{i, j}].Addr().String()
		}
	}
	return to
}

func (p *proxies) endpoints(i int) []string { return p.routes[i].Endpoints() }

func (p *proxies) link(i, j int, open bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut[[2]int{i, j}] = !open
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// store cuts both ways, or the replies alone: a proxy can't take requests off a
// connection and let replies through.
func (p *proxies) store(i int, requests, replies bool) error {
	r := p.routes[i]
	r.Heal()
	switch {
	case !requests:
		r.Cut()
	case !replies:
		r.CutReplies()
	}
	return nil
}

func (p *proxies) close() error {
	p.cancel()
	for _, ln := range p.lines {
		ln.Close()
	}
	p.all.Wait()
	for _, pl := range p.places {
		pl.end()
	}
	return nil
}

func (p *proxies) accept(ln net.Listener, i, j int) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.carry(conn, i, j) })
	}
}

// carry is a connection that i made to j.
func (p *proxies) carry(from net.Conn, i, j int) {
	ctx, cancel := context.WithCancel(p.end)
	defer cancel()
	defer context.AfterFunc(ctx, func() { from.Close() })()
	defer from.Close()
	if !p.pass(ctx, i, j) || !p.pass(ctx, j, i) {
		return
	}
	to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.ports[j]))
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { to.Close() })()
	defer to.Close()
	var both sync.WaitGroup
	pump := func(dst, src net.Conn, i, j int) {
		defer cancel() // one side's end is the other's
		buf := make([]byte, 16<<10)
		for {
			n, err := src.Read(buf)
			if !p.pass(ctx, i, j) {
				return
			}
			if n > 0 {
				if _, err := dst.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	both.Go(func() { pump(to, from, i, j) })
	both.Go(func() { pump(from, to, j, i) })
	both.Wait()
}

// pass waits until i may send to j.
func (p *proxies) pass(ctx context.Context, i, j int) bool {
	for {
		p.mu.Lock()
		cut, changed := p.cut[[2]int{i, j}], p.changed
		p.mu.Unlock()
		if !cut {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
