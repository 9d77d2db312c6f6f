//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// patience is how long a node may take for what should take no time.
const patience = 30 * time.Second

// cluster is nodes in processes of their own, on one etcd.
type cluster struct {
	*bed
	place    *lab.Place
	dir      string
	settings settings // of each, but for what differs
	room     int      // entries in a journal
	nodes    []*process
	journals [][]*journal // of each node, one for each process it had
}

// newCluster starts n nodes.
func newCluster(ctx context.Context, b *bed, n, room int, s settings) (c *cluster, err error) {
	c = &cluster{bed: b, settings: s, room: room, nodes: make([]*process, n), journals: make([][]*journal, n)}
	c.settings.Endpoint = b.member().Direct()
	if c.place, err = lab.NewPlace(false); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "holdfast-soak-"); err != nil {
		c.place.End()
		return nil, err
	}
	for i := range c.nodes {
		if err := c.start(ctx, i); err != nil {
			return nil, errors.Join(err, c.end())
		}
	}
	return c, nil
}

// start starts node i, at the address that it had if it had one, and returns
// when it is up.
func (c *cluster) start(ctx context.Context, i int) error {
	s := c.settings
	s.Index = i
	s.Journal = filepath.Join(c.dir, fmt.Sprintf("%d-%d", i, len(c.journals[i])))
	if p := c.nodes[i]; p != nil {
		_, port, err := net.SplitHostPort(p.up.Owner.Address)
		if err == nil {
			s.Port, err = strconv.Atoi(port)
		}
		if err != nil {
			return err
		}
	}
	j, err := lab.MakeJournal[entry](s.Journal, c.room)
	if err != nil {
		return err
	}
	c.journals[i] = append(c.journals[i], j)
	p, err := startProcess(c.place, s)
	if err != nil {
		return err
	}
	c.nodes[i] = p
	p.up, err = p.await(ctx, 0, patience, "up", func(r said) bool { return r.What == isUp })
	return err
}

// tell gives all nodes an order, one right after the other.
func (c *cluster) tell(o order) error {
	for _, p := range c.nodes {
		if err := p.tell(o); err != nil {
			return err
		}
	}
	return nil
}

// each waits until every node has said what since then, and returns that.
func (c *cluster) each(ctx context.Context, since time.Duration, what string) ([]said, error) {
	got := make([]said, len(c.nodes))
	for i, p := range c.nodes {
		var err error
		if got[i], err = p.await(ctx, since, patience, what, func(r said) bool { return r.What == what }); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// all gives all nodes an order and waits until each has said what.
func (c *cluster) all(ctx context.Context, o order, what string) ([]said, error) {
	began := lab.Now()
	if err := c.tell(o); err != nil {
		return nil, err
	}
	return c.each(ctx, began, what)
}

// lead makes node i the leader for all, those too that are started later, and waits
// until it hosts.
func (c *cluster) lead(ctx context.Context, i int) error {
	at := lab.Now()
	c.settings.Leader = c.nodes[i].up.Owner
	if err := c.tell(order{Do: doLead, Leader: c.settings.Leader}); err != nil {
		return err
	}
	_, err := c.nodes[i].await(ctx, at, changeWithin, "hosts", func(r said) bool { return r.What == hosts })
	return err
}

// evidence is what the nodes noted, dead ones too.
func (c *cluster) evidence() (es []seen, err error) {
	for i, js := range c.journals {
		for _, j := range js {
			entries, err := j.Read()
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				es = append(es, seen{e, i})
			}
		}
	}
	return es, nil
}

// noted is how many entries there are.
func (c *cluster) noted() (n int) {
	for _, js := range c.journals {
		for _, j := range js {
			n += j.Len()
		}
	}
	return n
}

// end kills what still runs.
func (c *cluster) end() error {
	var errs []error
	for _, p := range c.nodes {
		if p != nil {
			errs = append(errs, p.kill())
		}
	}
	for _, js := range c.journals {
		for _, j := range js {
			errs = append(errs, j.Close())
		}
	}
	c.place.End()
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// process is one node's.
type process struct {
	*lab.Process[said]
	id string
	up said
}

func startProcess(at *lab.Place, s settings) (*process, error) {
	p, err := lab.Start[said](at, s.id(), clusterEnv, s)
	return &process{Process: p, id: s.id()}, err
}

func (p *process) tell(o order) error { return p.Tell(o) }

// errNever: a node did not say something in time.
var errNever = lab.ErrNever

// find returns the first report since then that fits.
func (p *process) find(since time.Duration, fits func(said) bool) (said, bool) {
	return p.Find(func(r said) bool { return r.At >= since && fits(r) })
}

// await is find, but waits for it. errNever says that it took too long.
func (p *process) await(ctx context.Context, since, within time.Duration, what string, fits func(said) bool) (said, error) {
	return p.Await(ctx, within, what, func(r said) bool { return r.At >= since && fits(r) })
}

func (p *process) kill() error { return p.Kill() }
