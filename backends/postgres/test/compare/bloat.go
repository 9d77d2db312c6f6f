//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// growth is what renewals made of the tables.
type growth struct {
	way           string
	sessions      int // or rows
	renewals      int
	before, after int64 // bytes of all tables of the way, with indexes
	took          time.Duration
}

const (
	sizeOurs = `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
		WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r'`
	sizeTable = "SELECT pg_total_relation_size($1::regclass)"
)

// growOurs renews so many sessions, in one request each time, n times in all.
func (b *bed) growOurs(ctx context.Context, p plan, schema string, sessions, n int) (growth, error) {
	g := growth{way: holdfast, sessions: sessions}
	d, err := timed(ctx, p.patience, func(ctx context.Context) error { return b.migrate(ctx, schema) })
	if err != nil {
		return g, fmt.Errorf("migrate, after %v: %w", d, err)
	}
	pool, err := pgxpool.New(ctx, b.url)
	if err != nil {
		return g, err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.WithSchema(schema), postgres.WithLogger(zap.NewNop()))
	if err != nil {
		return g, err
	}
	all, err := openSessions(ctx, p, store, schema, sessions)
	if err != nil {
		return g, err
	}
	if err := b.admin.QueryRow(ctx, sizeOurs, schema).Scan(&g.before); err != nil {
		return g, err
	}
	began := time.Now()
	for g.renewals < n {
		if _, err := renewAll(ctx, p, store, all); err != nil {
			return g, err
		}
		g.renewals += len(all)
	}
	g.took = time.Since(began)
	return g, b.admin.QueryRow(ctx, sizeOurs, schema).Scan(&g.after)
}

// openSessions opens so many sessions.
func openSessions(ctx context.Context, p plan, store *postgres.Store, of string, n int) (all []lease.Session, err error) {
	for i := range n {
		s := lease.Session{ID: lease.SessionID(rand.Int64()>>1 + 1), TTL: time.Hour,
			Owner: lease.Owner{ID: "n", Incarnation: fmt.Sprint(of, "-", i)}}
		d, err := timed(ctx, p.patience, func(ctx context.Context) error {
			_, err := store.OpenSession(ctx, s)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("open a session, after %v: %w", d, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// renewAll renews them in one request.
func renewAll(ctx context.Context, p plan, store *postgres.Store, all []lease.Session) (time.Duration, error) {
	var grants []lease.Grant
	d, err := timed(ctx, p.patience, func(ctx context.Context) (err error) {
		grants, err = store.Renew(ctx, all)
		return err
	})
	for _, got := range grants {
		err = errors.Join(err, got.Err)
	}
	if err == nil && len(grants) != len(all) {
		err = fmt.Errorf("%d answers for %d sessions", len(grants), len(all))
	}
	if err != nil {
		err = fmt.Errorf("renew, after %v: %w", d, err)
	}
	return d, err
}

// growTable renews the row of a leader table n times, each in a transaction of its own, in a loop
// that runs in the server.
func (b *bed) growTable(ctx context.Context, n int) (growth, error) {
	g := growth{way: table, sessions: 1, renewals: n}
	if err := b.server.Exec(ctx, "DROP TABLE leader; "+leaderSchema); err != nil {
		return g, err
	}
	l := &leader{conn: b.admin, name: "growth", id: "growth", ttl: time.Hour}
	if ok, err := l.try(ctx); err != nil || !ok {
		return g, fmt.Errorf("the leader's row was not acquired: %w", err)
	}
	if err := b.admin.QueryRow(ctx, sizeTable, "leader").Scan(&g.before); err != nil {
		return g, err
	}
	began := time.Now()
	loop := fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		DELETE FROM leader WHERE name = 'growth' AND expires_at < now();
		INSERT INTO leader (name, id, elected_at, expires_at) VALUES ('growth', 'growth', now(), now() + interval '1 hour')
			ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at WHERE leader.id = excluded.id;
		COMMIT; END LOOP; END $$`, n)
	if _, err := b.admin.Exec(ctx, loop, pgx.QueryExecModeSimpleProtocol); err != nil {
		return g, err
	}
	g.took = time.Since(began)
	return g, b.admin.QueryRow(ctx, sizeTable, "leader").Scan(&g.after)
}
