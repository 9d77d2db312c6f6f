//go:build linux

package nodes

import (
	"errors"

	"github.com/holdfast-go/holdfast/lab/machine"
)

// proxies: nodes reach each other and the store over TCP proxies of this process. What is
// sent over a cut link waits, as on a network that comes back.
type proxies struct {
	*loopback
	*machine.Links
	why  error            // there are no namespaces with a bridge; nil: nobody asked for them
	ways [][]*machine.Way // of each node, to each server
}

func newProxies(servers []string, n int) (p *proxies, err error) {
	p = &proxies{ways: make([][]*machine.Way, n)}
	if p.loopback, err = newLoopback(servers, n); err != nil {
		return nil, err
	}
	if p.Links, err = machine.NewLinks(p.ports); err != nil {
		return nil, errors.Join(err, p.loopback.close())
	}
	for i := range n {
		for _, server := range servers {
			w, err := p.NewWay(server)
			if err != nil {
				return nil, errors.Join(err, p.close())
			}
			p.ways[i] = append(p.ways[i], w)
		}
	}
	return p, nil
}

func (p *proxies) String() string {
	if p.why != nil {
		return p.Links.String() + ", as there is no bridge: " + p.why.Error()
	}
	return p.Links.String()
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

func (p *proxies) close() error {
	p.Links.Close()
	return p.loopback.close()
}

// loopback: nodes listen on the loopback device, and nothing is between them.
type loopback struct {
	network // that links can't be cut is the scenario's mistake
	ports   []int
	servers []string
}

func newLoopback(servers []string, n int) (*loopback, error) {
	l := &loopback{servers: servers}
	for range n {
		port, err := machine.FreePort()
		if err != nil {
			return nil, err
		}
		l.ports = append(l.ports, port)
	}
	return l, nil
}

func (*loopback) String() string                 { return "the loopback device" }
func (*loopback) place(int) *machine.Place       { return nil }
func (l *loopback) host(i int) (string, int)     { return "127.0.0.1", l.ports[i] }
func (*loopback) dials(int) map[string]string    { return nil }
func (l *loopback) endpoints(int) (all []string) { return l.servers }
func (*loopback) shapes() bool                   { return false }
func (*loopback) close() error                   { return nil }
