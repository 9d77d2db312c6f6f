//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/store"
)

// steered is a pool of a server whose new connections go to whatever server to has.
func steered(t *testing.T, of *postgrestest.Server, to *atomic.Pointer[postgrestest.Server], changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return steeredBy(t, of, func(context.Context) *postgrestest.Server { return to.Load() }, changes...)
}

func steeredBy(t *testing.T, of *postgrestest.Server, to func(context.Context) *postgrestest.Server, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return of.Pool(t, append(changes, func(c *pgxpool.Config) {
		c.ConnConfig.Fallbacks = nil
		c.BeforeConnect = func(ctx context.Context, cc *pgx.ConnConfig) error {
			at, err := pgx.ParseConfig(to(ctx).URL())
			if err == nil {
				cc.Host, cc.Port = at.Host, at.Port
			}
			return err
		}
	})...)
}

// twoPrimaries are an old primary that came back as one, and the standby that took its place.
func twoPrimaries(t *testing.T) (old, present *postgrestest.Server) {
	t.Helper()
	old = postgrestest.Start(t)
	require.NoError(t, silent(t, old.Pool(t)).Migrate(t.Context()))
	present = must(old.NewStandby(t.Context()))(t)
	require.NoError(t, old.Kill())
	require.NoError(t, present.Promote(t.Context()))
	require.NoError(t, old.Restart(t.Context()))
	return old, present
}

// TestOldPrimary: a Store that has used the server that took an old primary's place does not go back
// to that one, and goes on as soon as the right one answers. One that has not does not know better.
func TestOldPrimary(t *testing.T) {
	t.Parallel()
	old, present := twoPrimaries(t)
	var to atomic.Pointer[postgrestest.Server]
	to.Store(present)
	p := steered(t, old, &to)
	s := silent(t, p)
	sess := session(t, s, "a")
	held := win(t, s, sess, "job")

	to.Store(old)
	p.Reset()
	deniedBy(t, s, postgres.ErrOldPrimary, "is on timeline 1, and this store has used timeline 2")
	_, err := s.Renew(t.Context(), []store.Session{sess}) // which the old one does not know
	require.NotErrorIs(t, err, store.ErrSessionGone)
	_, err = s.Release(t.Context(), []store.Held{held.Held()})
	require.ErrorIs(t, err, postgres.ErrOldPrimary)
	require.ErrorIs(t, s.CloseSession(t.Context(), sess), postgres.ErrOldPrimary)
	for _, err := range s.List(t.Context(), store.Query{Session: sess.ID}) {
		require.ErrorIs(t, err, postgres.ErrOldPrimary)
	}
	tx := must(p.Begin(t.Context()))(t)
	require.ErrorIs(t, s.Guard(t.Context(), tx, own(held)), postgres.ErrOldPrimary)
	require.NoError(t, tx.Rollback(t.Context()))

	other := silent(t, p) // the same name, held twice
	require.NotEqual(t, held.Token, win(t, other, session(t, other, "b"), "job").Token)

	to.Store(present)
	p.Reset()
	works(t, s)
	grants := must(s.Renew(t.Context(), []store.Session{sess}))(t)
	require.NoError(t, grants[0].Err)
	works(t, other) // it learns of the later one
	to.Store(old)
	p.Reset()
	deniedBy(t, other, postgres.ErrOldPrimary, "timeline 1")
	require.NoError(t, other.AcceptHistory(t.Context()))
	works(t, other)
}

// TestBothPrimariesInOnePool: connections of one pool lead to both, and no error comes in between.
func TestBothPrimariesInOnePool(t *testing.T) {
	t.Parallel()
	old, present := twoPrimaries(t)
	var to atomic.Pointer[postgrestest.Server]
	to.Store(old)
	asked := &requests{n: map[string]int{}}
	p := steered(t, old, &to, asked.count)
	s := silent(t, p)
	works(t, s)
	// hold takes all connections out of the pool, so that the next call makes another, once the bell
	// was rung that often: it takes one, soon after a call.
	held := map[int]int{} // how many, by hold
	hold := func(rings int) (release func()) {
		eventually(t, "no connection in use", func() bool {
			n := 0
			for _, c := range held {
				n += c
			}
			return asked.of("ring") >= rings && int(p.Stat().AcquiredConns()) == n
		})
		conns := p.AcquireAllIdle(t.Context())
		id := rand.Int()
		held[id] = len(conns)
		require.NotEmpty(t, conns)
		release = sync.OnceFunc(func() {
			for _, c := range conns {
				c.Release()
			}
			delete(held, id)
		})
		t.Cleanup(release)
		return release
	}
	olds := hold(2) // for what was won, and for what was freed
	to.Store(present)
	works(t, s) // by another connection, which leads to the later one: it goes on there
	presents := hold(4)
	olds()
	_, err := s.Get(t.Context(), "a")
	require.ErrorIs(t, err, postgres.ErrOldPrimary)
	olds = hold(4)
	presents()
	works(t, s)
	olds()
}

// TestUnsupported: what the server, or a pooler before it, does not support is no standby.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	_, err := p.Exec(t.Context(), strings.ReplaceAll(`CREATE OR REPLACE FUNCTION holdfast.get(p_names text[]) RETURNS SETOF holdfast.record LANGUAGE plpgsql AS
		'BEGIN RAISE EXCEPTION ''no such thing here'' USING ERRCODE = ''0A000''; END'`, "holdfast", s.SchemaName()))
	require.NoError(t, err)
	_, err = s.Get(t.Context(), "a")
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorIs(t, err, postgres.ErrUnsafeServer)
	require.ErrorContains(t, err, "does not support what is sent")
	require.ErrorContains(t, err, "no such thing here")
	require.NotErrorIs(t, err, postgres.ErrReadOnly)
}

// TestTokensAreAboveAllThatWasSeen: a server loses rows, as an asynchronous standby that is
// promoted does, and its clock is behind. A Store that has seen what was lost, in whatever way,
// gets tokens above it. One that has not does not.
func TestTokensAreAboveAllThatWasSeen(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.WithFaketime())
	pool := server.Pool(t)
	ctx := t.Context()
	session := func(s *postgres.Store, id store.SessionID) store.Session {
		sess := store.Session{ID: id, TTL: time.Hour, Owner: store.Owner{ID: "n", Incarnation: fmt.Sprint("n-", id)}}
		g := must(s.OpenSession(ctx, sess))(t)
		require.NoError(t, g.Err)
		return sess
	}
	acquire := func(s *postgres.Store, sess store.Session, name string) store.Record {
		outs := must(s.Acquire(ctx, sess, []store.Claim{{Name: name, Nonce: 7}}))(t)
		require.True(t, outs[0].OK, "%+v", outs[0])
		return outs[0].Record
	}
	var first *postgres.Store
	for name, see := range map[string]func(*postgres.Store){
		"event": func(s *postgres.Store) {
			for ev, err := range s.Watch(ctx, store.Scope{Prefix: "late"}) {
				require.NoError(t, err)
				if ev.Kind == store.EventSynced {
					acquire(first, session(first, 6), "late")
				} else {
					break
				}
			}
		},
		"get": func(s *postgres.Store) {
			must(s.Get(ctx, "job"))(t)
		},
		"list": func(s *postgres.Store) {
			for _, err := range s.List(ctx, store.Query{}) {
				require.NoError(t, err)
			}
		},
		"watch": func(s *postgres.Store) {
			for ev, err := range s.Watch(ctx, store.Scope{}) {
				require.NoError(t, err)
				if ev.Kind == store.EventSynced {
					break
				}
			}
		},
		"refusal": func(s *postgres.Store) {
			outs := must(s.Acquire(ctx, session(s, 3), []store.Claim{{Name: "job", Nonce: 9}}))(t)
			require.False(t, outs[0].OK)
		},
		"nothing": func(*postgres.Store) {},
	} {
		require.NoError(t, server.SetClock(0))
		first = fresh(t, pool)
		lost := acquire(first, session(first, 1), "job")
		other := again(t, pool, first)
		see(other)

		require.NoError(t, server.Exec(ctx, fmt.Sprintf("TRUNCATE %[1]s.lease, %[1]s.change; DELETE FROM %[1]s.session", first.SchemaName())))
		require.NoError(t, server.SetClock(-time.Hour))
		won := acquire(other, session(other, 2), "job")
		if name == "nothing" {
			require.Less(t, won.Token, lost.Token, "what nobody told it of")
			require.NoError(t, first.AcceptHistory(context.WithoutCancel(ctx)))
			require.Equal(t, 1, first.Accepted())
			require.Less(t, acquire(first, session(first, 4), "other").Token, lost.Token, "accepted")
			continue
		}
		require.Greater(t, won.Token, lost.Token, name)
		more := acquire(other, session(other, 7), "more")
		out, err := other.Transfer(ctx, []store.Transfer{{Held: won.Held(), To: store.Offer{Name: "job",
			Owner: session(other, 5).Owner, Session: 5, TTL: time.Hour, Nonce: 8, Lifetime: time.Hour}}})
		require.NoError(t, err)
		require.True(t, out[0].OK, "%+v", out[0])
		require.Greater(t, out[0].Record.Token, more.Token)
	}
}

// TestSweepBesideAcquire: what is acquired under a session while that runs out, and is committed
// while it is swept, never stands without a session: no sweep would free it, and no watch tell of its end.
func TestSweepBesideAcquire(t *testing.T) {
	t.Parallel()
	p := server(t).Pool(t)
	s := fresh(t, p)
	sql := func(q string, args ...any) {
		t.Helper()
		_, err := p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName()), append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
		require.NoError(t, err)
	}
	// A look at the names under a session takes a while.
	sql("INSERT INTO %[1]s.lease (name) SELECT 'free/' || i FROM generate_series(1, 100000) i; DROP INDEX %[1]s.lease_session")
	for range 15 {
		x := session(t, s, "a")
		name := fmt.Sprintf("job/%d", ids.Add(1))
		tx := acquiring(t, s, x, name)
		// It runs out, and a renewal that comes too late makes that final.
		sql("UPDATE %[1]s.session SET ends = clock_timestamp() WHERE id = $1", int64(x.ID))
		grants := must(s.Renew(t.Context(), []store.Session{x}))(t)
		require.ErrorIs(t, grants[0].Err, store.ErrSessionGone)
		done := make(chan time.Duration)
		sweep := func() time.Duration {
			began := time.Now()
			must(p.Exec(t.Context(), fmt.Sprintf("SELECT %s.sweep(100)", s.SchemaName())))(t)
			return time.Since(began)
		}
		takes := sweep()
		go func() { done <- sweep() }()
		time.Sleep(rand.N(takes))
		require.NoError(t, tx.Commit(t.Context()))
		<-done
		var orphans int
		require.NoError(t, p.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %[1]s.lease l WHERE l.session IS NOT NULL
			AND NOT EXISTS (SELECT FROM %[1]s.session s WHERE s.id = l.session)`, s.SchemaName())).Scan(&orphans))
		require.Zero(t, orphans, name)
		sweep()
	}
}

// TestWhatIsOverIsFinal: of a session that was said to be over nothing is left, also where each call
// is a transaction of several statements.
func TestWhatIsOverIsFinal(t *testing.T) {
	t.Parallel()
	first := fresh(t, pool(t))
	for _, level := range []string{"read committed", "serializable"} {
		p := server(t).Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level })
		s := again(t, p, first)
		x := session(t, s, "a")
		name := fmt.Sprintf("job/%d", ids.Add(1))
		win(t, s, x, name)
		lasts(t, p, s, x, 0)
		var err error
		for _, err = range s.List(t.Context(), store.Query{Session: x.ID}) {
		}
		require.ErrorIs(t, err, store.ErrSessionGone)
		var left int
		require.NoError(t, p.QueryRow(t.Context(), fmt.Sprintf(`SELECT (SELECT count(*) FROM %[1]s.lease WHERE name = $1 AND session IS NOT NULL)
			+ (SELECT count(*) FROM %[1]s.session WHERE id = $2 AND ends > '-infinity')`, s.SchemaName()), name, int64(x.ID)).Scan(&left))
		require.Zero(t, left, level)
	}
}
