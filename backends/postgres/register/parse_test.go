package register

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

// TestQueriesArePassedOn as they are: what is not of this package means what it means to pgx.
func TestQueriesArePassedOn(t *testing.T) {
	for _, query := range []string{
		"", "options=-c%20search_path%3Dpublic", "application_name=my%20app", "application_name=my+app",
		"application_name=a;b", "application_name=a%2Bb%26c", "application_name=a@b/c", "password=a%20b", "x%20y=1",
		"application_name=%C3%A9", "application_name=a&application_name=b", "sslmode=disable&pool_max_conns=3",
		"application_name=a%3Fb?c",
	} {
		want, err := pgxpool.ParseConfig("postgres://u:p@db:5433/app?" + query)
		require.NoError(t, err, query)
		for _, with := range []string{
			query, query + "&holdfast_migrate=true&holdfast_schema=a%5Fb",
			"holdfast_migrate=true&" + query + "&holdfast_schema=a_b", "holdfast%5Fschema=a_b&holdfast_migrate=1&" + query,
		} {
			with = strings.Trim(strings.ReplaceAll(with, "&&", "&"), "&")
			got, set, err := parse("//u:p@db:5433/app?" + with)
			require.NoError(t, err, with)
			if with == query {
				require.Equal(t, settings{schema: postgres.DefaultSchema}, set)
			} else {
				require.Equal(t, settings{schema: "a_b", migrate: true}, set, with)
			}
			require.Equal(t, want.ConnConfig.RuntimeParams, got.ConnConfig.RuntimeParams, with)
			require.Equal(t, want.MaxConns, got.MaxConns)
			require.Equal(t, []string{want.ConnConfig.Host, want.ConnConfig.User, want.ConnConfig.Password, want.ConnConfig.Database},
				[]string{got.ConnConfig.Host, got.ConnConfig.User, got.ConnConfig.Password, got.ConnConfig.Database}, with)
		}
	}
	c, _, err := parse("//db/app?application_name=my%20app&options=-c%20search_path%3Dpublic")
	require.NoError(t, err)
	require.Equal(t, "my app", c.ConnConfig.RuntimeParams["application_name"])
	require.Equal(t, "-c search_path=public", c.ConnConfig.RuntimeParams["options"])

	// psql takes all before the '@' for a user.
	_, _, err = parse("//db?application_name=a@b")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "'@' behind '?'")
	_, _, err = parse("//u:p@db?application_name=a@b")
	require.NoError(t, err)
	_, _, err = parse("//db/app?holdfast_schema=%zz")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "no connection string")
}
