//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

// TestGuardBehindASnapshot: what is said of it holds. It never lets a former holder through, refuses
// the true one behind an old snapshot, and not if it comes first.
func TestGuardBehindASnapshot(t *testing.T) {
	t.Parallel()
	p := pool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		s := fresh(t, p)
		begin := func(first string) pgx.Tx {
			t.Helper()
			tx := must(p.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level}))(t)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			if first != "" {
				must(tx.Exec(t.Context(), first))(t)
			}
			return tx
		}
		again := func(r store.Record) {
			t.Helper()
			tx := begin("")
			require.NoError(t, s.Guard(t.Context(), tx, own(r)))
			require.NoError(t, tx.Commit(t.Context()))
		}
		const snapshot = "SELECT count(*) FROM pg_catalog.pg_class"
		b := session(t, s, "b")

		// Acquired for the first time since.
		tx, idle := begin(snapshot), begin("")
		first := win(t, s, b, "first")
		require.ErrorIs(t, s.Guard(t.Context(), tx, own(first)), postgres.ErrFenced)
		require.Error(t, tx.Commit(t.Context()))
		require.NoError(t, s.Guard(t.Context(), idle, own(first)), "it had begun, but had no snapshot")
		require.NoError(t, idle.Commit(t.Context()))
		again(first)

		// Renewed since, by more than what was left.
		var r store.Record
		for left, renewed := 100*time.Millisecond, false; !renewed; left *= 2 { // on a machine that is busy it takes more
			a := session(t, s, "a")
			r = win(t, s, a, fmt.Sprint("renewed/", left))
			lasts(t, p, s, a, left)
			tx = begin(snapshot)
			grants := must(s.Renew(t.Context(), []store.Session{a}))(t)
			renewed = grants[0].Err == nil
			time.Sleep(left)
		}
		require.ErrorIs(t, s.Guard(t.Context(), tx, own(r)), postgres.ErrFenced)
		again(r)

		// Changed hands since: of neither the former nor the new holder.
		former := win(t, s, b, "changed")
		one, other := begin(snapshot), begin(snapshot)
		outs := must(s.Release(t.Context(), []store.Held{former.Held()}))(t)
		require.True(t, outs[0].OK)
		now := win(t, s, b, "changed")
		for tx, r := range map[pgx.Tx]store.Record{one: former, other: now} {
			err := s.Guard(t.Context(), tx, own(r))
			var pe *pgconn.PgError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, "40001", pe.Code)
			require.NotErrorIs(t, err, postgres.ErrFenced)
			require.Error(t, tx.Commit(t.Context()))
		}
		again(now)
	}
}

// TestGuardThatMayNotWrite says that it is for the transaction's own mode.
func TestGuardThatMayNotWrite(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	r := win(t, s, session(t, s, "a"), "job")
	tx := must(p.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly}))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	err := s.Guard(t.Context(), tx, own(r))
	require.ErrorIs(t, err, postgres.ErrReadOnly)
	require.ErrorContains(t, err, "or a transaction that is READ ONLY itself")
}
