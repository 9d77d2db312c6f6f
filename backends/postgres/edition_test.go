//go:build unix

package postgres_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// TestEdition: functions that were changed have another edition. If this fails, raise the edition in
// sql/edition.sql and check.go, unless the one that is there was never released, and put the new
// sum here.
func TestEdition(t *testing.T) {
	t.Parallel()
	s := silent(t, nowhere(t))
	require.Contains(t, s.Functions(), "SELECT 3 $$;")
	require.Equal(t, "471bc9d5aa6f9f19", fmt.Sprintf("%x", sha256.Sum256([]byte(s.Functions())))[:16])
	require.NotContains(t, s.Functions(), "CREATE TABLE")
	for _, statement := range strings.Split(s.Functions(), "\n\n") {
		require.Contains(t, s.Schema(), statement)
	}
	require.Empty(t, new(postgres.Store).Functions())
}

// TestFunctionsOfAnotherEdition: older ones are refused, and replaced by Migrate; newer ones are
// left as they are, and used.
func TestFunctionsOfAnotherEdition(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	schema := postgres.WithSchema(s.SchemaName())
	held := win(t, s, session(t, s, "a"), "job")
	exec := func(q string) {
		must(p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName())))(t)
	}
	const none = "CREATE OR REPLACE FUNCTION %s.get(p_names text[]) RETURNS SETOF %[1]s.record LANGUAGE sql AS 'SELECT r.* FROM %[1]s.record r WHERE false'"
	stands := func() int {
		recs := must(silent(t, p, schema).Get(t.Context(), "job"))(t)
		for _, r := range recs {
			require.Equal(t, held.Token, r.Token)
		}
		return len(recs)
	}
	for _, older := range []string{"DROP FUNCTION %s.edition()", "CREATE OR REPLACE FUNCTION %s.edition() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0'"} {
		for _, mend := range []func(){
			func() { require.NoError(t, silent(t, p, schema).Migrate(t.Context())) },
			func() { require.NoError(t, server(t).Exec(t.Context(), s.Functions())) },
		} {
			exec(none)
			exec(older)
			deniedBy(t, silent(t, p, schema), postgres.ErrSchema, "has functions of edition 0, which is older than 3: call Migrate")
			mend()
			require.Equal(t, 1, stands())
			works(t, silent(t, p, schema))
		}
	}
	exec(none)
	exec("CREATE OR REPLACE FUNCTION %s.edition() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 41'")
	require.NoError(t, silent(t, p, schema).Migrate(t.Context()))
	require.Zero(t, stands(), "a newer one was replaced")
}

// TestGrantsStay: new functions in place of older ones take no rights from those who have them, as
// programs are at work by these; and PUBLIC has none on functions that are made anew.
func TestGrantsStay(t *testing.T) {
	t.Parallel()
	p := pool(t)
	role := fmt.Sprintf("grants_%d", schemas.Add(1))
	must(p.Exec(t.Context(), "CREATE ROLE "+role))(t)
	for i, migrate := range []bool{true, false} {
		s := fresh(t, p)
		exec := func(q string) {
			t.Helper()
			must(p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName(), role)))(t)
		}
		may := func(who, function string) (yes bool) {
			t.Helper()
			const q = `SELECT EXISTS (SELECT FROM pg_proc f, aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
				WHERE f.pronamespace = to_regnamespace($1) AND f.proname = $2 AND a.privilege_type = 'EXECUTE'
				AND a.grantee = CASE $3 WHEN 'PUBLIC' THEN 0 ELSE $3::regrole::oid END)`
			require.NoError(t, p.QueryRow(t.Context(), q, s.SchemaName(), function, who).Scan(&yes))
			return yes
		}
		require.False(t, may("PUBLIC", "renew"), "of a new schema")
		exec("GRANT EXECUTE ON FUNCTION %[1]s.renew(bigint[], text[]) TO PUBLIC")
		exec("GRANT EXECUTE ON FUNCTION %s.guard(text, bigint) TO %s")
		exec("DROP FUNCTION %[1]s.edition()")
		exec("DROP FUNCTION %[1]s.purge(int)")
		exec("DROP FUNCTION %[1]s.ring()")
		if i == 0 {
			exec("ALTER DEFAULT PRIVILEGES IN SCHEMA %s GRANT EXECUTE ON FUNCTIONS TO %s")
		}
		if migrate {
			require.NoError(t, silent(t, p, postgres.WithSchema(s.SchemaName())).Migrate(t.Context()))
		} else {
			require.NoError(t, server(t).Exec(t.Context(), s.Functions()))
		}
		require.True(t, may("PUBLIC", "renew"), "it had it")
		require.True(t, may(role, "guard"))
		require.False(t, may("PUBLIC", "guard"))
		require.False(t, may("PUBLIC", "open"))
		for _, anew := range []string{"edition", "purge", "ring"} {
			require.False(t, may("PUBLIC", anew), anew)
			require.Equal(t, i == 0, may(role, anew), anew)
		}
		works(t, silent(t, p, postgres.WithSchema(s.SchemaName())))
	}
}

// TestFunctionsAreTheOwners: functions that a superuser adds run with the rights of the schema's owner,
// as those that are there, and not with the superuser's: the owner can change what they call.
func TestFunctionsAreTheOwners(t *testing.T) {
	t.Parallel()
	srv := server(t)
	p := pool(t)
	for i, migrate := range []bool{true, false} {
		role, schema := fmt.Sprintf("owner_%d", i), fmt.Sprintf("owned_%d", i)
		exec := func(q string) { t.Helper(); require.NoError(t, srv.Exec(t.Context(), q)) }
		exec(fmt.Sprintf(`CREATE ROLE %s LOGIN; CREATE SCHEMA %s; GRANT USAGE, CREATE ON SCHEMA %[2]s TO %[1]s;
			CREATE FUNCTION %[2]s.another() RETURNS int LANGUAGE sql AS 'SELECT 1'`, role, schema))
		owner := silent(t, postgrestest.PoolOf(t, srv.URLOf(role, "postgres")), postgres.WithSchema(schema))
		require.NoError(t, owner.Migrate(t.Context()))
		older := func() {
			exec(fmt.Sprintf("DROP FUNCTION %[1]s.edition(); DROP FUNCTION %[1]s.timeline(); DROP FUNCTION %[1]s.on_timeline(bigint, bigint)", schema))
		}
		older()
		if migrate {
			require.NoError(t, silent(t, p, postgres.WithSchema(schema)).Migrate(t.Context()))
		} else {
			exec(owner.Functions())
		}
		var others string
		require.NoError(t, p.QueryRow(t.Context(), `SELECT coalesce(string_agg(proname, ' ' ORDER BY proname), '') FROM pg_proc
			WHERE pronamespace = to_regnamespace($1) AND proowner <> to_regrole($2)`, schema, role).Scan(&others))
		require.Equal(t, "another", others)
		works(t, owner)
		older()
		require.NoError(t, owner.Migrate(t.Context()), "what a superuser has replaced")
		works(t, owner)
	}
}
