//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Bounds of memory: the first is judged, at the second a run is broken off, as the
// machine is others' as well.
const (
	mailHeapMost = 300 * mebibyte
	mailRSSEnd   = 4 << 30
)

// mailProcess is one node's.
type mailProcess struct {
	*lab.Process[mailSaid]
	up      mailSaid
	journal *journal
}

// mailCluster is the nodes of a check of mail, in processes of their own, with links
// between them.
type mailCluster struct {
	*bed
	ctx    context.Context
	cancel context.CancelCauseFunc
	links  *lab.Links
	dir    string
	set    mailSettings
	nodes  []*mailProcess
	rss    lab.Peaks
}

// newMailCluster starts set.Nodes nodes, whose journals have room for so many entries
// each, and has them take part.
func newMailCluster(ctx context.Context, b *bed, room int, seed uint64, set mailSettings) (c *mailCluster, err error) {
	c = &mailCluster{bed: b, set: set}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.set.Endpoint = b.member().Direct()
	if c.set.TTL == 0 {
		c.set.TTL = 10 * time.Second
	}
	if c.links, err = lab.NewLinks(set.Nodes, seed); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.end())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "holdfast-soak-"); err != nil {
		return c, err
	}
	for i := range set.Nodes {
		if err := c.start(i, room); err != nil {
			return c, err
		}
	}
	for i := range c.nodes { // the first comes first
		if _, err = c.order(i, mailOrder{Do: mailHost, Leader: c.nodes[0].up.Owner}, patience); err != nil {
			return c, err
		}
		if i > 0 || !set.Singleton {
			continue
		}
		if _, err = c.nodes[0].Await(c.ctx, patience, mailHosted, func(r mailSaid) bool { return r.What == mailHosted }); err != nil {
			return c, err
		}
	}
	_, err = c.all(mailOrder{Do: mailSweep}, 2*patience)
	return c, err
}

func (c *mailCluster) start(i, room int) error {
	s := c.set
	s.Index = i
	s.Host, s.Port = c.links.Host(i)
	s.Dials = c.links.Dials(i)
	s.Journal = filepath.Join(c.dir, s.id())
	j, err := lab.MakeJournal[entry](s.Journal, room)
	if err != nil {
		return err
	}
	p, err := lab.Start[mailSaid](c.links.Place(i), s.id(), mailEnv, s)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	m := &mailProcess{Process: p, journal: j}
	c.nodes = append(c.nodes, m)
	go c.watch(p)
	m.up, err = p.Await(c.ctx, patience, mailUp, func(r mailSaid) bool { return r.What == mailUp })
	return err
}

// watch breaks the run off if a process needs too much memory.
func (c *mailCluster) watch(p *lab.Process[mailSaid]) {
	for c.ctx.Err() == nil {
		rss := p.RSS()
		c.rss.Note(p.ID, rss)
		if rss > mailRSSEnd {
			c.cancel(fmt.Errorf("%s needs %d MiB: broken off", p.ID, rss>>20))
			return
		}
		if lab.Pause(c.ctx, heapEvery) != nil {
			return
		}
	}
}

// order gives node i an order and waits until it says that it is done.
func (c *mailCluster) order(i int, o mailOrder, within time.Duration) (mailSaid, error) {
	at := lab.Now()
	if err := c.nodes[i].Tell(o); err != nil {
		return mailSaid{}, err
	}
	return c.nodes[i].Await(c.ctx, within, o.Do, func(r mailSaid) bool { return r.What == o.Do && r.At >= at })
}

// all gives all nodes an order, and waits until all are done.
func (c *mailCluster) all(o mailOrder, within time.Duration) (got []mailSaid, err error) {
	at := lab.Now()
	for _, p := range c.nodes {
		if err := p.Tell(o); err != nil {
			return nil, err
		}
	}
	for _, p := range c.nodes {
		r, err := p.Await(c.ctx, within, o.Do, func(r mailSaid) bool { return r.What == o.Do && r.At >= at })
		if err != nil {
			return nil, err
		}
		got = append(got, r)
	}
	return got, nil
}

func (c *mailCluster) pause(d time.Duration) error { return lab.Pause(c.ctx, d) }

// settle waits until nothing has been noted for some time, or for too long.
func (c *mailCluster) settle(calm, within time.Duration) error {
	end := lab.Now() + within
	for was, since := -1, lab.Now(); lab.Now() < end && lab.Now()-since < calm; {
		n := 0
		for _, p := range c.nodes {
			n += p.journal.Len()
		}
		if n != was {
			was, since = n, lab.Now()
		}
		if err := c.pause(50 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// quiet ends the load of all nodes, waits for what is on its way, and returns what was
// sent.
func (c *mailCluster) quiet(calm, within time.Duration) (map[uint32]uint64, error) {
	got, err := c.all(mailOrder{Do: mailQuiet}, patience)
	if err != nil {
		return nil, err
	}
	sent := map[uint32]uint64{}
	for _, r := range got {
		maps.Copy(sent, r.Sent)
	}
	return sent, c.settle(calm, within)
}

// entries is what all nodes noted.
func (c *mailCluster) entries() (all []entry, err error) {
	for _, p := range c.nodes {
		es, err := p.journal.Read()
		if err != nil {
			return nil, err
		}
		all = append(all, es...)
	}
	return all, nil
}

// counted is what all nodes counted, in sum.
func (c *mailCluster) counted() (map[string]int64, error) {
	got, err := c.all(mailOrder{Do: mailCount}, patience)
	sum := map[string]int64{}
	for _, r := range got {
		add(sum, r.Counted)
	}
	return sum, err
}

// givenUp is how many messages the product says that it gave up. What remoting counts
// besides is printed only: it may be the same ones.
func givenUp(counted map[string]int64) (n int64) {
	for k, v := range counted {
		if givesUp.MatchString(k) && !strings.Contains(k, ".") {
			n += v
		}
	}
	return n
}

// countedText lists what was counted and is not 0.
func countedText(counted map[string]int64) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(counted)) {
		if counted[k] != 0 {
			all = append(all, fmt.Sprintf("%s %d", k, counted[k]))
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// heaps are the highest of each process since then.
func (c *mailCluster) heaps(since time.Duration) *lab.Peaks {
	var p lab.Peaks
	for _, n := range c.nodes {
		for _, r := range n.Said() {
			if r.What == mailHeap && r.At >= since {
				p.Note(n.ID, r.Heap)
			}
		}
	}
	return &p
}

// judgeMemory prints and judges what the processes needed.
func (c *mailCluster) judgeMemory(r *report, what string) {
	_, rss := c.rss.Highest()
	id, heap := c.heaps(0).Highest()
	r.printf("       resident memory of a process, at most %.0f MiB", float64(rss)/mebibyte)
	r.atMost(fmt.Sprintf("%sheap of a process at any time (%s)", what, id), float64(heap)/mebibyte, mailHeapMost/mebibyte, " MiB")
}

// judgeMail prints and judges what became of the mail.
func (c *mailCluster) judgeMail(r *report, what string, sent map[uint32]uint64, es []entry) (m lab.Mail, err error) {
	m = lab.JudgeMail(sent, handlings(es))
	counted, err := c.counted()
	if err != nil {
		return m, err
	}
	r.printf("       %s%d sent, %d handled, %d not handled, %d doubled (one came %d times), %d out of order", what, m.Sent, m.Handled, m.Lost, m.Doubled,
		m.Most, m.Reordered)
	r.printf("       counted by the product: %s", countedText(counted))
	r.atMost(what+"messages handled twice", float64(m.Doubled), 0, "")
	r.atMost(what+"messages lost and not counted", float64(int64(m.Lost)-givenUp(counted)), 0, "")
	r.atMost(what+"messages handled that nobody sent", float64(m.Unknown), 0, "")
	return m, nil
}

func handlings(es []entry) (hs []lab.Handling) {
	for _, e := range es {
		if e.kind == handled {
			hs = append(hs, lab.Handling{Sender: e.sender, Seq: e.seq, Token: e.token, Sent: e.sent, At: e.at})
		}
	}
	return hs
}

// end kills what still runs.
func (c *mailCluster) end() error {
	c.cancel(nil)
	var errs []error
	for _, p := range c.nodes {
		errs = append(errs, p.Kill(), p.journal.Close())
	}
	c.links.Close()
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
