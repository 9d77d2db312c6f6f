//go:build unix

package postgres_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
)

// TestEdition: functions that were changed have another edition. If this fails, raise the edition in
// sql/edition.sql and check.go, unless the one that is there was never released, and put the new
// sum here.
func TestEdition(t *testing.T) {
	t.Parallel()
	s := silent(t, nowhere(t))
	require.Contains(t, s.Functions(), "SELECT 1 $$;")
	require.Equal(t, "b0e489673c705c26", fmt.Sprintf("%x", sha256.Sum256([]byte(s.Functions())))[:16])
	require.NotContains(t, s.Functions(), "CREATE TABLE")
	require.Contains(t, s.Schema(), s.Functions())
	require.Empty(t, new(postgres.Store).Functions())
}

// TestFunctionsOfAnotherEdition: older ones are refused, and replaced by Migrate; newer ones are
// left as they are, and used.
func TestFunctionsOfAnotherEdition(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	schema := postgres.WithSchema(s.SchemaName())
	held := win(t, s, session(t, s, "a", lasting), "job")
	exec := func(q string) {
		_, err := p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName()))
		require.NoError(t, err)
	}
	const none = "CREATE OR REPLACE FUNCTION %s.get(p_names text[]) RETURNS SETOF %[1]s.record LANGUAGE sql AS 'SELECT r.* FROM %[1]s.record r WHERE false'"
	stands := func() int {
		recs, err := silent(t, p, schema).Get(t.Context(), "job")
		require.NoError(t, err)
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
			deniedBy(t, silent(t, p, schema), postgres.ErrSchema, "has functions of edition 0, which is older than 1: call Migrate")
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
