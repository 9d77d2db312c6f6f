//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/store"
)

// This file has transactions that stay open at the moment that counts, servers whose clock is not
// the client's, and databases with other defaults.

// opened begins a transaction that is rolled back with the test.
func opened(t *testing.T, p *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx := must(p.Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// TestARenewalUnderWayAtTheEnd: a session that runs out while its renewal is under way has been
// renewed. Nobody gets its names, is held up by it, or ends it, neither before the renewal is
// committed nor after.
func TestARenewalUnderWayAtTheEnd(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a, b := session(t, s, "a"), session(t, s, "b")
	r := win(t, s, a, "job")
	var tx pgx.Tx
	for left, ttl := 100*time.Millisecond, int64(0); ttl == 0; left *= 2 { // on a machine that is busy it takes more
		tx = opened(t, p)
		lasts(t, p, s, a, left)
		err := tx.QueryRow(t.Context(), "SELECT ttl FROM "+s.SchemaName()+".renew(ARRAY[$1]::bigint[], ARRAY[$2]::text[])",
			int64(a.ID), a.Owner.Incarnation).Scan(&ttl)
		if !errors.Is(err, pgx.ErrNoRows) { // it was over before
			require.NoError(t, err)
		}
		time.Sleep(left) // what others see has run out
		if ttl == 0 {
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	outs, err := s.Acquire(ctx, b, []store.Claim{claim("job")})
	require.NoError(t, err, "it waits for the renewal")
	require.False(t, outs[0].OK, "%+v", outs[0])
	must(p.Exec(ctx, "SELECT "+s.SchemaName()+".sweep(100)"))(t)
	recs := must(s.Get(ctx, "job"))(t)
	require.Len(t, recs, 1)

	require.NoError(t, tx.Commit(t.Context()))
	grants := must(s.Renew(t.Context(), []store.Session{a}))(t)
	require.NoError(t, grants[0].Err)
	out := ask(t, s, b, claim("job"))[0]
	require.False(t, out.OK)
	require.Equal(t, r.Token, out.Record.Token)
}

// TestGuardLateInATransaction: what counts is the moment of the call, not that at which the
// transaction began.
func TestGuardLateInATransaction(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	r := win(t, s, a, "job")
	tx := opened(t, p)
	var one int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT 1").Scan(&one))
	lasts(t, p, s, a, 0)
	require.ErrorIs(t, s.Guard(t.Context(), tx, own(r)), postgres.ErrFenced)
}

// TestAParentStaysWhileAClaimHangsOnIt: from the moment at which a claim has found its parent, that
// is not removed until the claim is committed, and can be seen.
func TestAParentStaysWhileAClaimHangsOnIt(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a, b := session(t, s, "a"), session(t, s, "b")
	parent := win(t, s, a, "parent")
	tx := opened(t, p)
	var answer string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT answer FROM "+s.SchemaName()+".acquire($1, $2, '{child}', '{7}', '{0}', '{NULL}', "+
		"ARRAY[$3]::text[], ARRAY[$4]::bigint[], ARRAY[$5]::bigint[], 0)",
		int64(b.ID), b.Owner.Incarnation, parent.Name, int64(parent.Token), int64(parent.Nonce)).Scan(&answer))
	require.Equal(t, "done", answer)
	released := make(chan []store.Outcome, 1)
	go func() {
		outs, _ := s.Release(context.Background(), []store.Held{parent.Held()})
		released <- outs
	}()
	select {
	case outs := <-released:
		t.Fatalf("the parent is gone, and the child is not there: %+v", outs)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, tx.Commit(t.Context()))
	outs := <-released
	require.Len(t, outs, 1)
	require.True(t, outs[0].OK, "%+v", outs[0])
	out := ask(t, s, b, store.Claim{Name: "another", Nonce: 8, While: parent.Held()})[0]
	require.ErrorIs(t, out.Err, store.ErrParentLost)
}

// TestWritersRingNoBell: NOTIFY has transactions commit one after another, with their flushes. So
// what writes does not; the Store does, when it has written.
func TestWritersRingNoBell(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	a := session(t, s, "a")
	conn := must(server(t).Conn(t.Context()))(t)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	must(conn.Exec(t.Context(), `LISTEN "holdfast_`+s.SchemaName()+`"`))(t)
	rung := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := conn.WaitForNotification(ctx)
		return err
	}
	require.NoError(t, acquiring(t, s, a, "by-hand").Commit(t.Context()))
	require.ErrorIs(t, rung(300*time.Millisecond), context.DeadlineExceeded)
	win(t, s, a, "by-the-store")
	require.NoError(t, rung(soon))
}

// TestWhatIsHeldOutlivesACrash of the server, in a database that asks for no flush.
func TestWhatIsHeldOutlivesACrash(t *testing.T) {
	t.Parallel()
	srv := postgrestest.Start(t, postgrestest.WithSetting("synchronous_commit", "off"), postgrestest.WithSetting("wal_writer_delay", "10s"))
	s := fresh(t, srv.Pool(t))
	a := session(t, s, "a")
	time.Sleep(100 * time.Millisecond)
	r := win(t, s, a, "job")
	require.NoError(t, srv.Kill())
	require.NoError(t, srv.Restart(t.Context()))
	again := again(t, srv.Pool(t), s)
	recs := must(again.Get(t.Context(), "job"))(t)
	require.Len(t, recs, 1, "what was acquired is lost")
	require.Equal(t, r.Token, recs[0].Token)
	grants := must(again.Renew(t.Context(), []store.Session{a}))(t)
	require.NoError(t, grants[0].Err)
}

// TestContentionUnderOtherDefaults: in a database whose transactions are stricter by default, those
// who want the same name are refused, and never fail.
func TestContentionUnderOtherDefaults(t *testing.T) {
	t.Parallel()
	first := fresh(t, pool(t))
	for _, level := range []string{"repeatable read", "serializable"} {
		p := server(t).Pool(t, func(c *pgxpool.Config) {
			c.MaxConns = 8
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
		})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				s := again(t, p, first)
				x := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting, Owner: store.Owner{ID: "n", Incarnation: fmt.Sprint(level, i)}}
				if _, err := s.OpenSession(t.Context(), x); err != nil {
					t.Errorf("%s: open: %v", level, err)
					return
				}
				for range 40 {
					outs, err := s.Acquire(t.Context(), x, []store.Claim{claim("job")})
					if err == nil && outs[0].OK {
						outs, err = s.Release(t.Context(), []store.Held{outs[0].Record.Held()})
					}
					if err != nil || outs[0].Err != nil {
						t.Errorf("%s: %v, %+v", level, err, outs)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestTheServersClockDecides, whatever the client's says: sessions live for their TTL, and no
// longer.
func TestTheServersClockDecides(t *testing.T) {
	t.Parallel()
	srv := postgrestest.Start(t, postgrestest.WithFaketime())
	p := srv.Pool(t)
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		require.NoError(t, srv.SetClock(by))
		s := fresh(t, p)
		a := session(t, s, "a")
		win(t, s, a, "job")
		grants := must(s.Renew(t.Context(), []store.Session{a}))(t)
		require.NoError(t, grants[0].Err, "it lives: %v", by)
		recs := must(s.Get(t.Context(), "job"))(t)
		require.Len(t, recs, 1, "%v", by)
		require.LessOrEqual(t, recs[0].Left, lasting, "%v", by)
		require.NoError(t, srv.SetClock(by+lasting-time.Minute))
		require.False(t, ask(t, s, session(t, s, "b"), claim("job"))[0].OK, "before its end: %v", by)
		require.NoError(t, srv.SetClock(by+lasting))
		require.True(t, ask(t, s, session(t, s, "c"), claim("job"))[0].OK, "at its end: %v", by)
	}
}

// TestASessionIsOfOneIncarnation: who knows a session's number, and is another, does nothing by it,
// and is given nothing under it.
func TestASessionIsOfOneIncarnation(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	a, b := session(t, s, "a"), session(t, s, "b")
	held, kept := win(t, s, a, "job"), win(t, s, b, "kept")
	other := b
	other.Owner.Incarnation += "-next"
	for _, x := range []store.Session{b, other} {
		grants := must(s.Renew(t.Context(), []store.Session{x}))(t)
		require.Equal(t, x.Owner != b.Owner, errors.Is(grants[0].Err, store.ErrSessionGone), "%v", grants[0].Err)
	}
	_, err := s.Acquire(t.Context(), other, []store.Claim{claim("more")})
	require.ErrorIs(t, err, store.ErrSessionGone)
	require.NoError(t, s.CloseSession(t.Context(), other))
	outs, err := s.Transfer(t.Context(), []store.Transfer{{Held: held.Held(), To: store.Offer{
		Name: "job", Owner: other.Owner, Session: other.ID, TTL: other.TTL, Nonce: 77, Lifetime: time.Minute,
	}}})
	require.NoError(t, err)
	require.ErrorIs(t, outs[0].Err, store.ErrSessionGone)
	recs := must(s.Get(t.Context(), "job", "kept", "more"))(t)
	require.Len(t, recs, 2)
	for _, r := range recs {
		require.Contains(t, []store.Token{held.Token, kept.Token}, r.Token)
	}
}
