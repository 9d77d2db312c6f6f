//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

// backlog makes sessions that have run out, each with some names, as a program leaves them behind that
// was killed, or that gives nothing back.
func backlog(t *testing.T, p *pgxpool.Pool, s *postgres.Store, sessions, names int) {
	t.Helper()
	for _, q := range []string{
		fmt.Sprintf("INSERT INTO %s.session SELECT i + 1000000, 'dead', 'dead', '', 1000, clock_timestamp() - interval '1 hour' "+
			"FROM generate_series(1, %d) i", s.SchemaName(), sessions),
		fmt.Sprintf("INSERT INTO %s.lease (name, session, rev, nonce) SELECT 'dead/' || i || '/' || n, i + 1000000, i, i "+
			"FROM generate_series(1, %d) i, generate_series(1, %d) n", s.SchemaName(), sessions, names),
	} {
		must(p.Exec(t.Context(), q))(t)
	}
}

// number is what a query about the schema counts.
func number(t *testing.T, p *pgxpool.Pool, s *postgres.Store, query string) (n int) {
	t.Helper()
	require.NoError(t, p.QueryRow(t.Context(), fmt.Sprintf(query, s.SchemaName())).Scan(&n))
	return n
}

const (
	sessions = "SELECT count(*) FROM %s.session"
	standing = "SELECT count(*) FROM %s.lease WHERE session IS NOT NULL"
)

// TestSweepIsBounded: a sweep removes at most as many sessions and names as its limit says, however many
// have run out, and tells that there are more.
func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	p := pool(t)
	for _, of := range []struct{ sessions, names, sweeps int }{{250, 1, 3}, {250, 0, 3}, {1, 250, 3}} {
		s := fresh(t, p)
		backlog(t, p, s, of.sessions, of.names)
		open := session(t, s, "a")
		for n := 1; ; n++ {
			ended, stood := number(t, p, s, "SELECT count(*) FROM %s.session WHERE ends <= clock_timestamp() AND ends > '-infinity'"),
				number(t, p, s, standing)
			var freed int
			var next *int64
			var more bool
			require.NoError(t, p.QueryRow(t.Context(), "SELECT freed, next_ms, more FROM "+s.SchemaName()+".sweep(100)").Scan(&freed, &next, &more))
			if n > of.sweeps {
				require.False(t, more)
				require.NotNil(t, next, "when %d runs out", open.ID)
				break
			}
			require.Positive(t, freed, "%+v", of)
			require.LessOrEqual(t, ended-number(t, p, s, "SELECT count(*) FROM %s.session WHERE ends <= clock_timestamp() AND ends > '-infinity'"), 100)
			require.LessOrEqual(t, stood-number(t, p, s, standing), 100)
			require.Equal(t, n < of.sweeps, more, "%+v, sweep %d", of, n)
		}
		require.Equal(t, 1, number(t, p, s, sessions), "%+v", of)
		require.Zero(t, number(t, p, s, standing), "%+v", of)
	}
}

// TestAWatchBeginsBesideABacklog: a watch that begins removes nothing, so a large backlog of records that
// ran out does not delay it. It hears of their deletions later.
func TestAWatchBeginsBesideABacklog(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	for _, q := range []string{ // not by the Store, which sweeps after its changes
		"INSERT INTO %s.session VALUES (1, 'a', 'a', '', 3600000, clock_timestamp() + interval '1 hour')",
		"INSERT INTO %s.lease (name, session, rev, nonce) VALUES ('job', 1, 1, 1)",
	} {
		must(p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName())))(t)
	}
	backlog(t, p, s, 3000, 2)
	require.Equal(t, 1, number(t, p, s, "SELECT count(*) FROM %s.watch_snapshot('job', true, 1000000)"))
	require.Equal(t, 3001, number(t, p, s, sessions+" WHERE ends > '-infinity'"))

	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	stand, synced := map[string]bool{}, false
	for ev, err := range s.Watch(ctx, store.Scope{}) {
		require.NoError(t, err)
		switch ev.Kind {
		case store.EventPut:
			stand[ev.Record.Name] = true
		case store.EventDelete:
			delete(stand, ev.Record.Name)
		case store.EventSynced:
			synced = true
		}
		if synced && len(stand) <= 1 {
			break
		}
	}
	require.Equal(t, map[string]bool{"job": true}, stand)
}

// TestWhoOnlyAcquiresKeepsHouse: rows don't stay for ever where no Store watches, as where leases are
// taken by lease/provider alone, and run out.
func TestWhoOnlyAcquiresKeepsHouse(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	for i := range 30 {
		x := session(t, s, "a")
		win(t, s, x, fmt.Sprintf("once/%d", i))
		lasts(t, p, s, x, 0)
	}
	for _, q := range []string{
		"UPDATE %s.state SET purged = '-infinity'",
		"UPDATE %s.change SET at = at - interval '11 min'",
		"INSERT INTO %s.lease (name, since) SELECT 'free/' || i, clock_timestamp() - interval '2 h' FROM generate_series(1, 30) i",
	} {
		must(p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName())))(t)
	}
	p.Reset()
	s = again(t, p, s) // as another process
	x := session(t, s, "b")
	eventually(t, "what ran out is gone, and what is old", func() bool {
		r := win(t, s, x, "job")
		out := must(s.Release(t.Context(), []store.Held{r.Held()}))(t)
		require.True(t, out[0].OK)
		return number(t, p, s, sessions) == 1 && number(t, p, s, standing) == 0 &&
			number(t, p, s, "SELECT count(*) FROM %s.lease WHERE name LIKE 'free/%%'") == 0 &&
			number(t, p, s, "SELECT count(*) FROM %s.change WHERE at < clock_timestamp() - interval '10 min'") == 0
	})
}

// TestAWatchThatBeginsBesideAWriter: it asks less and less often whether a writer has ended that is
// under way for long, as one whose commit waits for a standby.
func TestAWatchThatBeginsBesideAWriter(t *testing.T) {
	t.Parallel()
	p, asked := counted(t)
	s := fresh(t, p)
	works(t, s)
	tx := must(pool(t).Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	must(tx.Exec(t.Context(), "SELECT "+s.SchemaName()+".enter()"))(t) // as each writer does
	synced := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	go func() {
		defer close(synced)
		for ev, err := range s.Watch(ctx, store.Scope{}) {
			if err != nil || ev.Kind == store.EventSynced {
				return
			}
		}
	}()
	defer func() { cancel(); <-synced }()
	const fewest = 12
	eventually(t, "it asks again and again", func() bool { return asked.of("watch_begin") >= fewest })
	require.Greater(t, time.Since(began), time.Second, "%d requests", fewest) // 2+4+…+128, then 250 ms each
	require.NoError(t, tx.Rollback(t.Context()))
	select {
	case <-synced:
	case <-time.After(soon):
		t.Fatal("it does not begin when the writer has ended")
	}
}
