//go:build unix

package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// TestSweepBesideAcquire: what is acquired under a session while that runs out, and is committed
// while it is swept, never stands without a session: nobody would free it, or tell of its end.
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
