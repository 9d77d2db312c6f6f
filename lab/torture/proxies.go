//go:build linux

package torture

import (
	"github.com/holdfast-go/holdfast/test/cluster"
)

// proxies: nodes reach each other and the store over TCP proxies of this process. What is
// sent over a cut link waits, as on a network that comes back.
type proxies struct {
	*cluster.Links
	why  error            // there are no namespaces with a bridge; nil: nobody asked for them
	ways [][]*cluster.Way // of each node, to each server
}

func newProxies(servers []string, n int, seed uint64) (p *proxies, err error) {
	p = &proxies{ways: make([][]*cluster.Way, n)}
	if p.Links, err = cluster.NewLinks(n, seed); err != nil {
		return nil, err
	}
	for i := range n {
		for _, server := range servers {
			w, err := p.NewWay(i, server)
			if err != nil {
				p.Links.Close()
				return nil, err
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

func (p *proxies) place(i int) *cluster.Place { return p.Place(i) }

func (p *proxies) host(i int) (string, int) { return p.Host(i) }

func (p *proxies) dials(i int) map[string]string { return p.Dials(i) }

func (p *proxies) endpoints(i int) (all []string) {
	for _, w := range p.ways[i] {
		all = append(all, w.Address)
	}
	return all
}

func (p *proxies) link(i, j int, open bool) error {
	p.Link(i, j).Set(cluster.Shape{Stall: !open})
	return nil
}

func (p *proxies) shapes() bool { return true }

func (p *proxies) shape(i, j int, s cluster.Shape) error {
	p.Link(i, j).Set(s)
	return nil
}

func (p *proxies) store(i int, requests, replies bool) error {
	for _, w := range p.ways[i] {
		w.Requests.Set(cluster.Shape{Stall: !requests})
		w.Replies.Set(cluster.Shape{Stall: !replies})
	}
	return nil
}

func (p *proxies) shapeStore(i int, s cluster.Shape) error {
	for _, w := range p.ways[i] {
		w.Requests.Set(s)
		w.Replies.Set(s)
	}
	return nil
}

func (p *proxies) close() error {
	p.Links.Close()
	return nil
}
