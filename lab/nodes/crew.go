//go:build linux

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// roomForLife is how many entries a process may note, if nothing else is said; the file is sparse.
const roomForLife = 1 << 20

// slot is one node of the cluster: the process that it has now, and the evidence of
// those it had.
type slot struct {
	index int

	op sync.Mutex // one fault at a time

	mu     sync.Mutex
	life   int
	proc   *process // nil: none
	book   *journal // of proc
	past   []seen   // of those that are gone
	viewed int      // entries of the book that the view has
}

// seen is an entry, and who noted it.
type seen struct {
	entry
	node, life int
}

func (e seen) String() string {
	return fmt.Sprintf("%.6f node-%d.%d %v name=%d token=%d target=%d sender=%d seq=%d sent=%.6f",
		e.at.Seconds(), e.node, e.life, e.kind, e.name, e.token, e.target, e.sender, e.seq, e.sent.Seconds())
}

// crew is servers of a store and all nodes, in processes of their own.
type crew struct {
	*scene.Run
	net      *network
	servers  Servers
	dir      string
	settings settings // of each, but for what differs
	room     int      // entries of a process
	slots    []*slot
	numbers  atomic.Int64 // of orders

	viewing sync.Mutex
	view    view
}

// kindOf is the store of that name.
func kindOf(name string) Store {
	i := slices.IndexFunc(Stores, func(s Store) bool { return s.Name == name })
	if i < 0 {
		scene.Check(fmt.Errorf("there is no store %q", name))
	}
	return Stores[i]
}

// newCrew starts servers and makes a network for n nodes, which start starts. Their store is that of
// the run, or etcd.
func newCrew(ctx context.Context, r *scene.Run, n, members int, wires wiring, s settings) *crew {
	s.Store = cmp.Or(r.Store, "etcd")
	c := &crew{Run: r, settings: s, room: roomForLife, view: newView(),
		dir:     scene.Must(os.MkdirTemp(r.Dir, "nodes-")),
		servers: kindOf(s.Store).Start(ctx, members)}
	if err := scene.Try(func() { c.net = wires(c.servers.Addresses(), n) }); err != nil {
		c.end()
		scene.Check(err)
	}
	for i := range n {
		c.slots = append(c.slots, &slot{index: i})
	}
	r.Printf("   %v; %v", c.servers, c.net.about)
	return c
}

// newLocal is newCrew with one server, and nothing between nodes.
func newLocal(ctx context.Context, r *scene.Run, n int, s settings) *crew {
	return newCrew(ctx, r, n, 1, newLoopback, s)
}

// start starts a process for a node, unless it has one.
func (c *crew) start(i int) {
	s, at := c.slots[i], c.net.seats[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return
	}
	set := c.settings
	set.Index, set.Life = i, s.life
	set.Host, set.Port, set.Dials = at.host, at.port, at.dials
	set.URL = c.servers.URL(at.endpoints)
	set.Journal = filepath.Join(c.dir, fmt.Sprintf("%d-%d", i, s.life))
	s.book, s.viewed = machine.MakeJournal[entry](set.Journal, c.room), 0
	s.proc = startProcess(at.place, set)
}

// current is the process of a node; nil if it has none.
func (s *slot) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// gone takes up what a process left that has ended.
func (c *crew) gone(s *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return
	}
	es := s.readLocked()
	s.past = append(s.past, es...)
	c.viewing.Lock()
	for _, e := range es[min(s.viewed, len(es)):] {
		c.view.take(e)
	}
	c.view.died(s.index, s.life)
	c.viewing.Unlock()
	err := errors.Join(s.book.Close(), os.Remove(s.book.Path))
	s.proc, s.book = nil, nil
	s.life++
	scene.Check(err)
}

// readLocked is what the present process has noted.
func (s *slot) readLocked() (es []seen) {
	for _, e := range s.book.Read() {
		es = append(es, seen{e, s.index, s.life})
	}
	return es
}

// check returns an error if the process ended by itself.
func (s *slot) check() error {
	p := s.current()
	if p == nil {
		return nil
	}
	select {
	case <-p.Done():
		return fmt.Errorf("%s ended by itself: %v", p.ID, p.Err())
	default:
		return nil
	}
}

// endBy has the process end, unless it has ended by itself, and takes up what it left.
func (c *crew) endBy(s *slot, end func(*process) error) error {
	p := s.current()
	if p == nil {
		return nil
	}
	err := s.check()
	if err == nil {
		err = end(p)
	}
	c.gone(s)
	return err
}

// kill ends the process with SIGKILL.
func (c *crew) kill(s *slot) error { return c.endBy(s, (*process).Kill) }

// leaveBy tells the process to leave in order, and kills it if that takes too long.
func (c *crew) leaveBy(s *slot, within time.Duration) error {
	return c.endBy(s, func(p *process) error {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return errors.Join(err, p.Kill())
		}
		select {
		case <-p.Done():
			// One that has not begun may not know the signal yet.
			if _, up := p.Find(tookPart); up && p.Err() != nil {
				return fmt.Errorf("%s, told to leave: %w", p.ID, p.Err())
			}
			return nil
		case <-time.After(within):
			return errors.Join(fmt.Errorf("%s has not left within %v", p.ID, within), p.Kill())
		}
	})
}

// collected is the evidence of all nodes.
func (c *crew) collected() evidence {
	ttl := c.settings.TTL
	return evidence{entries: c.evidence(), names: c.settings.Names, ttl: ttl,
		margin: max(ttl/10, 100*time.Millisecond)}
}

// evidence is what all nodes noted.
func (c *crew) evidence() (all []seen) {
	for _, s := range c.slots {
		all = append(all, s.all()...)
	}
	return all
}

func (s *slot) all() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return s.past
	}
	return append(slices.Clone(s.past), s.readLocked()...)
}

// end kills what still runs, and ends the servers.
func (c *crew) end() {
	var errs []error
	for _, s := range c.slots {
		if p := s.current(); p != nil {
			errs = append(errs, p.Kill())
		}
		s.mu.Lock()
		if s.book != nil {
			errs = append(errs, s.book.Close())
			s.proc, s.book = nil, nil
		}
		s.mu.Unlock()
	}
	if c.net != nil {
		c.net.close()
	}
	if err := errors.Join(append(errs, c.servers.Close())...); err != nil {
		c.Violation("the end of nodes and servers: %v", err)
	}
}

// process is one node's.
type process = machine.Process[said]

func startProcess(at *machine.Place, s settings) *process {
	program := ""
	if (s.Index+s.Life)%2 == 1 {
		program = s.Former
	}
	return machine.Start[said](at, program, fmt.Sprintf("%s.%d", s.id(), s.Life), nodeEnv, s)
}

// tookPart says of a report that its node takes part.
func tookPart(r said) bool { return r.What == isUp }

// awaitUp waits until a node takes part, and returns what it said then.
func (c *crew) awaitUp(ctx context.Context, i int) (said, error) {
	p := c.slots[i].current()
	if p == nil {
		return said{}, fmt.Errorf("node-%d has no process", i)
	}
	return p.Await(ctx, patience+10*time.Second, isUp, tookPart)
}

// up starts nodes, and waits until all take part.
func (c *crew) up(ctx context.Context, nodes ...int) {
	for _, i := range nodes {
		c.start(i)
	}
	for _, i := range nodes {
		scene.Must(c.awaitUp(ctx, i))
	}
}

// all are the nodes that have processes, without some.
func (c *crew) all(but ...int) (nodes []int) {
	for _, s := range c.slots {
		if s.current() != nil && !slices.Contains(but, s.index) {
			nodes = append(nodes, s.index)
		}
	}
	return nodes
}

// order gives nodes an order, all of them if none is named, and waits until each says that it is
// done.
func (c *crew) order(ctx context.Context, o order, within time.Duration, nodes ...int) []said {
	return scene.Must(c.ask(ctx, o, within, nodes...))
}

// ask is order that returns what failed. A node that has failed says nothing.
func (c *crew) ask(ctx context.Context, o order, within time.Duration, nodes ...int) ([]said, error) {
	if len(nodes) == 0 {
		nodes = c.all()
	}
	o.Number = int(c.numbers.Add(1))
	got, errs := make([]said, len(nodes)), make([]error, len(nodes))
	procs := make([]*process, len(nodes))
	for k, i := range nodes {
		if procs[k] = c.slots[i].current(); procs[k] == nil {
			return nil, fmt.Errorf("%s: node-%d has no process", o.Do, i)
		}
		if err := procs[k].Tell(o); err != nil {
			return nil, err
		}
	}
	for k, p := range procs {
		got[k], errs[k] = p.Await(ctx, within, o.Do, func(r said) bool { return r.Number == o.Number })
		if got[k].Err != "" {
			errs[k] = fmt.Errorf("%s: %s: %s", p.ID, o.Do, got[k].Err)
		}
	}
	return got, errors.Join(errs...)
}

// lead makes a node the leader for all, those too that are started later.
func (c *crew) lead(ctx context.Context, i int) {
	c.settings.Leader = scene.Must(c.awaitUp(ctx, i)).Owner
	c.order(ctx, order{Do: doLead, Leader: c.settings.Leader}, patience)
}

// weights are what nodes need, all of them if none is named.
func (c *crew) weights(ctx context.Context, nodes ...int) (all []weight) {
	for _, r := range c.order(ctx, order{Do: doWeigh}, patience, nodes...) {
		all = append(all, *r.Weight)
	}
	return all
}

// quiet ends the load, and waits until nothing has been noted for some time, or for too long.
func (c *crew) quiet(ctx context.Context, calm, within time.Duration) {
	c.order(ctx, order{Do: doQuiet}, patience)
	end := machine.Now() + within
	for was, since := -1, machine.Now(); machine.Now() < end && machine.Now()-since < calm; {
		n := 0
		for _, s := range c.slots {
			s.mu.Lock()
			if s.book != nil {
				n += s.book.Len()
			}
			s.mu.Unlock()
		}
		if n > was+len(c.slots) { // sessions are confirmed, now and then
			was, since = n, machine.Now()
		}
		scene.Check(machine.Pause(ctx, 50*time.Millisecond))
	}
}

// view is which name is where, as the journals have it.
type view struct {
	homes map[uint16]home
	boss  home // the coordinator
	dead  map[[2]int]bool
	held  map[int]time.Duration    // when a worker of each node was last held in the middle of its work
	heard map[[2]int]time.Duration // when a letter was last handled, by node and name
	began int                      // entries that tell of a name that is hosted by another
}

// home is where a name is, or was last.
type home struct {
	node, life int
	token      uint64
	at         time.Duration // since when
	hosted     bool
}

func newView() view {
	return view{homes: map[uint16]home{}, dead: map[[2]int]bool{}, held: map[int]time.Duration{}, heard: map[[2]int]time.Duration{}}
}

func (v *view) take(e seen) {
	switch h := v.homes[e.name]; {
	case e.kind == handled:
		v.heard[[2]int{e.node, int(e.name)}] = e.at
	case e.kind == holding:
		v.held[e.node] = e.at
	case e.kind == coordinating && e.token > v.boss.token:
		v.boss = home{e.node, e.life, e.token, e.at, true}
	case e.kind == hosted && e.token > h.token:
		v.homes[e.name] = home{e.node, e.life, e.token, e.at, !v.dead[[2]int{e.node, e.life}]}
		v.began++
	case e.kind == unhosted && h.node == e.node && h.life == e.life:
		h.hosted = false
		v.homes[e.name] = h
	}
}

// died says that a process is gone.
func (v *view) died(node, life int) {
	v.dead[[2]int{node, life}] = true
	for name, h := range v.homes {
		if h.node == node && h.life == life {
			h.hosted = false
			v.homes[name] = h
		}
	}
}

// look calls f with a view that is up to date.
func (c *crew) look(f func(v *view)) {
	for _, s := range c.slots {
		s.mu.Lock()
		c.viewing.Lock()
		for s.book != nil {
			e, ok := s.book.At(s.viewed)
			if !ok {
				break // not begun, or being written
			}
			c.view.take(seen{e, s.index, s.life})
			s.viewed++
		}
		c.viewing.Unlock()
		s.mu.Unlock()
	}
	c.viewing.Lock()
	defer c.viewing.Unlock()
	f(&c.view)
}

// hosts are how many names each node hosts, and since when all are hosted; 0 if they are not.
func (c *crew) hosts() (has []int, since time.Duration) {
	c.look(func(v *view) { has, since = c.hostsIn(v) })
	return has, since
}

func (c *crew) hostsIn(v *view) (has []int, since time.Duration) {
	has = make([]int, len(c.slots))
	for name := range c.settings.Names.count() {
		h := v.homes[uint16(name)]
		if !h.hosted {
			since = -1
			continue
		}
		has[h.node]++
		if since >= 0 {
			since = max(since, h.at)
		}
	}
	return has, max(since, 0)
}

// until waits for what a view shows. machine.ErrNever says that it took too long.
func (c *crew) until(ctx context.Context, within time.Duration, what string, is func(*view) bool) {
	err := machine.Until(ctx, within, what, func() (ok bool) {
		c.look(func(v *view) { ok = is(v) })
		return ok
	})
	if err != nil {
		has, _ := c.hosts()
		scene.Check(fmt.Errorf("%w; the nodes host %v of %d", err, has, c.settings.Names.count()))
	}
}

// settled waits until these nodes host all shards evenly, and have for a while, and returns since
// when.
func (c *crew) settled(ctx context.Context, within, calm time.Duration, among ...int) (since time.Duration) {
	c.until(ctx, within, fmt.Sprintf("the shards are even among %v", among), func(v *view) bool {
		var has []int
		has, since = c.hostsIn(v)
		return since > 0 && even(has, c.settings.Names, among) && machine.Now()-since >= calm
	})
	return since
}

// even reports whether all names are hosted by these nodes, each having its part of the shards.
func even(has []int, n names, among []int) bool {
	sum := 0
	for _, i := range among {
		if has[i] < n.Shards/len(among) || has[i] > (n.Shards+len(among)-1)/len(among)+n.Singletons {
			return false
		}
		sum += has[i]
	}
	return sum == n.count()
}
