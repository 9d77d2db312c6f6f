//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

// watched collects what a watch tells.
type watched struct {
	mu     sync.Mutex
	events []store.Event
	err    error
	ended  chan struct{}
}

func watch(t *testing.T, s *postgres.Store, prefix string) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for ev, err := range s.Watch(ctx, store.Scope{Prefix: prefix}) {
			w.mu.Lock()
			if err != nil {
				w.err = err
			} else {
				w.events = append(w.events, ev)
			}
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-w.ended })
	w.sees(t, store.EventSynced, "")
	return w
}

// has tells how often an event came.
func (w *watched) has(kind store.EventKind, name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range w.events {
		if ev.Kind == kind && ev.Record.Name == name {
			n++
		}
	}
	return n
}

func (w *watched) sees(t *testing.T, kind store.EventKind, name string) {
	t.Helper()
	eventually(t, name, func() bool { return w.has(kind, name) > 0 })
}

// acquiring is the SQL of a claim, in a transaction of a user.
func acquiring(t *testing.T, s *postgres.Store, x store.Session, name string) pgx.Tx {
	t.Helper()
	tx := must(pool(t).Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	var answer string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT answer FROM "+s.SchemaName()+".acquire($1, $2, ARRAY[$3]::text[], ARRAY[$4]::bigint[], '{0}', '{NULL}', '{NULL}', '{0}', '{0}', 0)",
		int64(x.ID), x.Owner.Incarnation, name, ids.Add(1)).Scan(&answer))
	require.Equal(t, "done", answer)
	return tx
}

// TestWatchPastWritersUnderWay: a writer whose commit comes late holds up no change of another, and
// is told of when it comes; one that is rolled back leaves nothing behind.
func TestWatchPastWritersUnderWay(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	a := session(t, s, "a")
	w := watch(t, s, "")
	late, undone := acquiring(t, s, a, "late"), acquiring(t, s, a, "undone")
	win(t, s, a, "other")
	w.sees(t, store.EventPut, "other")
	require.Zero(t, w.has(store.EventPut, "late"))
	time.Sleep(600 * time.Millisecond) // looks that find it missing
	require.NoError(t, undone.Rollback(t.Context()))
	win(t, s, a, "more")
	w.sees(t, store.EventPut, "more")
	time.Sleep(600 * time.Millisecond)
	require.NoError(t, late.Commit(t.Context()))
	w.sees(t, store.EventPut, "late")
	require.Zero(t, w.has(store.EventPut, "undone"))
	time.Sleep(600 * time.Millisecond)
	for _, name := range []string{"other", "more", "late"} {
		require.Equal(t, 1, w.has(store.EventPut, name), name)
	}
}

// TestWatchThatBeginsAmidWriters: what was under way when it began is told once, as part of the
// snapshot or after it.
func TestWatchThatBeginsAmidWriters(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	win(t, s, a, "stands")
	tx := acquiring(t, s, a, "under-way")
	first := make(chan *watched)
	go func() { first <- watch(t, s, "") }() // waits for the writer
	time.Sleep(300 * time.Millisecond)
	win(t, s, a, "meanwhile")
	require.NoError(t, tx.Commit(t.Context()))
	w := <-first
	tx = acquiring(t, s, a, "again-under-way")
	second := watch(t, s, "") // another watch of the Store: it waits for nobody
	require.NoError(t, tx.Commit(t.Context()))
	for _, x := range []*watched{w, second} {
		for _, name := range []string{"stands", "under-way", "meanwhile", "again-under-way"} {
			x.sees(t, store.EventPut, name)
		}
		time.Sleep(300 * time.Millisecond)
		for _, name := range []string{"stands", "under-way", "meanwhile", "again-under-way"} {
			require.Equal(t, 1, x.has(store.EventPut, name), name)
		}
	}
}

// TestIdleTransactionOfAnother holds up nothing: neither requests nor watches, nor the end of what
// runs out.
func TestIdleTransactionOfAnother(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	// It has a snapshot, has written, and has read every table of the schema.
	idle := must(p.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = idle.Rollback(context.Background()) }()
	for _, q := range []string{"CREATE TEMPORARY TABLE x ()", "SELECT * FROM %s.lease", "SELECT * FROM %s.session", "SELECT * FROM %s.change", "SELECT * FROM %s.state"} {
		must(idle.Exec(t.Context(), strings.ReplaceAll(q, "%s", s.SchemaName())))(t)
	}
	other := again(t, p, s)
	w := watch(t, other, "")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	a, b := session(t, s, "a"), session(t, s, "b")
	win(t, s, a, "brief")
	r := win(t, s, b, "job")
	must(s.Renew(ctx, []store.Session{b}))(t)
	outs := must(s.Release(ctx, []store.Held{r.Held()}))(t)
	require.True(t, outs[0].OK)
	lasts(t, p, s, a, 100*time.Millisecond)
	w.sees(t, store.EventDelete, "job")
	w.sees(t, store.EventDelete, "brief")
	win(t, s, b, "brief")
}

// TestListener: with one, changes of another process are told at once, and again after the
// connection was lost; one that fails, panics or hangs costs the time to the next look.
func TestListener(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p, postgres.WithPoll(time.Minute))
	conns := make(chan *pgx.Conn, 10)
	url := server(t).URL()
	listening := again(t, p, s, postgres.WithPoll(time.Minute), postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) {
		c, err := pgx.Connect(ctx, url)
		conns <- c
		return c, err
	}))
	w := watch(t, listening, "")
	c := <-conns
	eventually(t, "it listens", func() bool {
		var is bool
		require.NoError(t, p.QueryRow(t.Context(), "SELECT query LIKE 'LISTEN%' AND state = 'idle' FROM pg_stat_activity WHERE pid = $1",
			c.PgConn().PID()).Scan(&is))
		return is
	})
	a := session(t, s, "a")
	win(t, s, a, "one")
	w.sees(t, store.EventPut, "one")
	must(p.Exec(t.Context(), "SELECT pg_terminate_backend($1)", c.PgConn().PID()))(t)

	for _, bad := range []func(context.Context) (*pgx.Conn, error){
		func(context.Context) (*pgx.Conn, error) { return nil, errors.New("no") },
		func(context.Context) (*pgx.Conn, error) { return nil, nil },
		func(context.Context) (*pgx.Conn, error) { panic("a user's bug") },
		func(ctx context.Context) (*pgx.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		x := again(t, p, s, postgres.WithListener(bad), postgres.WithLogger(zap.NewNop()))
		w := watch(t, x, "")
		name := fmt.Sprintf("bad/%d", ids.Add(1))
		win(t, s, a, name)
		w.sees(t, store.EventPut, name)
	}
}

// TestWatchThatFellBehind: a watch ends, and says so, if the log has not what it needs.
func TestWatchThatFellBehind(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	for range 10 { // so that the log can go back
		win(t, s, a, fmt.Sprintf("many/%d", ids.Add(1)))
	}
	for what, q := range map[string]string{
		"trimmed":   "UPDATE %[1]s.state SET trimmed = (SELECT last_value + 1 FROM %[1]s.change_seq)",
		"went back": "SELECT setval('%[1]s.change_seq', 1)",
	} {
		w := watch(t, again(t, p, s), "")
		must(p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName())))(t)
		<-w.ended
		require.ErrorIs(t, w.err, postgres.ErrWatchLost, what)
		_, err := p.Exec(t.Context(), fmt.Sprintf("UPDATE %s.state SET trimmed = 0", s.SchemaName()))
		require.NoError(t, err)
	}
}

// TestPurge removes what is old, and tokens go on above what was removed, whatever the clock says.
func TestPurge(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	kept, old := win(t, s, a, "kept"), win(t, s, a, "old")
	must(s.Release(t.Context(), []store.Held{old.Held()}))(t)
	var n int
	one := func(q string) int {
		require.NoError(t, p.QueryRow(t.Context(), fmt.Sprintf(q, s.SchemaName())).Scan(&n))
		return n
	}
	require.Zero(t, one("SELECT %s.purge(100)"), "nothing is old")
	tx := must(p.Begin(t.Context()))(t) // or the Store itself might purge first
	_, err := tx.Exec(t.Context(), fmt.Sprintf("UPDATE %[1]s.state SET purged = '-infinity'; UPDATE %[1]s.change SET at = at - interval '11 min'; "+
		"UPDATE %[1]s.lease SET since = since - interval '61 min', rev = rev + 1000000000000000", s.SchemaName()), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(t.Context(), fmt.Sprintf("SELECT %s.purge(100)", s.SchemaName())).Scan(&n))
	require.Equal(t, 4, n, "three changes and a name")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, one("SELECT count(*) FROM %s.lease"))
	recs := must(s.Get(t.Context(), "kept"))(t)
	require.Equal(t, kept.Nonce, recs[0].Nonce, "what is held stays")
	require.Zero(t, one("SELECT %s.purge(100)"), "once a minute")
	next := win(t, s, a, "old")
	require.Greater(t, next.Token, old.Token+1_000_000_000_000_000, "by the revision of the row that was removed")
}

// TestWatchMissesWhatWasRemoved: a change that a watch misses, of a writer under way, may come and
// be removed from the log while the watch can't look. It ends then.
func TestWatchMissesWhatWasRemoved(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	w := watch(t, again(t, p, s), "")
	late := acquiring(t, s, a, "late")
	win(t, s, a, "other")
	w.sees(t, store.EventPut, "other") // behind the one that is missing
	// As it is for a process that stood still for ten minutes.
	_, err := late.Exec(t.Context(), fmt.Sprintf("WITH gone AS (DELETE FROM %[1]s.change WHERE name = 'late' RETURNING seq) "+
		"UPDATE %[1]s.state SET trimmed = (SELECT seq FROM gone)", s.SchemaName()))
	require.NoError(t, err)
	require.NoError(t, late.Commit(t.Context()))
	select {
	case <-w.ended:
	case <-time.After(soon):
		t.Fatal("the watch goes on, with a gap")
	}
	require.ErrorIs(t, w.err, postgres.ErrWatchLost)
}

// TestWatchOfASchemaThatWasMadeAnew: its numbers are others, also where they are above those that
// were read.
func TestWatchOfASchemaThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	win(t, s, a, "stands")
	w := watch(t, again(t, p, s), "")
	_, err := p.Exec(t.Context(), fmt.Sprintf("BEGIN; DROP SCHEMA %[1]s CASCADE; %[2]s; SELECT setval('%[1]s.change_seq', 1000); COMMIT",
		s.SchemaName(), s.Schema()), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	select {
	case <-w.ended:
	case <-time.After(soon):
		t.Fatal("the watch goes on, on another log")
	}
	require.ErrorIs(t, w.err, postgres.ErrWatchLost)
}

// TestHistoryIsOfOneSystem: two database systems that were set up alike have all else of a history in
// common; a watch that is led from one to the other ends by that.
func TestHistoryIsOfOneSystem(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	var history, system, timeline, sequence string
	require.NoError(t, p.QueryRow(t.Context(), fmt.Sprintf(`SELECT h.history, c.system_identifier::text,
		lpad(to_hex(%[1]s.timeline()), 8, '0'), '%[1]s.change_seq'::regclass::oid::text
		FROM %[1]s.watch_begin() h, pg_control_system() c`, s.SchemaName())).Scan(&history, &system, &timeline, &sequence))
	require.Equal(t, []string{system, timeline, sequence}, strings.Split(history, "/"))

	w := watch(t, again(t, p, s), "")
	_, err := p.Exec(t.Context(), fmt.Sprintf("CREATE OR REPLACE FUNCTION %s.history() RETURNS text LANGUAGE sql AS $$ SELECT '%s1/%s/%s' $$",
		s.SchemaName(), system, timeline, sequence))
	require.NoError(t, err)
	select {
	case <-w.ended:
	case <-time.After(soon):
		t.Fatal("the watch goes on, in another system")
	}
	require.ErrorIs(t, w.err, postgres.ErrWatchLost)
}
