//go:build unix

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/internal/recycled"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// TestConformanceThroughPgBouncer runs the kit through a pooler that gives each transaction another
// connection, with a listener past it.
func TestConformanceThroughPgBouncer(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance is the same without a pooler")
	postgrestest.Skip(t, postgrestest.NeedBouncer)
	server := postgrestest.Start(t)
	bouncer := must(server.NewBouncer(t.Context(), map[string]string{"default_pool_size": "10"}))(t)
	pool := postgrestest.PoolOf(t, bouncer.URL(), func(c *pgxpool.Config) { c.MaxConns = 60 })
	listener := postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, server.URL()) })
	cases := recycled.Of(pool, 0)
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		schema := cases.Name(tb)
		return func() store.Store { return cases.Client(tb, schema, listener) }
	}, storetest.TTL(2*time.Second))
}
