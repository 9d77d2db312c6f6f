//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/lease"
)

// bloat is what so many renewals made of the table of sessions.
type bloat struct {
	renewals      int
	before, after int64 // bytes, with indexes
	dead          int64
	updates, hot  int64 // as the server counts them
	took          time.Duration
}

func (b bloat) String() string {
	return fmt.Sprintf("%d renewals in %v (%.0f/s): the table of sessions grew from %d KiB to %d KiB, %d dead rows; %.1f %% of %d updates were HOT",
		b.renewals, b.took.Round(time.Second), float64(b.renewals)/b.took.Seconds(), b.before>>10, b.after>>10, b.dead,
		100*float64(b.hot)/float64(max(b.updates, 1)), b.updates)
}

// renewMany renews a hundred sessions n times in all.
func renewMany(ctx context.Context, n int, autovacuum bool, idle bool) (bloat, error) {
	const sessions = 100
	r := bloat{}
	b, err := newBed(ctx, time.Minute, postgrestest.WithSetting("autovacuum", fmt.Sprint(autovacuum)),
		postgrestest.WithSetting("autovacuum_naptime", "1s"))
	if err != nil {
		return r, err
	}
	defer b.close()
	pool, err := pgxpool.New(ctx, b.server.Route().URLOf(role, "postgres"))
	if err != nil {
		return r, err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.WithLogger(zap.NewNop()))
	if err != nil {
		return r, err
	}
	var all []lease.Session
	for i := range sessions {
		s := lease.Session{ID: lease.SessionID(i + 1), TTL: time.Hour, Owner: lease.Owner{ID: "n", Incarnation: fmt.Sprint("n-", i)}}
		if _, err := store.OpenSession(ctx, s); err != nil {
			return r, err
		}
		if _, err := store.Acquire(ctx, s, []lease.Claim{{Name: fmt.Sprint("name/", i), Nonce: uint64(i + 1)}}); err != nil {
			return r, err
		}
		all = append(all, s)
	}
	admin, err := b.server.Conn(ctx)
	if err != nil {
		return r, err
	}
	defer admin.Close(context.WithoutCancel(ctx))
	size := func(to *int64) error {
		return admin.QueryRow(ctx, "SELECT pg_total_relation_size('holdfast.session')").Scan(to)
	}
	if err := size(&r.before); err != nil {
		return r, err
	}
	if idle {
		old, err := b.server.Conn(ctx)
		if err != nil {
			return r, err
		}
		defer old.Close(context.WithoutCancel(ctx))
		for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT txid_current()"} {
			if _, err := old.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
				return r, err
			}
		}
	}
	began := time.Now()
	for r.renewals < n {
		grants, err := store.Renew(ctx, all)
		for _, g := range grants {
			err = errors.Join(err, g.Err)
		}
		if err != nil {
			return r, err
		}
		r.renewals += len(grants)
	}
	r.took = time.Since(began)
	pool.Close()
	for range 100 { // statistics are told late
		err = admin.QueryRow(ctx, "SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'").
			Scan(&r.dead, &r.updates, &r.hot)
		if err != nil || r.updates >= int64(r.renewals) {
			break
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return r, err
		}
	}
	return r, errors.Join(err, size(&r.after))
}

// hourly is how many renewals the sessions have in an hour with a TTL of 10 s. Beside a transaction
// that is idle for as long no dead row is reused, and each renewal takes longer than the one before.
const hourly = 100 * 3600 * 3 / 10

func measureRenewals(ctx context.Context, n int) error {
	for _, c := range []struct {
		what             string
		autovacuum, idle bool
		n                int
	}{{"autovacuum on", true, false, n}, {"autovacuum off", false, false, n},
		{"autovacuum on, an hour of TTLs of 10 s, beside an idle transaction", true, true, min(n, hourly)},
		{"the same without such a transaction", true, false, min(n, hourly)}} {
		r, err := renewMany(ctx, c.n, c.autovacuum, c.idle)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		fmt.Printf("%s: %v\n", c.what, r)
	}
	return nil
}
