//go:build unix

package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/internal/recycled"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// schemas gives every case its own fresh, empty store in one database.
var schemas atomic.Int64

func fresh(tb storetest.TB, pool *pgxpool.Pool, opts ...postgres.Option) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(pool, append(opts, postgres.WithSchema(fmt.Sprintf("case_%d", schemas.Add(1))))...)
	if err == nil {
		err = s.Migrate(tb.Context())
	}
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// again is another client of the same store.
func again(tb storetest.TB, pool *pgxpool.Pool, of *postgres.Store, opts ...postgres.Option) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(pool, append(opts, postgres.WithSchema(of.SchemaName()))...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// Runs of the kit are not beside each other: two processors have no time for several at once.
func TestConformance(t *testing.T) {
	server := postgrestest.Start(t)
	pool := server.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 60 })
	cases := recycled.Of(pool, 0)
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		schema := cases.Name(tb)
		return func() store.Store { return cases.Client(tb, schema) }
	},
		storetest.TTL(3*time.Second),
		storetest.Unreachable(func(tb storetest.TB) func() store.Store {
			schema := cases.Name(tb)
			route, err := server.NewRoute()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			cut := route.Pool(t)
			route.Cut()
			return func() store.Store { return recycled.Of(cut, 0).Client(tb, schema) }
		}),
		storetest.BadRecords(func(tb storetest.TB) (func() store.Store, func(string)) {
			schema := cases.Name(tb)
			n := 0
			return func() store.Store { return cases.Client(tb, schema) }, func(name string) {
				n++
				spoil(tb, pool, cases.Client(tb, schema), name, n)
			}
		}),
		storetest.Restart(func(tb storetest.TB) (func() store.Store, func()) {
			own := postgrestest.Start(t)
			pool := own.Pool(t)
			first := fresh(tb, pool)
			return func() store.Store { return again(tb, pool, first) }, func() {
				if err := own.Restart(tb.Context()); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}),
	)
}

// spoil writes something under a free name that is no record of this version, past the Store, as
// a newer version would: with a change.
func spoil(tb storetest.TB, pool *pgxpool.Pool, s *postgres.Store, name string, n int) {
	tb.Helper()
	rows := []string{"2, NULL, NULL", "2, 7, 'x'", "0, 7, NULL"}
	q := fmt.Sprintf(`WITH l AS (INSERT INTO %[1]s.lease (name, rev, nonce, format, session, meta) VALUES ($1, 1, 1, %[2]s)
		ON CONFLICT (name) DO UPDATE SET rev = %[1]s.next_rev(%[1]s.lease.rev), nonce = 1, format = excluded.format,
			session = excluded.session, meta = excluded.meta RETURNING *)
		INSERT INTO %[1]s.change (seq, at, put, format, name, rev)
		SELECT nextval('%[1]s.change_seq'), clock_timestamp(), true, l.format, l.name, l.rev FROM l`, s.SchemaName(), rows[n%len(rows)])
	if _, err := pool.Exec(tb.Context(), q, name); err != nil {
		tb.Fatalf("%v", err)
	}
}
