//go:build linux

package nodes

import (
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// proxies: nodes reach each other and the store over TCP proxies of this process. What is
// sent over a cut link waits, as on a network that comes back.
type proxies struct {
	*loopback
	*machine.Links
	why  error            // there are no namespaces with a bridge; nil: nobody asked for them
	ways [][]*machine.Way // of each node, to each server
}

func newProxies(servers []string, n int) *proxies {
	l := newLoopback(servers, n)
	p := &proxies{loopback: l, Links: scene.Must(machine.NewLinks(l.ports)), ways: make([][]*machine.Way, n)}
	for i := range n {
		for _, server := range servers {
			p.ways[i] = append(p.ways[i], scene.Must(p.NewWay(server)))
		}
	}
	return p
}

func (p *proxies) String() string {
	if p.why != nil {
		return "TCP proxies, as there is no bridge: " + p.why.Error()
	}
	return "TCP proxies"
}

func (p *proxies) dials(i int) map[string]string { return p.Dials(i) }

func (p *proxies) endpoints(i int) (all []string) {
	for _, w := range p.ways[i] {
		all = append(all, w.Address)
	}
	return all
}

func (p *proxies) link(i, j int, s machine.Shape) error {
	p.Link(i, j).Set(s)
	return nil
}

func (p *proxies) shapes() bool { return true }

func (p *proxies) store(i int, requests, replies machine.Shape) error {
	for _, w := range p.ways[i] {
		w.Requests.Set(requests)
		w.Replies.Set(replies)
	}
	return nil
}

func (p *proxies) close() { p.Links.Close() }

// loopback: nodes listen on the loopback device, and nothing is between them.
type loopback struct {
	network // that links can't be cut is the scenario's mistake
	ports   []int
	servers []string
}

func newLoopback(servers []string, n int) *loopback {
	l := &loopback{servers: servers}
	for range n {
		l.ports = append(l.ports, scene.Must(machine.FreePort()))
	}
	return l
}

func (*loopback) String() string                 { return "the loopback device" }
func (*loopback) place(int) *machine.Place       { return nil }
func (l *loopback) host(i int) (string, int)     { return "127.0.0.1", l.ports[i] }
func (*loopback) dials(int) map[string]string    { return nil }
func (l *loopback) endpoints(int) (all []string) { return l.servers }
func (*loopback) shapes() bool                   { return false }
func (*loopback) close()                         {}
