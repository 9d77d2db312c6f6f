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
	"github.com/holdfast-go/holdfast/lease"
)

// load is what one group asks of the server: a role of its own holds names by one way, and maybe
// another process waits for each of them.
type load struct {
	way     string
	names   int
	waiting bool
	looks   bool // ours without WithListener: watches look every 250 ms
	role    string
	// By window: what the role asked each second, as pg_stat_statements counts it, and how many
	// milliseconds the server computed for it each second.
	statements, busy []float64
}

func loads(p plan) []*load {
	all := []*load{{way: holdfast, names: 1}, {way: holdfast, names: p.some}, {way: holdfast, names: p.many},
		{way: holdfast, names: 1, waiting: true}, {way: holdfast, names: p.some, waiting: true},
		{way: holdfast, names: 1, looks: true}, {way: holdfast, names: 1, waiting: true, looks: true},
		{way: advisory, names: 1}, {way: advisory, names: p.some},
		{way: advisory, names: 1, waiting: true}, {way: advisory, names: p.some, waiting: true},
		{way: table, names: 1}, {way: table, names: 1, waiting: true}}
	for i, l := range all {
		l.role = fmt.Sprintf("load_%d", i)
	}
	return all
}

// measureStatements holds all of them at once, and counts over windows of two renewals each.
func measureStatements(ctx context.Context, p plan, b *bed) (_ []*load, err error) {
	all := loads(p)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed error
	defer func() {
		cancel()
		running.Wait()
		mu.Lock()
		defer mu.Unlock()
		err = errors.Join(err, failed)
	}()
	fails := func(err error) {
		if err != nil && ctx.Err() == nil {
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		}
	}
	for _, l := range all {
		url, err := b.role(ctx, l)
		if err != nil {
			return nil, err
		}
		hold, wait, end, err := l.begin(ctx, p, url)
		if err != nil {
			return nil, fmt.Errorf("%s, %d names: %w", l.way, l.names, err)
		}
		defer end()
		running.Go(func() { fails(hold(ctx)) })
		if l.waiting {
			running.Go(func() { fails(wait(ctx)) })
		}
	}
	defer running.Wait() // before their connections end
	defer cancel()
	if err := wait(ctx, p.ttl/3); err != nil {
		return nil, err
	}
	before, err := b.counted(ctx)
	for range p.windows {
		began := time.Now()
		if err := errors.Join(err, wait(ctx, 2*p.ttl/3)); err != nil {
			return nil, err
		}
		var after map[string][2]float64
		after, err = b.counted(ctx)
		took := time.Since(began).Seconds()
		for _, l := range all {
			l.statements = append(l.statements, (after[l.role][0]-before[l.role][0])/took)
			l.busy = append(l.busy, (after[l.role][1]-before[l.role][1])/took)
		}
		before = after
	}
	mu.Lock()
	defer mu.Unlock()
	return all, errors.Join(err, failed)
}

// begin acquires the names; hold keeps them, and wait waits for them.
func (l *load) begin(ctx context.Context, p plan, url string) (hold, wait func(context.Context) error, end func(), err error) {
	switch l.way {
	case holdfast:
		return l.beginOurs(ctx, p, url)
	default:
		return l.beginTheirs(ctx, p, url)
	}
}

func (l *load) name(i int) string { return fmt.Sprintf("%s/%06d", l.role, i) }

// beginOurs: one Keeper holds all names, and another waits for all.
func (l *load) beginOurs(ctx context.Context, p plan, url string) (hold, wait func(context.Context) error, end func(), err error) {
	holder, err := newNode(ctx, url, l.role, "holder", p.ttl, !l.looks)
	if err != nil {
		return nil, nil, nil, err
	}
	waiter, err := newNode(ctx, url, l.role, "waiter", p.ttl, !l.looks)
	if err != nil {
		holder.close()
		return nil, nil, nil, err
	}
	end = func() { waiter.close(); holder.close() }
	handles := make(chan *lease.Handle)
	var acquiring sync.WaitGroup
	var mu sync.Mutex
	var terms []lease.Term
	for range min(l.names, 2000) {
		acquiring.Go(func() {
			for h := range handles {
				t, e := h.AcquireTerm(ctx)
				for tries := 0; errors.Is(e, lease.ErrUnknown) && tries < 5; tries++ { // a machine that is busy
					t, e = h.AcquireTerm(ctx)
				}
				mu.Lock()
				terms, err = append(terms, t), errors.Join(err, e)
				mu.Unlock()
			}
		})
	}
	for i := range l.names {
		h, e := holder.keeper.Lease(l.name(i))
		if e != nil {
			mu.Lock()
			err = errors.Join(err, e)
			mu.Unlock()
			break
		}
		handles <- h
	}
	close(handles)
	acquiring.Wait()
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	hold = func(ctx context.Context) error {
		<-ctx.Done()
		for _, t := range terms {
			if !t.CheckAlive() {
				return fmt.Errorf("%s was lost: %w", t.Name(), context.Cause(t.Context()))
			}
		}
		return nil
	}
	wait = func(ctx context.Context) error {
		var waiting sync.WaitGroup
		defer waiting.Wait()
		for i := range l.names {
			h, err := waiter.keeper.Lease(l.name(i))
			if err != nil {
				return err
			}
			waiting.Go(func() { _ = (&ours{waiter, h}).await(ctx) })
		}
		return nil
	}
	return hold, wait, end, nil
}

// beginTheirs: one connection holds all names, and another tries each of them.
func (l *load) beginTheirs(ctx context.Context, p plan, url string) (hold, wait func(context.Context) error, end func(), err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, nil, nil, err
	}
	other, err := pgx.Connect(ctx, url)
	if err != nil {
		hangUp(conn)
		return nil, nil, nil, err
	}
	end = func() { hangUp(conn); hangUp(other) }
	of := func(c *pgx.Conn, id string, i int) candidate {
		if l.way == advisory {
			return &lock{c, l.name(i)}
		}
		return &leader{conn: c, name: l.name(i), id: l.role + id, ttl: p.ttl}
	}
	for i := range l.names {
		if ok, err := of(conn, "a", i).try(ctx); err != nil || !ok {
			end()
			return nil, nil, nil, fmt.Errorf("%s was not acquired: %w", l.name(i), err)
		}
	}
	hold = func(ctx context.Context) error {
		for every(ctx, p.ttl/3) {
			if err := of(conn, "a", 0).renew(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	wait = func(ctx context.Context) error {
		if l.way == table {
			return of(other, "b", 0).await(ctx)
		}
		for every(ctx, poll) {
			for i := range l.names {
				if ok, err := of(other, "b", i).try(ctx); ok || err != nil {
					return fmt.Errorf("%s is held, and was given: %v, %w", l.name(i), ok, err)
				}
			}
		}
		return nil
	}
	return hold, wait, end, nil
}

func every(ctx context.Context, d time.Duration) bool { return wait(ctx, d) == nil }

// role makes the load's role, and for ours a schema of that name.
func (b *bed) role(ctx context.Context, l *load) (url string, err error) {
	if l.way == holdfast {
		if err := b.migrate(ctx, l.role); err != nil {
			return "", err
		}
	}
	sql := "CREATE ROLE " + l.role + " LOGIN; GRANT ALL ON leader TO " + l.role
	if l.way == holdfast {
		sql += fmt.Sprintf("; GRANT USAGE ON SCHEMA %[1]s TO %[1]s; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[1]s", l.role)
	}
	return b.server.Route().URLOf(l.role, "postgres"), b.server.Exec(ctx, sql)
}

// migrate makes a schema of ours.
func (b *bed) migrate(ctx context.Context, schema string) error {
	pool, err := pgxpool.New(ctx, b.server.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.WithSchema(schema), postgres.WithLogger(zap.NewNop()))
	if err != nil {
		return err
	}
	return store.Migrate(ctx)
}

// counted is how many statements each role has made, and for how many milliseconds the server
// computed for them.
func (b *bed) counted(ctx context.Context) (map[string][2]float64, error) {
	rows, err := b.admin.Query(ctx, `SELECT r.rolname, sum(s.calls)::float8, sum(s.total_exec_time)::float8
		FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid GROUP BY 1`)
	if err != nil {
		return nil, err
	}
	all := map[string][2]float64{}
	var role string
	var calls, ms float64
	_, err = pgx.ForEachRow(rows, []any{&role, &calls, &ms}, func() error {
		all[role] = [2]float64{calls, ms}
		return nil
	})
	return all, err
}
