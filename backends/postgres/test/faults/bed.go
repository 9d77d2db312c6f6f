//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/lease"
)

// role is who nodes connect as: no superuser, and with no more rights than the store needs.
const role = "app"

const rights = `CREATE ROLE app LOGIN;
	GRANT USAGE ON SCHEMA holdfast TO app;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO app`

// bed is a server, and nodes that contend for names.
type bed struct {
	ttl     time.Duration
	server  *postgrestest.Server
	standby *postgrestest.Server  // of faults that need one
	bouncer *postgrestest.Bouncer // of faults that go through one
	url     func(i int) (string, error)
	noise   bool // nodes listen for notifications
	nodes   []*node
	journal journal
	names   map[string]time.Duration

	want func(name string, hold time.Duration) error // has all nodes contend for another
	join func(n *node) error                         // has another node contend for all
	stop func()
	end  []func()

	// By now(): when the fault began, unless with inflict; since when service is surely gone, and
	// when its return was begun. A fault that does not end service sets neither.
	began, gone, returning time.Duration
}

// node is a Keeper over a store and a pool of its own.
type node struct {
	id     string
	pool   *pgxpool.Pool
	routes []*postgrestest.Route // its own ways to the servers; none if it goes by another
	store  *postgres.Store
	keeper *lease.Keeper
}

// cut cuts the node off from the servers; heal undoes that.
func (n *node) cut() {
	for _, r := range n.routes {
		r.Cut()
	}
}

func (n *node) heal() {
	for _, r := range n.routes {
		r.Heal()
	}
}

// names that nodes contend for: by how long each holder keeps one; 0: as long as it can.
func contended() map[string]time.Duration {
	return map[string]time.Duration{"long/1": 0, "long/2": 0, "short/1": 300 * time.Millisecond, "short/2": 400 * time.Millisecond}
}

// newBed runs a server with the schema and no nodes.
func newBed(ctx context.Context, ttl time.Duration, opts ...postgrestest.Option) (b *bed, err error) {
	b = &bed{ttl: ttl, names: contended(), noise: true, stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	var o postgrestest.Options
	for _, opt := range opts {
		opt(&o)
	}
	if b.server, err = postgrestest.Run(ctx, o); err != nil {
		return b, err
	}
	b.url = b.ownRoute
	pool, err := pgxpool.New(ctx, b.server.URL())
	if err != nil {
		return b, err
	}
	defer pool.Close()
	store, err := postgres.New(pool)
	if err != nil {
		return b, err
	}
	if err := store.Migrate(ctx); err != nil {
		return b, err
	}
	return b, b.server.Exec(ctx, rights)
}

func (b *bed) ownRoute(i int) (string, error) {
	r, err := b.server.NewRoute()
	if err != nil {
		return "", err
	}
	b.nodes[i].routes = append(b.nodes[i].routes, r)
	return r.URLOf(role, "postgres"), nil
}

// populate adds n nodes.
func (b *bed) populate(ctx context.Context, n int) error {
	for range n {
		i := len(b.nodes)
		nd := &node{id: fmt.Sprintf("node-%d", i+1)}
		b.nodes = append(b.nodes, nd)
		url, err := b.url(i)
		if err != nil {
			return err
		}
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			return err
		}
		config.MaxConns = 8
		if nd.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
			return err
		}
		b.end = append(b.end, nd.pool.Close)
		opts := []postgres.Option{postgres.WithLogger(zap.NewNop())}
		if b.noise && i == 0 { // the others look for changes
			opts = append(opts, postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) {
				return pgx.ConnectConfig(ctx, nd.pool.Config().ConnConfig)
			}))
		}
		if nd.store, err = postgres.New(nd.pool, opts...); err != nil {
			return err
		}
		nd.keeper, err = lease.NewKeeper(nd.store, lease.Config{ID: nd.id, TTL: b.ttl, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		b.end = append(b.end, func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.ttl)
			defer cancel()
			_ = nd.keeper.Close(ctx) // what is left ends with the server
		})
	}
	return nil
}

// contend starts contenders for every name on every node.
func (b *bed) contend(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	b.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	one := func(n *node, name string, hold time.Duration) error {
		h, err := n.keeper.Lease(name)
		if err == nil {
			all.Go(func() { b.journal.contend(ctx, n.id, h, hold) })
		}
		return err
	}
	b.want = func(name string, hold time.Duration) (err error) {
		for _, n := range b.nodes {
			err = errors.Join(err, one(n, name, hold))
		}
		return err
	}
	b.join = func(n *node) (err error) {
		for name, hold := range b.names {
			err = errors.Join(err, one(n, name, hold))
		}
		return err
	}
	for name, hold := range b.names {
		if err := b.want(name, hold); err != nil {
			return err
		}
	}
	return nil
}

// held waits until every name was believed to be held after since, and returns how long after
// since that was.
func (b *bed) held(ctx context.Context, since, within time.Duration) (time.Duration, error) {
	deadline := now() + within
	for {
		seen := map[string]time.Duration{}
		for _, e := range b.journal.all() {
			if at := max(e.first, since); e.last > since && (seen[e.name] == 0 || at < seen[e.name]) {
				seen[e.name] = at
			}
		}
		if len(seen) == len(b.names) {
			took := time.Duration(0)
			for _, at := range seen {
				took = max(took, at-since)
			}
			return took, nil
		}
		if now() > deadline {
			return 0, fmt.Errorf("not all held within %v: %d of %d", within, len(seen), len(b.names))
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// won waits until a name was acquired anew after since, and returns how long after since that was.
func (b *bed) won(ctx context.Context, since, within time.Duration) (time.Duration, error) {
	deadline := now() + within
	for {
		first := time.Duration(0)
		for _, e := range b.journal.all() {
			if e.first > since && (first == 0 || e.first < first) {
				first = e.first
			}
		}
		if first != 0 {
			return first - since, nil
		}
		if now() > deadline {
			return 0, fmt.Errorf("nothing acquired within %v", within)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// close ends contenders, nodes and servers.
func (b *bed) close() error {
	for _, n := range b.nodes { // else what is sent into a cut way is waited for
		n.heal()
	}
	b.stop()
	for i := len(b.end) - 1; i >= 0; i-- {
		b.end[i]()
	}
	if b.server == nil {
		return nil
	}
	return b.server.Close()
}

// wait sleeps for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
