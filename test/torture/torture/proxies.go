//go:build linux

package torture

import (
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/test/cluster"
)

// proxies: nodes reach each other and etcd over TCP proxies of this process. What is
// sent over a cut link waits, as on a network that comes back.
type proxies struct {
	*cluster.Links
	why    error // there are no namespaces with a bridge; nil: nobody asked for them
	routes []*etcdtest.Route
}

func newProxies(c *etcdtest.Cluster, n int, seed uint64) (p *proxies, err error) {
	p = &proxies{}
	if p.Links, err = cluster.NewLinks(n, seed); err != nil {
		return nil, err
	}
	for i := range n {
		r, err := c.NewRoute()
		if err == nil {
			p.routes = append(p.routes, r)
			err = p.Reach(i, r.Endpoints()...)
		}
		if err != nil {
			p.Links.Close()
			return nil, err
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

func (p *proxies) endpoints(i int) []string { return p.routes[i].Endpoints() }

func (p *proxies) link(i, j int, open bool) error {
	p.Link(i, j).Set(cluster.Shape{Stall: !open})
	return nil
}

func (p *proxies) shapes() bool { return true }

func (p *proxies) shape(i, j int, s cluster.Shape) error {
	p.Link(i, j).Set(s)
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
	p.Links.Close()
	return nil
}
