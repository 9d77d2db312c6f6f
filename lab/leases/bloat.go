//go:build linux

package leases

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// sizeOurs is how large the tables of leases are, with indexes.
const sizeOurs = `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
	WHERE c.relnamespace = '` + postgres.DefaultSchema + `'::regnamespace AND c.relkind = 'r'`

// manySessions are renewed in one request each third of the TTL: as many as 100 000 names have.
const manySessions = 100

// openSessions opens many sessions.
func openSessions(ctx context.Context, db store.Store) (all []store.Session) {
	for i := range manySessions {
		s := store.Session{ID: store.SessionID(rand.Int64()>>1 + 1), TTL: time.Hour, Owner: lease.Owner{ID: "n", Incarnation: fmt.Sprint("n-", i)}}
		scene.Must(db.OpenSession(ctx, s))
		all = append(all, s)
	}
	return all
}

// renewAll renews them in one request.
func renewAll(ctx context.Context, store store.Store, all []store.Session) {
	for _, g := range scene.Must(store.Renew(ctx, all)) {
		scene.Check(g.Err)
	}
}

// bloat renews many sessions a million times, and says what that makes of the tables: with autovacuum
// and without, and beside a transaction that is idle, where no dead row is reused. Renewals are
// updates within their page.
func bloat(ctx context.Context, run *scene.Run) {
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
		grow(ctx, run, c.what, c.vacuum, c.idle, c.n)
	}
}

func grow(ctx context.Context, run *scene.Run, what string, vacuum, idle bool, n int) {
	b := newBed(ctx, run, onPostgres, time.Minute, postgrestest.WithSetting("autovacuum", fmt.Sprint(vacuum)),
		postgrestest.WithSetting("autovacuum_naptime", "1s"))
	defer b.close()
	node := b.newNode(ctx, "renewing")
	all := openSessions(ctx, node.store)
	for i, s := range all {
		scene.Must(node.store.Acquire(ctx, s, []store.Claim{{Name: fmt.Sprint("name/", i), Nonce: uint64(i + 1)}}))
	}
	var before, after, dead, updates, hot int64
	b.count(ctx, sizeOurs, &before)
	if idle {
		defer hangUp(b.idle(ctx, ""))
	}
	began, renewed := time.Now(), 0
	for renewed < n {
		renewAll(ctx, node.store, all)
		renewed += len(all)
	}
	took := time.Since(began)
	scene.Check(node.close()) // connections tell of their statistics when they end
	await(ctx, 0, 10*time.Second, "the server counts all updates", func() bool {
		b.count(ctx, "SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'", &dead, &updates, &hot)
		return updates >= int64(renewed)
	})
	b.count(ctx, sizeOurs, &after)
	run.Figure(what, "%d renewals in %v (%.0f/s): the tables grew from %d KiB to %d KiB, %d dead rows; %.1f %% of %d updates were HOT", renewed,
		took.Round(time.Second), float64(renewed)/took.Seconds(), before>>10, after>>10, dead, 100*float64(hot)/float64(max(updates, 1)), updates)
	if !idle {
		run.AtMost("growth by renewals, "+what, float64((after-before)>>10), 4<<10, " KiB")
	}
	if !idle && !vacuum { // a vacuum may hold a page
		run.AtMost("updates out of their page, "+what, float64(updates-hot), float64(updates)/100, "")
	}
}

// idle begins a transaction of another client, which takes a snapshot, writes, runs the statements of
// then, and stays open.
func (b *bed) idle(ctx context.Context, then string) *pgx.Conn {
	return b.opened(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE others (n int); SELECT txid_current();"+then)
}

// sections is how many parts the time has for which a transaction is idle, each with figures of its own.
const sections = 6

// besideIdle makes calls at a modest rate for all of the time for which another client's transaction is
// idle, which may hold up none of them.
func besideIdle(ctx context.Context, run *scene.Run) {
	lasts, each := 10*time.Minute, time.Second
	if run.Short {
		lasts, each = 3*time.Second, 100*time.Millisecond
	}
	beside(ctx, run, cmp.Or(run.For, lasts), each, sizesOf(run).patience, "")
}

// beside takes a turn so often, and renews many sessions in one request, beside a transaction that is
// idle for so long, and did something before. No call may take longer than patience.
func beside(ctx context.Context, run *scene.Run, lasts, each, patience time.Duration, before string) {
	p := sizesOf(run)
	p.patience = patience
	b, of := compared(ctx, run, onPostgres, p.ttl)
	defer b.close()
	n := b.newNode(ctx, "steady")
	all := openSessions(ctx, n.store)
	term := scene.Must(scene.Must(n.keeper.Lease("held")).AcquireTerm(ctx))
	t := newTurns(ctx, b, p, of)
	section := func() {
		t.acquired, t.renewed, t.told = map[string][]time.Duration{}, map[string][]time.Duration{}, nil
		for next, until := time.Now(), time.Now().Add(lasts/sections); next.Before(until); next = next.Add(each) {
			scene.Check(lab.Pause(ctx, time.Until(next)))
			took := t.timed(ctx, "renew all sessions", func(ctx context.Context) { renewAll(ctx, n.store, all) })
			t.renewed["100 sessions"] = append(t.renewed["100 sessions"], took)
			t.turn(ctx)
		}
		t.print(run)
		run.Spread("renew, 100 sessions", t.renewed["100 sessions"])
		if !term.CheckAlive() {
			scene.Check(fmt.Errorf("what was held all the time was lost: %w", context.Cause(term.Context())))
		}
		var size, dead int64
		b.count(ctx, sizeOurs, &size)
		b.count(ctx, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'session'", &dead)
		run.Figure("dead rows of sessions, tables", "%d, %d KiB", dead, size>>10)
	}
	run.Printf("before there is an idle transaction")
	section()
	old := b.idle(ctx, before)
	defer hangUp(old)
	for i := range sections {
		run.Printf("idle for %v", (lasts * time.Duration(i+1) / sections).Round(time.Second))
		scene.Check(scene.Try(section), "beside an idle transaction")
	}
	var idle float64
	b.count(ctx, fmt.Sprintf(`SELECT coalesce(max(extract(epoch FROM clock_timestamp() - greatest(xact_start, state_change))), 0)::float8
		FROM pg_stat_activity WHERE pid = %d AND state = 'idle in transaction'`, old.PgConn().PID()), &idle)
	if idle < lasts.Seconds() {
		scene.Check(fmt.Errorf("the transaction that was to be idle for %v is so for %.0f s", lasts, idle))
	}
}
