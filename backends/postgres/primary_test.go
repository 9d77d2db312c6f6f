//go:build unix

package postgres_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
