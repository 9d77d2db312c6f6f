//go:build unix

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// number is what a query about the schema counts.
func number(t *testing.T, p *pgxpool.Pool, s *postgres.Store, query string) (n int) {
	t.Helper()
	require.NoError(t, p.QueryRow(t.Context(), fmt.Sprintf(query, s.SchemaName())).Scan(&n))
	return n
}

const (
	sessions = "SELECT count(*) FROM %s.session"
	standing = "SELECT count(*) FROM %s.lease WHERE session IS NOT NULL"
)

// TestWhoOnlyAcquiresKeepsHouse: rows don't stay for ever where no Store watches, as where leases are
// taken by lease/provider alone, and run out.
func TestWhoOnlyAcquiresKeepsHouse(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	for i := range 30 {
		x := session(t, s, "a")
		win(t, s, x, fmt.Sprintf("once/%d", i))
		lasts(t, p, s, x, 0)
	}
	for _, q := range []string{
		"UPDATE %s.state SET purged = '-infinity'",
		"UPDATE %s.change SET at = at - interval '11 min'",
		"INSERT INTO %s.lease (name, since) SELECT 'free/' || i, clock_timestamp() - interval '2 h' FROM generate_series(1, 30) i",
	} {
		_, err := p.Exec(t.Context(), fmt.Sprintf(q, s.SchemaName()))
		require.NoError(t, err)
	}
	p.Reset()
	s = again(t, p, s) // as another process
	x := session(t, s, "b")
	eventually(t, "what ran out is gone, and what is old", func() bool {
		r := win(t, s, x, "job")
		out, err := s.Release(t.Context(), []lease.Held{r.Held()})
		require.NoError(t, err)
		require.True(t, out[0].OK)
		return number(t, p, s, sessions) == 1 && number(t, p, s, standing) == 0 &&
			number(t, p, s, "SELECT count(*) FROM %s.lease WHERE name LIKE 'free/%%'") == 0 &&
			number(t, p, s, "SELECT count(*) FROM %s.change WHERE at < clock_timestamp() - interval '10 min'") == 0
	})
}
