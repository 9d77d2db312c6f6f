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
	_, closeStore, err := open.Open(ctx, b.server.URL()+"&holdfast_migrate=true")
	if err == nil {
		err = errors.Join(closeStore(), b.server.Exec(ctx, rights))
	}
	if err != nil {
		b.close()
		scene.Check(err)
	}
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

// kill ends the server with SIGKILL; restart starts it again with its data.
func (b *bed) kill() error {
	if b.etcd != nil {
		return b.member().Kill()
	}
	return b.server.Kill()
}

func (b *bed) restart(ctx context.Context) error {
	if b.etcd != nil {
		return b.member().Restart(ctx)
	}
	return b.server.Restart(ctx)
}

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
	var err error
	n.store, n.close, err = open.Open(ctx, url)
	scene.Check(err)
	b.atEnd(func() { _ = n.close() }) // one of a link that is cut may complain
	n.keeper = newKeeper(n.store, n.id, b.ttl)
	b.atEnd(func() { abandon(n.keeper) }) // what is left ends with the server
	b.nodes = append(b.nodes, n)
	return n
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
	for deadline := lab.Now() + within; !is(); {
		if lab.Now() > deadline {
			scene.Check(fmt.Errorf("%s: not within %v", what, within))
		}
		scene.Check(lab.Pause(ctx, 5*time.Millisecond))
	}
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
	var err error
	if b.etcd != nil {
		err = b.etcd.Close()
	}
	if b.server != nil {
		err = errors.Join(err, b.server.Close())
	}
	if err != nil {
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
