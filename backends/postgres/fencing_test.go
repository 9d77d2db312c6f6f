//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// tally is data that holders of leases change by reading, thinking and writing: an account for
// each lease, with the token that wrote last, and a journal of who wrote.
type tally struct {
	t     *testing.T
	store *postgres.Store
	pool  *pgxpool.Pool
	db    *sql.DB
	guard bool

	writes, fenced, stale atomic.Int64
}

func newTally(t *testing.T, guard bool) *tally {
	t.Helper()
	p := server(t).Pool(t, func(c *pgxpool.Config) { c.MaxConns = 24 })
	handle := must(sql.Open("pgx", server(t).URL()))(t)
	handle.SetMaxOpenConns(12)
	handle.SetMaxIdleConns(12)
	t.Cleanup(func() { require.NoError(t, handle.Close()) })
	y := &tally{t: t, store: fresh(t, p), pool: p, db: handle, guard: guard}
	y.exec("CREATE TABLE " + y.table("account") + " (name text PRIMARY KEY, n bigint NOT NULL, token bigint NOT NULL)")
	y.exec("CREATE TABLE " + y.table("journal") + " (id bigserial PRIMARY KEY, name text, token bigint, before bigint)")
	return y
}

func (y *tally) table(name string) string { return y.store.SchemaName() + "_" + name }

func (y *tally) exec(q string, args ...any) {
	y.t.Helper()
	_, err := y.pool.Exec(y.t.Context(), q, args...)
	require.NoError(y.t, err)
}

// think is the time that a transaction takes between its read and its write.
func think() { time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond) }

// write is one transaction of a holder, by pgx: the balance is read, and written by that.
func (y *tally) write(ctx context.Context, o lease.Ownership) error {
	return pgx.BeginFunc(ctx, y.pool, func(tx pgx.Tx) error {
		if y.guard {
			if err := y.store.Guard(ctx, tx, o); err != nil {
				return err
			}
		}
		var n int64
		if err := tx.QueryRow(ctx, "SELECT n FROM "+y.table("account")+" WHERE name = $1", o.Name()).Scan(&n); err != nil {
			return err
		}
		think()
		if _, err := tx.Exec(ctx, "INSERT INTO "+y.table("journal")+" (name, token, before) VALUES ($1, $2, $3)", o.Name(), int64(o.Token()), n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE "+y.table("account")+" SET n = $2, token = $3 WHERE name = $1", o.Name(), n+1, int64(o.Token()))
		return err
	})
}

// writeDB is write by database/sql.
func (y *tally) writeDB(ctx context.Context, o lease.Ownership) (err error) {
	tx, err := y.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if y.guard {
		if err := y.store.GuardTx(ctx, tx, o); err != nil {
			return err
		}
	}
	var n int64
	if err := tx.QueryRowContext(ctx, "SELECT n FROM "+y.table("account")+" WHERE name = $1", o.Name()).Scan(&n); err != nil {
		return err
	}
	think()
	if _, err := tx.ExecContext(ctx, "INSERT INTO "+y.table("journal")+" (name, token, before) VALUES ($1, $2, $3)", o.Name(), int64(o.Token()), n); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+y.table("account")+" SET n = $2, token = $3 WHERE name = $1", o.Name(), n+1, int64(o.Token())); err != nil {
		return err
	}
	return tx.Commit()
}

// takeOvers has each of several names pass from holder to holder at random moments. A former
// holder writes on, as one does that has not heard of it, for a few transactions.
func (y *tally) takeOvers(names, each int) {
	y.t.Helper()
	var wg sync.WaitGroup
	for i := range names {
		name := string(rune('a' + i))
		y.exec("INSERT INTO "+y.table("account")+" VALUES ($1, 0, 0)", name)
		wg.Go(func() {
			var holders sync.WaitGroup
			defer holders.Wait()
			for range each {
				ctx := context.Background()
				x := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting, Owner: store.Owner{ID: "holder", Incarnation: string(rune('A'+i)) + time.Now().String()}}
				_, err := y.store.OpenSession(ctx, x)
				if !y.check(err) {
					return
				}
				var r store.Record
				for r.Token == 0 {
					outs, err := y.store.Acquire(ctx, x, []store.Claim{claim(name)})
					if !y.check(err) || !y.check(outs[0].Err) {
						return
					}
					if outs[0].OK {
						r = outs[0].Record
					}
				}
				over := make(chan struct{})
				holders.Go(func() { y.holder(own(r), over) })
				time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond)
				// It ends by another client's hand: the holder is not told. What it guards at this
				// moment is waited for.
				for {
					err := y.store.CloseSession(ctx, x)
					if err == nil {
						break
					}
					if !errors.Is(err, postgres.ErrGuarded) && !y.check(err) {
						return
					}
				}
				close(over)
			}
		})
	}
	wg.Wait()
}

func (y *tally) check(err error) bool {
	if err != nil {
		y.t.Errorf("%v", err)
	}
	return err == nil
}

// holder writes until a while after its lease ended.
func (y *tally) holder(o owned, over chan struct{}) {
	for late := 0; late < 2; {
		select {
		case <-over:
			late++
		default:
		}
		write := y.write
		if rand.IntN(2) == 0 {
			write = y.writeDB
		}
		err := write(context.Background(), o)
		switch {
		case errors.Is(err, postgres.ErrFenced):
			y.fenced.Add(1)
		case y.check(err):
			y.writes.Add(1)
			if late > 0 {
				y.stale.Add(1)
			}
		}
	}
}

// judge counts, from the database, the writes under a token that came behind a later one's, and
// the updates that are lost: two writes of one name that read the same balance.
func (y *tally) judge() (stale, lost int64) {
	y.t.Helper()
	scan := func(q string, to *int64) { require.NoError(y.t, y.pool.QueryRow(y.t.Context(), q).Scan(to)) }
	scan("SELECT count(*) FROM "+y.table("journal")+" j WHERE EXISTS (SELECT FROM "+y.table("journal")+" x WHERE x.name = j.name AND x.id < j.id AND x.token > j.token)", &stale)
	scan("SELECT coalesce(sum(k - 1), 0) FROM (SELECT count(*) AS k FROM "+y.table("journal")+" GROUP BY name, before) x", &lost)
	return stale, lost
}

// TestGuardAgainstTakeOvers: of 2000 take-overs (200 in the commit tier) at random moments amid slow transactions of the
// holder, through pgx and database/sql, none lets a stale write or a lost update through.
func TestGuardAgainstTakeOvers(t *testing.T) {
	t.Parallel()
	names, each := 8, tier.Draws(25, 250)
	y := newTally(t, true)
	y.takeOvers(names, each)
	stale, lost := y.judge()
	t.Logf("%d take-overs, %d writes, %d refused by Guard: %d stale, %d lost", names*each, y.writes.Load(), y.fenced.Load(), stale, lost)
	if late := y.stale.Load(); stale+lost > 0 || late > 0 {
		tier.Unsafe(t, "%d writes of a holder behind those of its successor, %d updates overwritten unseen, "+
			"%d transactions committed though the lease had ended before they began", stale, lost, late)
	}
	require.NotZero(t, y.writes.Load())
	require.NotZero(t, y.fenced.Load(), "no former holder tried: the test shows nothing")
}

// TestWithoutGuard: the same without Guard has stale writes and lost updates, so the test before
// this one would see them.
func TestWithoutGuard(t *testing.T) {
	t.Parallel()
	y := newTally(t, false)
	y.takeOvers(8, 25)
	stale, lost := y.judge()
	t.Logf("200 take-overs without Guard, %d writes: %d stale, %d lost", y.writes.Load(), stale, lost)
	require.NotZero(t, stale)
	require.NotZero(t, lost)
}
