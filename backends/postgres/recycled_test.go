//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

// recycled are the schemas of the cases of one kit. A schema is made of dozens of functions, each
// of which every connection plans anew, so that a case which makes one costs more than all that it
// does. So each case gets one that another has used, emptied, and that has rested: what was under
// way when that case ended has come to nothing by then.
type recycled struct {
	open func(...postgres.Option) (*postgres.Store, error)
	exec func(ctx context.Context, query string) error

	mu   sync.Mutex
	rest []rested
}

type rested struct {
	name  string
	since time.Time
}

func recycledOf(pool *pgxpool.Pool) *recycled {
	return &recycled{
		open: func(opts ...postgres.Option) (*postgres.Store, error) {
			return postgres.New(pool, opts...)
		},
		exec: func(ctx context.Context, query string) error {
			_, err := pool.Exec(ctx, query, pgx.QueryExecModeExec)
			return err
		},
	}
}

// resting is how long a schema is left alone.
const resting = 3 * time.Second

func (r *recycled) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rest) == 0 || time.Since(r.rest[0].since) < resting {
		return ""
	}
	name := r.rest[0].name
	r.rest = r.rest[1:]
	return name
}

// empty removes all that a case wrote. Numbers of changes go on.
func (r *recycled) empty(ctx context.Context, schema string) (err error) {
	for _, table := range []string{"lease", "session", "change", "entity", "entity_mark"} {
		if err == nil {
			err = r.exec(ctx, fmt.Sprintf("DELETE FROM %s.%s", schema, table))
		}
	}
	return err
}

// schema is one for the case: empty, and as Migrate makes it.
func (r *recycled) schema(tb leasetest.TB) postgres.Option {
	tb.Helper()
	name := r.take()
	if name == "" {
		name = fmt.Sprintf("case_%d", schemas.Add(1))
		s, err := r.open(postgres.WithSchema(name))
		if err == nil {
			err = s.Migrate(tb.Context())
		}
		if err != nil {
			tb.Fatalf("%v", err)
		}
	} else if err := r.empty(tb.Context(), name); err != nil { // again: what came late
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.empty(ctx, name); err != nil {
			return // it is not used again
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.rest = append(r.rest, rested{name, time.Now()})
	})
	return postgres.WithSchema(name)
}

// client makes a client of a store.
func (r *recycled) client(tb leasetest.TB, opts ...postgres.Option) *postgres.Store {
	tb.Helper()
	s, err := r.open(opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}
