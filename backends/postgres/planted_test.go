//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// shareSchema is a schema with leases of an older edition, whose owner is a role; another role may make
// functions in it. exec is a superuser's.
func shareSchema(t *testing.T, name string) (owner *postgres.Store, exec func(q string)) {
	t.Helper()
	srv := server(t)
	exec = func(q string) {
		t.Helper()
		require.NoError(t, srv.Exec(t.Context(), strings.ReplaceAll(q, "%s", name)))
	}
	exec(`CREATE ROLE %s_owner LOGIN; CREATE ROLE %s_other LOGIN;
		CREATE SCHEMA %s; GRANT USAGE, CREATE ON SCHEMA %s TO %s_owner, %s_other`)
	owner = silent(t, postgrestest.PoolOf(t, srv.URLOf(name+"_owner", "postgres")), postgres.WithSchema(name))
	require.NoError(t, owner.Migrate(t.Context()))
	exec("DROP FUNCTION %s.edition(); DROP FUNCTION %s.purge(int)")
	return owner, exec
}

// TestFunctionsMadeMeanwhile: what another role makes in the schema while functions are replaced is
// neither given to the owner of the tables nor taken from PUBLIC.
func TestFunctionsMadeMeanwhile(t *testing.T) {
	t.Parallel()
	owner, exec := shareSchema(t, "meanwhile")
	p := pool(t)
	before, after, ok := strings.Cut(owner.Functions(), "-- The edition of these functions.")
	require.True(t, ok)
	tx := must(p.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	must(tx.Conn().PgConn().Exec(t.Context(), before).ReadAll())(t)
	exec("SET ROLE %s_other; CREATE FUNCTION %s.others() RETURNS int LANGUAGE sql AS 'SELECT 1'; RESET ROLE")
	must(tx.Conn().PgConn().Exec(t.Context(), "-- "+after).ReadAll())(t)
	require.NoError(t, tx.Commit(t.Context()))

	is := map[string]string{}
	for _, f := range []string{"others", "purge"} {
		var of string
		var public bool
		require.NoError(t, p.QueryRow(t.Context(), `SELECT pg_get_userbyid(f.proowner), has_function_privilege('meanwhile_other', f.oid, 'EXECUTE')
			AND (f.proacl IS NULL OR EXISTS (SELECT FROM aclexplode(f.proacl) a WHERE a.grantee = 0))
			FROM pg_proc f WHERE f.pronamespace = to_regnamespace('meanwhile') AND f.proname = $1`, f).Scan(&of, &public))
		is[f] = fmt.Sprintf("%s, public %v", of, public)
	}
	require.Equal(t, map[string]string{"others": "meanwhile_other, public true", "purge": "meanwhile_owner, public false"}, is)
	works(t, owner)
}

// TestPlantedFunctions: one of another role, under the name of one that is to come, is not left to that
// role with the store's text in it: it could change it later. Nothing is changed until it is dropped.
func TestPlantedFunctions(t *testing.T) {
	t.Parallel()
	owner, exec := shareSchema(t, "planted")
	p := pool(t)
	admin := silent(t, p, postgres.WithSchema("planted"))
	exec(`SET ROLE %s_other; CREATE FUNCTION %s.purge(p_limit int) RETURNS int LANGUAGE sql AS 'SELECT 77'; RESET ROLE`)
	for what, mend := range map[string]func() error{
		"Migrate":              func() error { return admin.Migrate(t.Context()) },
		"Functions":            func() error { return server(t).Exec(t.Context(), owner.Functions()) },
		"with savepoints":      func() error { return withSavepoints(t, p, owner.Functions()) },
		"Migrate of the owner": func() error { return owner.Migrate(t.Context()) },
	} {
		err := mend()
		require.Error(t, err, what)
		if strings.HasPrefix(what, "Migrate") {
			require.ErrorIs(t, err, postgres.ErrSchema)
			require.NotErrorIs(t, err, postgres.ErrPermission)
		}
		if what != "Migrate of the owner" { // who may not replace it
			require.ErrorContains(t, err,
				"the function planted.purge(integer) was there before, and belongs to planted_other, not to planted_owner as the tables do: drop it, or ALTER FUNCTION ... OWNER TO planted_owner", what)
		} else {
			require.ErrorContains(t, err, "drop it, or ALTER FUNCTION ... OWNER TO planted_owner")
		}
		var is int
		require.NoError(t, p.QueryRow(t.Context(), "SELECT planted.purge(1) - 77 + count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('planted') AND proname = 'edition'").Scan(&is))
		require.Zero(t, is, "something was changed")
	}
	exec("DROP FUNCTION %s.purge(int); CREATE PROCEDURE %s.purge(p_limit int) LANGUAGE sql AS 'SELECT 77'")
	require.ErrorIs(t, admin.Migrate(t.Context()), postgres.ErrSchema)
	exec("DROP PROCEDURE %s.purge(int)")
	require.NoError(t, withSavepoints(t, p, owner.Functions()))
	works(t, owner)
	exec("DROP FUNCTION %s.edition()")
	require.NoError(t, admin.Migrate(t.Context()))
	works(t, owner)
}

// withSavepoints applies statements in one transaction, each behind a savepoint of its own, as psql does
// by ON_ERROR_ROLLBACK.
func withSavepoints(t *testing.T, p *pgxpool.Pool, text string) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
		for _, statement := range strings.Split(strings.TrimSpace(text), "\n\n") {
			err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
				_, err := tx.Conn().PgConn().Exec(t.Context(), statement).ReadAll()
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
