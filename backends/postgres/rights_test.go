//go:build unix

package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// TestRightsOfMigrate: what it lacks is named, and once it is granted it goes on.
func TestRightsOfMigrate(t *testing.T) {
	t.Parallel()
	srv := server(t)
	exec := func(q string) { t.Helper(); require.NoError(t, srv.Exec(t.Context(), q)) }
	exec(`CREATE ROLE "mig-1" LOGIN; CREATE ROLE mig_2 LOGIN`)
	require.NoError(t, srv.NewDatabase(t.Context(), "rights-db", ""))
	as := func(role, schema string) *postgres.Store {
		return silent(t, postgrestest.PoolOf(t, srv.URLOf(role, "rights-db")), postgres.WithSchema(schema))
	}
	refused := func(s *postgres.Store, says string) {
		t.Helper()
		err := s.Migrate(t.Context())
		require.ErrorIs(t, err, postgres.ErrPermission)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "EXECUTE")
	}
	conn := must(srv.ConnTo(t.Context(), "rights-db"))(t)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	grant := func(q string) {
		t.Helper()
		must(conn.Exec(t.Context(), q))(t)
	}
	refused(as("mig-1", "made"), `GRANT CREATE ON DATABASE "rights-db" TO "mig-1"`)
	grant(`GRANT CREATE ON DATABASE "rights-db" TO "mig-1"`)
	require.NoError(t, as("mig-1", "made").Migrate(t.Context()))

	grant("CREATE SCHEMA given")
	refused(as("mig_2", "given"), "GRANT USAGE, CREATE ON SCHEMA given TO mig_2")
	grant("GRANT USAGE ON SCHEMA given TO mig_2")
	refused(as("mig_2", "given"), "GRANT USAGE, CREATE ON SCHEMA given TO mig_2")
	grant("GRANT USAGE, CREATE ON SCHEMA given TO mig_2")
	require.NoError(t, as("mig_2", "given").Migrate(t.Context()))
	grant("DROP FUNCTION given.edition()")
	grant("REVOKE CREATE ON SCHEMA given FROM mig_2")
	refused(as("mig_2", "given"), "GRANT USAGE, CREATE ON SCHEMA given TO mig_2")

	// Functions of an older edition, of another role.
	grant("DROP FUNCTION made.edition()")
	refused(as("mig_2", "made"), `belongs to "mig-1": have "mig-1" call Migrate or apply Functions, not mig_2`)
	grant("GRANT USAGE, CREATE ON SCHEMA made TO mig_2")
	refused(as("mig_2", "made"), `belongs to "mig-1"`)
	require.NoError(t, as("mig-1", "made").Migrate(t.Context()))
	works(t, as("mig-1", "made"))

	// Nothing to do, but no right to use it.
	grant("REVOKE USAGE ON SCHEMA made FROM mig_2")
	err := as("mig_2", "made").Migrate(t.Context())
	require.ErrorIs(t, err, postgres.ErrPermission)
	require.ErrorContains(t, err, "GRANT USAGE ON SCHEMA made")
}
