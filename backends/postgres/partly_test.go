//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

// TestDeniedAfterAPart: lease.ErrDenied says that nothing was applied, so that a call does not say so
// whose first request was applied and whose second is refused, as by an old primary that it reaches.
func TestDeniedAfterAPart(t *testing.T) {
	t.Parallel()
	p := pool(t)
	exec := func(t *testing.T, q string, args ...any) {
		t.Helper()
		must(p.Exec(t.Context(), fmt.Sprintf(q, args...), pgx.QueryExecModeSimpleProtocol))(t)
	}
	// refuse has a function refuse from its n-th call on. inner is its call under another name.
	refuse := func(t *testing.T, s *postgres.Store, n int, name, parameters, returns, inner string) {
		t.Helper()
		exec(t, `CREATE SEQUENCE %[1]s.calls; ALTER FUNCTION %[1]s.%[2]s RENAME TO inner_one;
			CREATE FUNCTION %[1]s.%[2]s(%[3]s) %[4]s LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('%[1]s.calls') >= %[6]d THEN RAISE EXCEPTION 'not here' USING ERRCODE = 'HF004'; END IF;
			RETURN QUERY SELECT * FROM %[1]s.inner_one(%[5]s); END $$`, s.SchemaName(), name, parameters, returns, inner, n)
	}
	for n, part := range map[int]bool{1: false, 2: true} {
		judge := func(t *testing.T, err error) {
			t.Helper()
			require.ErrorContains(t, err, "not here")
			if part {
				require.NotErrorIs(t, err, store.ErrDenied)
				require.ErrorContains(t, err, "after a part was applied")
			} else {
				require.ErrorIs(t, err, store.ErrDenied)
				require.ErrorIs(t, err, postgres.ErrOldPrimary)
			}
		}
		t.Run(fmt.Sprintf("close, request %d", n), func(t *testing.T) {
			s := fresh(t, p)
			sess := session(t, s, "a")
			free, guarded := win(t, s, sess, "free"), win(t, s, sess, "guarded")
			tx := must(p.Begin(t.Context()))(t)
			defer func() { _ = tx.Rollback(context.Background()) }()
			require.NoError(t, s.Guard(t.Context(), tx, own(guarded)))
			refuse(t, s, n, "close", "p_id bigint, p_incarnation text, p_limit int",
				"RETURNS TABLE (freed int, standing int)", "p_id, p_incarnation, p_limit")
			judge(t, s.CloseSession(t.Context(), sess))
			require.NoError(t, tx.Rollback(t.Context()))
			recs := must(s.Get(t.Context(), free.Name))(t)
			require.Equal(t, part, len(recs) == 0, "released")
		})
		t.Run(fmt.Sprintf("renew, request %d", n), func(t *testing.T) {
			s := fresh(t, p)
			sess := session(t, s, "a")
			former := sess
			former.Owner.Incarnation += "-former"
			refuse(t, s, n, "renew", "p_ids bigint[], p_incarnations text[]",
				"RETURNS TABLE (id bigint, ttl bigint)", "p_ids, p_incarnations")
			_, err := s.Renew(t.Context(), []store.Session{sess, former})
			judge(t, err)
		})
	}
}
