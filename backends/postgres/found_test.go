//go:build unix

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// TestASchemaOfTheUsers may be where leases are, with what else is in it; what has a name that is
// needed is refused by it, and left alone.
func TestASchemaOfTheUsers(t *testing.T) {
	t.Parallel()
	p := pool(t)
	exec := func(format string, args ...any) {
		t.Helper()
		must(p.Exec(t.Context(), fmt.Sprintf(format, args...)))(t)
	}
	exec("CREATE SCHEMA users")
	exec("CREATE UNLOGGED TABLE users.mine (v int)")
	s := silent(t, p, postgres.WithSchema("users"))
	require.NoError(t, s.Migrate(t.Context()))
	works(t, s)
	require.NoError(t, s.Migrate(t.Context()))
	rows, err := p.Query(t.Context(), `SELECT relname::text, relkind::text FROM pg_class WHERE relnamespace = 'users'::regnamespace
		AND relname <> 'mine' AND relname NOT LIKE '%_pkey'`)
	require.NoError(t, err)
	type relation struct{ Name, Kind string }
	ours := must(pgx.CollectRows(rows, pgx.RowToStructByPos[relation]))(t)
	require.Len(t, ours, 10)
	for i, r := range ours {
		if r.Kind == "r" {
			exec("ALTER TABLE users.%s SET UNLOGGED", r.Name)
			deniedBy(t, silent(t, p, postgres.WithSchema("users")), postgres.ErrUnsafeServer, "in schema users: "+r.Name)
			exec("ALTER TABLE users.%s SET LOGGED", r.Name)
		}
		for j, made := range []string{
			"TABLE %s.%s (v int)", "TABLE %s.%s (version int, oldest int)", "VIEW %s.%s AS SELECT 1 AS one, 2 AS version, 3 AS oldest",
		} {
			schema := fmt.Sprintf("users_%d_%d", i, j)
			exec("CREATE SCHEMA %s", schema)
			exec("CREATE "+made, schema, r.Name)
			err = silent(t, p, postgres.WithSchema(schema)).Migrate(t.Context())
			require.ErrorIs(t, err, postgres.ErrSchema)
			require.ErrorContains(t, err, "that is not ours (WithSchema names another schema): "+r.Name)
			var n int
			require.NoError(t, p.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1))
				+ (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace($1))`, schema).Scan(&n))
			require.Equal(t, 1, n, "something was made")
			exec("DROP SCHEMA %s CASCADE", schema)
		}
	}
	for i, q := range []string{"CREATE DOMAIN %s.session AS int", "CREATE FUNCTION %s.us(timestamptz) RETURNS text LANGUAGE sql AS 'SELECT 1::text'"} {
		schema := fmt.Sprintf("users_type_%d", i)
		exec("CREATE SCHEMA %s", schema)
		exec(q, schema)
		require.ErrorIs(t, silent(t, p, postgres.WithSchema(schema)).Migrate(t.Context()), postgres.ErrSchema)
	}
	exec("DROP FUNCTION users.edition()")
	exec("DROP TABLE users.lease CASCADE")
	require.ErrorIs(t, silent(t, p, postgres.WithSchema("users")).Migrate(t.Context()), postgres.ErrSchema)
}

// TestWhatElseIsInASchemaStays: what PUBLIC may do with the tables of others that are in it, also those
// of another role, and what their functions do, under whatever names.
func TestWhatElseIsInASchemaStays(t *testing.T) {
	t.Parallel()
	srv := server(t)
	p := pool(t)
	exec := func(q string) { t.Helper(); require.NoError(t, srv.Exec(t.Context(), q)) }
	exec(`CREATE ROLE stays_a LOGIN; CREATE ROLE stays_b; CREATE SCHEMA stays; GRANT USAGE, CREATE ON SCHEMA stays TO stays_a, stays_b;
		CREATE TABLE stays.of_a (v int); ALTER TABLE stays.of_a OWNER TO stays_a; GRANT SELECT ON stays.of_a TO PUBLIC;
		CREATE TABLE stays.of_b (v int); ALTER TABLE stays.of_b OWNER TO stays_b`)
	s := silent(t, postgrestest.PoolOf(t, srv.URLOf("stays_a", "postgres")), postgres.WithSchema("stays"))
	require.NoError(t, s.Migrate(t.Context()))
	works(t, s)
	var public bool
	require.NoError(t, p.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.oid = 'stays.of_a'::regclass AND a.grantee = 0 AND a.privilege_type = 'SELECT')`).Scan(&public))
	require.True(t, public)

	exec(`CREATE SCHEMA stays_too; GRANT USAGE, CREATE ON SCHEMA stays_too TO stays_a;
		CREATE FUNCTION stays_too.timeline() RETURNS bigint LANGUAGE sql AS 'SELECT 77::bigint'; ALTER FUNCTION stays_too.timeline() OWNER TO stays_a`)
	s = silent(t, postgrestest.PoolOf(t, srv.URLOf("stays_a", "postgres")), postgres.WithSchema("stays_too"))
	err := s.Migrate(t.Context())
	require.ErrorIs(t, err, postgres.ErrSchema)
	require.ErrorContains(t, err, "not ours under a name of ours")
	var is, tables int
	require.NoError(t, p.QueryRow(t.Context(), `SELECT stays_too.timeline(),
		(SELECT count(*) FROM pg_class WHERE relnamespace = 'stays_too'::regnamespace)`).Scan(&is, &tables))
	require.Equal(t, 77, is)
	require.Zero(t, tables)
}
