//go:build unix

package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// TestNamesOfOthers: what others have put into a schema of the session's search_path, under the names of
// what the check and Migrate use, is not run by them, neither in front of pg_catalog nor behind it, where
// what fits the arguments better is preferred.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	srv := server(t)
	require.NoError(t, srv.NewDatabase(t.Context(), "names", ""))
	conn := must(srv.ConnTo(t.Context(), "names"))(t)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	exec := func(q string) {
		t.Helper()
		_, err := conn.PgConn().Exec(t.Context(), q).ReadAll()
		require.NoError(t, err, q)
	}
	plant := func(schema, function, returns string) {
		exec("CREATE FUNCTION " + schema + "." + function + " RETURNS " + returns +
			" LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted: " + function + "'; END $$")
	}
	exec("CREATE SCHEMA front")
	for function, returns := range map[string]string{
		"current_setting(text)": "text", "current_setting(text, boolean)": "text", "set_config(text, text, boolean)": "text",
		"pg_is_in_recovery()": "boolean", "pg_current_wal_insert_lsn()": "pg_lsn", "pg_walfile_name(pg_lsn)": "text",
		`"left"(text, int)`: "text", "to_regnamespace(text)": "regnamespace", "hashtext(text)": "int",
		"pg_advisory_xact_lock(int, int)": "void", "pg_get_userbyid(oid)": "name", "quote_ident(text)": "text",
		"format(text, text)": "text", "is(oid, oid)": "boolean", "is(name, name)": "boolean", "join(text, text)": "text",
	} {
		plant("front", function, returns)
	}
	exec("CREATE OPERATOR front.= (FUNCTION = front.is, LEFTARG = oid, RIGHTARG = oid)")
	exec("CREATE OPERATOR front.= (FUNCTION = front.is, LEFTARG = name, RIGHTARG = name)")
	exec("CREATE OPERATOR front.|| (FUNCTION = front.join, LEFTARG = text, RIGHTARG = text)")
	exec("CREATE DOMAIN front.timestamptz AS pg_catalog.timestamptz CHECK (VALUE IS NULL)")
	plant("public", "quote_ident(name)", "text")
	plant("public", "better(text, name, text)", "text")
	exec("CREATE AGGREGATE public.string_agg(name, text) (SFUNC = public.better, STYPE = text)")
	exec("ALTER FUNCTION public.better(text, name, text) CALLED ON NULL INPUT")
	plant("public", "is(oid, regnamespace)", "boolean")
	exec("CREATE OPERATOR public.= (FUNCTION = public.is, LEFTARG = oid, RIGHTARG = regnamespace)")

	for name, path := range map[string]string{"front": "front, pg_catalog", "behind": "public", "both": "front, pg_catalog, public"} {
		p := postgrestest.PoolOf(t, srv.URLOf(postgrestest.Superuser, "names"),
			func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = path })
		s := silent(t, p, postgres.WithSchema("by_migrate_"+name))
		require.NoError(t, s.Migrate(t.Context()), path)
		exec("ALTER TABLE " + s.SchemaName() + ".change SET UNLOGGED")
		require.ErrorIs(t, s.Check(t.Context()), postgres.ErrUnsafeServer)
		exec("ALTER TABLE " + s.SchemaName() + ".change SET LOGGED")
		works(t, s)
		exec("DROP FUNCTION " + s.SchemaName() + ".edition(); DROP FUNCTION " + s.SchemaName() + ".purge(int)")
		require.NoError(t, s.Migrate(t.Context()), path)
		works(t, s)

		s = silent(t, p, postgres.WithSchema("by_hand_"+name))
		for _, text := range []string{s.Schema(), s.Functions()} {
			tx := must(p.Begin(t.Context()))(t)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			_, err := tx.Conn().PgConn().Exec(t.Context(), text).ReadAll()
			require.NoError(t, err, path)
			var is string
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_catalog.current_setting('search_path')").Scan(&is))
			require.Equal(t, path, is, "of what else is in the transaction")
			require.NoError(t, tx.Commit(t.Context()))
			works(t, s)
		}
		var others int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
			WHERE c.relnamespace = to_regnamespace($1) AND a.atttypid = 'front.timestamptz'::regtype`, s.SchemaName()).Scan(&others))
		require.Zero(t, others)
	}
}
