//go:build linux

package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// sizeOurs is how large the tables of a schema are, with indexes.
const sizeOurs = `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
	WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r'`

// manySessions are renewed in one request each third of the TTL: as many as 100 000 names have.
const manySessions = 100

// openSessions opens many sessions.
func openSessions(ctx context.Context, store lease.Store) (all []lease.Session, err error) {
	for i := range manySessions {
		s := lease.Session{ID: lease.SessionID(rand.Int64()>>1 + 1), TTL: time.Hour, Owner: lease.Owner{ID: "n", Incarnation: fmt.Sprint("n-", i)}}
		if _, err := store.OpenSession(ctx, s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// renewAll renews them in one request.
func renewAll(ctx context.Context, store lease.Store, all []lease.Session) error {
	grants, err := store.Renew(ctx, all)
	for _, g := range grants {
		err = errors.Join(err, g.Err)
	}
	return err
}

// bloat renews many sessions a million times, and says what that makes of the tables: with autovacuum
// and without, and beside a transaction that is idle, where no dead row is reused. Renewals are
// updates within their page.
func bloat(ctx context.Context, run *scene.Run) error {
	n, hourly := 1_000_000, manySessions*3600*3/10 // with a TTL of 10 s
	if run.Short {
		n, hourly = 20_000, 2000
	}
	for _, c := range []struct {
		what         string
		vacuum, idle bool
		n            int
	}{{"autovacuum on", true, false, n}, {"autovacuum off", false, false, n},
		{"an hour of TTLs of 10 s, beside an idle transaction", true, true, min(n, hourly)},
		{"the same without such a transaction", true, false, min(n, hourly)}} {
		if err := grow(ctx, run, c.what, c.vacuum, c.idle, c.n); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

func grow(ctx context.Context, run *scene.Run, what string, vacuum, idle bool, n int) (err error) {
	b, err := newBed(ctx, onPostgres, time.Minute, postgrestest.WithSetting("autovacuum", fmt.Sprint(vacuum)),
		postgrestest.WithSetting("autovacuum_naptime", "1s"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	store, closeStore, err := open.Open(ctx, b.address())
	if err != nil {
		return err
	}
	closeStore = sync.OnceValue(closeStore)
	defer func() { err = errors.Join(err, closeStore()) }()
	all, err := openSessions(ctx, store)
	if err != nil {
		return err
	}
	for i, s := range all {
		if _, err := store.Acquire(ctx, s, []lease.Claim{{Name: fmt.Sprint("name/", i), Nonce: uint64(i + 1)}}); err != nil {
			return err
		}
	}
	admin, err := b.server.Conn(ctx)
	if err != nil {
		return err
	}
	defer hangUp(admin)
	var before, after, dead, updates, hot int64
	if err := admin.QueryRow(ctx, sizeOurs, postgres.DefaultSchema).Scan(&before); err != nil {
		return err
	}
	if idle {
		old, err := b.idle(ctx, "")
		if err != nil {
			return err
		}
		defer hangUp(old)
	}
	began, renewed := time.Now(), 0
	for renewed < n {
		if err := renewAll(ctx, store, all); err != nil {
			return err
		}
		renewed += len(all)
	}
	took := time.Since(began)
	if err := closeStore(); err != nil { // its connections tell of their statistics when they end
		return err
	}
	_, err = await(ctx, 0, 10*time.Second, "the server counts all updates", func() bool {
		return admin.QueryRow(ctx, "SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'").
			Scan(&dead, &updates, &hot) == nil && updates >= int64(renewed)
	})
	if err = errors.Join(err, admin.QueryRow(ctx, sizeOurs, postgres.DefaultSchema).Scan(&after)); err != nil {
		return err
	}
	run.Figure(what, "%d renewals in %v (%.0f/s): the tables grew from %d KiB to %d KiB, %d dead rows; %.1f %% of %d updates were HOT", renewed,
		took.Round(time.Second), float64(renewed)/took.Seconds(), before>>10, after>>10, dead, 100*float64(hot)/float64(max(updates, 1)), updates)
	if !idle {
		run.AtMost("growth by renewals, "+what, float64((after-before)>>10), 4<<10, " KiB")
	}
	if !idle && !vacuum { // a vacuum may hold a page
		run.AtMost("updates out of their page, "+what, float64(updates-hot), float64(updates)/100, "")
	}
	return nil
}

// idle begins another client's transaction, which has a snapshot and a write, does what else is asked
// for, and then nothing.
func (b *bed) idle(ctx context.Context, then string) (*pgx.Conn, error) {
	conn, err := b.server.Conn(ctx)
	if err != nil {
		return nil, err
	}
	sql := "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE others (n int); SELECT txid_current();" + then
	if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// sections is how many parts the time has for which a transaction is idle, each with figures of its own.
const sections = 12

// besideIdle makes calls at a modest rate for all of the time for which another client's transaction is
// idle, which may hold up none of them.
func besideIdle(ctx context.Context, run *scene.Run) error {
	lasts, each := 10*time.Minute, time.Second
	if run.Short {
		lasts, each = 3*time.Second, 100*time.Millisecond
	}
	return beside(ctx, run, cmp.Or(run.For, lasts), each, sizesOf(run).patience, "")
}

// beside takes a turn so often beside a transaction that is idle for so long, and did something before.
func beside(ctx context.Context, run *scene.Run, lasts, each, patience time.Duration, before string) (err error) {
	p := sizesOf(run)
	p.patience = patience
	b, of, err := compared(ctx, onPostgres, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	n, err := b.newNode(ctx, "steady", nil)
	if err != nil {
		return err
	}
	store := n.store
	all, err := openSessions(ctx, store)
	if err != nil {
		return err
	}
	h, err := n.keeper.Lease("held")
	if err != nil {
		return err
	}
	term, err := h.AcquireTerm(ctx)
	if err != nil {
		return err
	}
	admin, err := b.server.Conn(ctx)
	if err != nil {
		return err
	}
	defer hangUp(admin)
	renewals := 0
	section := func(of holding, lasts time.Duration) (longest time.Duration, err error) {
		t, err := newTurns(ctx, p, of)
		if err != nil {
			return 0, err
		}
		defer t.close()
		until := time.Now().Add(lasts)
		var many []time.Duration
		var failed error
		var renewing sync.WaitGroup
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		renewing.Go(func() {
			for failed == nil && ctx.Err() == nil && time.Now().Before(until) {
				d, err := t.timed(ctx, "renew all sessions", func(ctx context.Context) error { return renewAll(ctx, store, all) })
				if many = append(many, d); err != nil && ctx.Err() == nil {
					failed = err
				}
				_ = lab.Pause(ctx, min(p.ttl/3, lasts/4))
			}
		})
		for next := time.Now(); err == nil && next.Before(until); next = next.Add(each) {
			if err = lab.Pause(ctx, time.Until(next)); err == nil {
				err = t.turn(ctx)
			}
		}
		if err != nil {
			cancel()
		}
		renewing.Wait()
		if err = errors.Join(err, failed); err != nil {
			return 0, err
		}
		renewals += len(all) * len(many)
		if !term.CheckAlive() {
			return 0, fmt.Errorf("what was held all the time was lost: %w", context.Cause(term.Context()))
		}
		var size, dead int64
		err = admin.QueryRow(ctx, sizeOurs, postgres.DefaultSchema).Scan(&size)
		if err == nil {
			err = admin.QueryRow(ctx, "SELECT coalesce(max(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'session'",
				postgres.DefaultSchema).Scan(&dead)
		}
		for _, x := range []struct {
			what string
			took []time.Duration
		}{{"acquire", t.acquired[holdfast]}, {"renew", t.renewed[holdfast]}, {"a watch is told", t.told},
			{"renew 100 sessions", many}, {"acquire, advisory lock", t.acquired[advisory]}} {
			run.Spread("   "+x.what, x.took)
		}
		run.Figure("   rows renewed, dead rows, tables", "%d, %d, %d KiB", renewals, dead, size>>10)
		return max(t.longest(), scene.Percentile(many, 100)), err
	}
	run.Printf("before there is an idle transaction")
	longest, err := section(of, lasts/sections)
	if err != nil {
		return err
	}
	old, err := b.idle(ctx, before)
	if err != nil {
		return err
	}
	defer hangUp(old)
	renewals = 0
	for i := range sections {
		run.Printf("idle for %v", (lasts * time.Duration(i+1) / sections).Round(time.Second))
		took, err := section(of, lasts/sections)
		if err != nil {
			return fmt.Errorf("beside an idle transaction: %w", err)
		}
		longest = max(longest, took)
	}
	var state string
	var idle float64
	err = admin.QueryRow(ctx, `SELECT coalesce(state, 'gone'), extract(epoch FROM
		clock_timestamp() - greatest(xact_start, state_change))::float8 FROM pg_stat_activity WHERE pid = $1`, old.PgConn().PID()).Scan(&state, &idle)
	if err != nil {
		return err
	}
	if state != "idle in transaction" || idle < lasts.Seconds() {
		return fmt.Errorf("the transaction that was to be idle for %v is %q, for %.0f s", lasts, state, idle)
	}
	run.AtMost("longest call of ours", longest.Seconds(), p.patience.Seconds(), " s")
	return nil
}
