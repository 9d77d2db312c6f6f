//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

// TestSettingsChangeWhileItRuns: what a connection makes of what it is sent is asked of each, also of
// those that are made after others were found fit, as when a role is changed while programs run.
func TestSettingsChangeWhileItRuns(t *testing.T) {
	t.Parallel()
	first := fresh(t, pool(t))
	r := win(t, first, session(t, first, "a"), "käse")
	for says, set := range map[string]string{
		"client_encoding is LATIN1, must be UTF8": "SET client_encoding = 'LATIN1'",
		"array_nulls is off, must be on":          "SET array_nulls = off",
	} {
		var changed atomic.Bool
		p := server(t).Pool(t, func(c *pgxpool.Config) {
			c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				if !changed.Load() {
					return nil
				}
				_, err := conn.Exec(ctx, set)
				return err
			}
		})
		s := silent(t, p, postgres.WithSchema(first.SchemaName()))
		works(t, s)
		b := session(t, s, "b")
		tx := must(p.Begin(t.Context()))(t)
		require.NoError(t, s.Guard(t.Context(), tx, own(r)))
		require.NoError(t, tx.Commit(t.Context()))

		changed.Store(true)
		p.Reset()
		_, err := s.Acquire(t.Context(), b, []store.Claim{claim("käse")}) // with no check before it
		require.ErrorIs(t, err, store.ErrDenied)
		require.ErrorIs(t, err, postgres.ErrUnsafeServer)
		require.ErrorContains(t, err, says)
		require.ErrorIs(t, s.Check(t.Context()), postgres.ErrUnsafeServer)
		deniedBy(t, s, postgres.ErrUnsafeServer, says)

		// A transaction of a pool that no Store has.
		tx = must(p.Begin(t.Context()))(t)
		err = first.Guard(t.Context(), tx, own(r))
		require.ErrorIs(t, err, postgres.ErrUnsafeServer)
		require.NotErrorIs(t, err, postgres.ErrFenced, "it is held")
		require.ErrorContains(t, err, says)
		require.Error(t, tx.Commit(t.Context()))

		changed.Store(false)
		p.Reset()
		out := ask(t, s, b, claim("käse"))[0]
		require.False(t, out.OK)
		require.Equal(t, r.Token, out.Record.Token)
	}

	handle := must(sql.Open("pgx", server(t).URL()))(t)
	defer func() { require.NoError(t, handle.Close()) }()
	tx := must(handle.BeginTx(t.Context(), nil))(t)
	defer func() { _ = tx.Rollback() }()
	must(tx.ExecContext(t.Context(), "SET LOCAL array_nulls = off"))(t)
	require.ErrorIs(t, first.GuardTx(t.Context(), tx, own(r)), postgres.ErrUnsafeServer)
}
