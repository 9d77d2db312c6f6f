//go:build unix

package entities_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// TestConnectionsThatAreNotFit: the entities' pool is asked, too, what it makes of what it is sent.
func TestConnectionsThatAreNotFit(t *testing.T) {
	p := newPlace(t, postgrestest.Start(t))
	o := p.own("shard/g/t/ä")
	require.NoError(t, p.store.Update(t.Context(), o, []string{"a"}, nil))
	for setting, value := range map[string]string{"client_encoding": "LATIN1", "array_nulls": "off"} {
		s := p.over(p.server.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[setting] = value }))
		_, load := s.Load(t.Context(), o)
		for _, err := range []error{load, s.Update(t.Context(), o, []string{"b"}, nil)} {
			require.ErrorIs(t, err, store.ErrDenied)
			require.ErrorIs(t, err, postgres.ErrUnsafeServer)
			require.NotErrorIs(t, err, sharding.ErrStaleOwner, "it is held")
			require.ErrorContains(t, err, setting+" is "+value)
		}
	}
	ids := must(p.store.Load(t.Context(), o))(t)
	require.Equal(t, []string{"a"}, ids)
}
