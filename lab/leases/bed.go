//go:build linux

package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/faultlink"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// The kinds of stores with a server.
const (
	onEtcd     = "etcd"
	onPostgres = "postgres"
)

// role is who nodes of PostgreSQL connect as: no superuser, and with no more rights than the store
// needs.
const role = "app"

const rights = `CREATE ROLE app LOGIN;
	GRANT USAGE ON SCHEMA holdfast TO app;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO app`

// bed is a store's server, and nodes over it that contend for names.
type bed struct {
	*scene.Run
	ttl     time.Duration
	etcd    *etcdtest.Cluster    // or
	server  *postgrestest.Server // with, for some faults,
	standby *postgrestest.Server
	bouncer *postgrestest.Bouncer
	main    interface { // the member, or the server
		Kill() error
		Restart(ctx context.Context) error
	}
	shut    func() error         // ends all servers
	url     func(n *node) string // of package open
	listens bool                 // the first node listens for notifications

	nodes   []*node
	journal journal
	names   map[string]time.Duration // that all contend for: how long a holder keeps one; 0: as long as it can

	contending sync.WaitGroup
	running    context.Context // of those that contend
	halt       func()

	end []func()

	// By lab.Now: when the fault began; since when service is surely gone, and when its return was
	// begun. A fault that does not end service sets neither of these.
	began, gone, returning time.Duration
}

// newBed runs a server, and no nodes.
func newBed(ctx context.Context, run *scene.Run, store string, ttl time.Duration, opts ...postgrestest.Option) *bed {
	b := &bed{Run: run, ttl: ttl}
	b.running, b.halt = context.WithCancel(context.WithoutCancel(ctx))
	switch store {
	case onEtcd:
		b.url, b.etcd = b.etcdRoute, scene.Must(etcdtest.Run(ctx, etcdtest.Options{}))
		b.main, b.shut = b.member(), b.etcd.Close
		return b
	case onPostgres:
	default:
		scene.Check(fmt.Errorf("this scenario has no store %q: etcd or postgres", store))
	}
	var o postgrestest.Options
	for _, opt := range opts {
		opt(&o)
	}
	b.url, b.listens, b.server = b.ownRoute, true, scene.Must(postgrestest.Run(ctx, o))
	b.main, b.shut = b.server, b.server.Close
	lab.Migrate(ctx, b.server, rights)
	return b
}

// storeOf is the store that the run asks for, or etcd.
func storeOf(r *scene.Run) string { return cmp.Or(r.Store, onEtcd) }

// ownRoute gives the node a way of its own to the server.
func (b *bed) ownRoute(n *node) string {
	r := scene.Must(b.server.NewRoute())
	n.links = append(n.links, r.Link)
	return r.URLOf(role, "postgres")
}

func (b *bed) etcdRoute(n *node) string {
	r := scene.Must(b.etcd.NewRoute())
	n.links = append(n.links, r.Link(b.member()))
	return "etcd://" + strings.TrimPrefix(r.Endpoints()[0], "http://")
}

// member is the only one of etcd.
func (b *bed) member() *etcdtest.Member { return b.etcd.Members()[0] }

// atEnd has f called when the bed is closed, those of later calls first.
func (b *bed) atEnd(f func()) { b.end = append(b.end, f) }

// node is a store over a client of its own, and a Keeper over that.
type node struct {
	id     string
	links  []*faultlink.Link // its own ways to the servers; none if it goes by another
	store  store.Store
	close  func() error // the store
	keeper *lease.Keeper
}

// cut cuts the node off from the servers; heal undoes that, and slow.
func (n *node) cut()  { n.each((*faultlink.Link).Cut) }
func (n *node) heal() { n.each((*faultlink.Link).Heal) }

func (n *node) each(do func(*faultlink.Link)) {
	for _, l := range n.links {
		do(l)
	}
}

// newNode adds a node.
func (b *bed) newNode(ctx context.Context, id string) *node {
	n := &node{id: id}
	url := b.url(n)
	if b.server != nil {
		url += "&pool_max_conns=8"
	}
	if b.listens && len(b.nodes) == 0 { // the others look for changes
		url += "&holdfast_listen=true"
	}
	n.store, n.close = openStore(ctx, url)
	b.atEnd(func() { _ = n.close() }) // one of a link that is cut may complain
	n.keeper = newKeeper(n.store, n.id, b.ttl)
	b.atEnd(func() { abandon(n.keeper) }) // what is left ends with the server
	b.nodes = append(b.nodes, n)
	return n
}

func openStore(ctx context.Context, url string) (store.Store, func() error) {
	s, end, err := open.Open(ctx, url)
	scene.Check(err)
	return s, end
}

// abandon ends a Keeper as its process's death would: nothing is given back.
func abandon(k *lease.Keeper) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = k.Close(ctx) // the error says that it left everything standing
}

// contend starts contenders on every node, for names that are new.
func (b *bed) contend(names map[string]time.Duration) {
	maps.Copy(b.names, names)
	for _, n := range b.nodes {
		for name, hold := range names {
			h := scene.Must(n.keeper.Lease(name))
			b.contending.Go(func() { b.journal.contend(b.running, n.id, h, hold) })
		}
	}
}

// stop ends all contenders.
func (b *bed) stop() {
	b.halt()
	b.contending.Wait()
}

// await calls is every 5 ms until it is true, and returns how long after since that was.
func await(ctx context.Context, since, within time.Duration, what string, is func() bool) time.Duration {
	scene.Check(lab.Until(ctx, within, what, is))
	return lab.Now() - since
}

// held waits until every name was believed to be held after since, those that change hands by a term
// that began after it, and returns how long after since that was.
func (b *bed) held(ctx context.Context, since, within time.Duration) (took time.Duration) {
	await(ctx, since, within, fmt.Sprintf("all %d names are held", len(b.names)), func() bool {
		seen := map[string]time.Duration{}
		for _, e := range b.journal.all() {
			at := max(e.First, since)
			if e.Last > since && (b.names[e.Name] == 0 || e.First > since) && (seen[e.Name] == 0 || at < seen[e.Name]) {
				seen[e.Name] = at
			}
		}
		took = slices.Max(append(slices.Collect(maps.Values(seen)), since)) - since
		return len(seen) == len(b.names)
	})
	return took
}

// close ends contenders, nodes, processes and servers.
func (b *bed) close() {
	for _, n := range b.nodes { // else what is sent into a link that is cut is waited for
		n.heal()
	}
	b.stop()
	for _, end := range slices.Backward(b.end) {
		end()
	}
	if err := b.shut(); err != nil {
		b.Violation("the end of the server: %v", err)
	}
}

// hold acquires h, however often that must be tried.
func hold(ctx context.Context, h *lease.Handle) error {
	for {
		ok, err := h.Acquire(ctx)
		switch {
		case ok:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, lease.ErrUnknown):
			return err
		}
		if err == nil {
			err = h.Wait(ctx)
		}
		if err != nil {
			_ = lab.Pause(ctx, 10*time.Millisecond) // the next try says that ctx has ended
		}
	}
}

// tenure is one term as its holder saw it: alive at First, at Last, and whenever it looked
// between. The times are those that the checks went by, of the machine's clock.
type tenure struct {
	Name, Node  string
	Token       lease.Token
	First, Last time.Duration
	Reason      string // of a loss, without "lease "
}

// journal collects tenures of all nodes of one bed. It judges from outside: all go by one clock.
type journal struct {
	mu   sync.Mutex
	list []*tenure
	look time.Duration
}

// contend wants the lease until ctx ends: it holds it for a while (0: as long as it can),
// journals, gives it back, and wants it again.
func (j *journal) contend(ctx context.Context, node string, h *lease.Handle, hold time.Duration) {
	for ctx.Err() == nil {
		err := lease.Run(ctx, h, func(ctx context.Context, t lease.Term) error {
			j.follow(ctx, node, t, hold)
			return nil
		})
		if errors.Is(err, lease.ErrClosed) {
			return
		}
	}
}

func (j *journal) follow(ctx context.Context, node string, t lease.Term, hold time.Duration) {
	at, alive := t.Check()
	if !alive {
		return
	}
	e := &tenure{Name: t.Name(), Node: node, Token: t.Token(), First: at, Last: at}
	j.mu.Lock()
	j.list = append(j.list, e)
	j.mu.Unlock()
	for alive && ctx.Err() == nil && (hold == 0 || at < e.First+hold) {
		time.Sleep(max(j.look, 2*time.Millisecond))
		if at, alive = t.Check(); alive {
			j.mu.Lock()
			e.Last = at
			j.mu.Unlock()
		}
	}
	if !alive || t.Context().Err() != nil { // and was not given back
		err := cmp.Or(context.Cause(t.Context()), error(lease.ErrExpired)) // the timer that says so may be late
		j.mu.Lock()
		defer j.mu.Unlock()
		e.Reason = strings.TrimPrefix(err.Error(), "lease ")
	}
}

// all is a copy, by name and time.
func (j *journal) all() []tenure {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]tenure, len(j.list))
	for i, e := range j.list {
		list[i] = *e
	}
	slices.SortStableFunc(list, func(a, b tenure) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.First, b.First)) })
	return list
}

// verdict is what a journal shows of "one holder" and of growing tokens.
type verdict struct {
	terms    int
	doubles  int           // terms that began while an earlier one of the name was believed in
	longest  time.Duration // for which two believed, at the most
	backward int           // terms whose token is not above that of an earlier one
	furthest lease.Token   // by how much, at the most
}

// judge compares each term with those of its name that began before it.
func judge(list []tenure) (v verdict) {
	v.terms = len(list)
	for i, b := range list {
		double, back := false, false
		for k := i - 1; k >= 0 && list[k].Name == b.Name; k-- {
			a := list[k]
			if a.Last >= b.First && a.Node != b.Node {
				double = true
				v.longest = max(v.longest, min(a.Last, b.Last)-b.First)
			}
			if a.Token >= b.Token {
				back = true
				v.furthest = max(v.furthest, a.Token-b.Token)
			}
		}
		if double {
			v.doubles++
		}
		if back {
			v.backward++
		}
	}
	return v
}

func (v verdict) String() string {
	return fmt.Sprintf("%d terms, %d began while another believed (for %v at most), %d tokens did not grow (by %d at most)",
		v.terms, v.doubles, v.longest.Round(time.Millisecond), v.backward, v.furthest)
}
