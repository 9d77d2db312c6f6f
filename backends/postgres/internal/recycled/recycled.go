// Package recycled is for tests that need an empty store each, and many of them. A schema has dozens
// of functions, each of which every connection plans again, so that a case which makes a schema
// costs more than all that it does. So each gets one that another has used: emptied, and rested.
//
// What was under way when that other case ended may come late. It does nothing then: the sessions
// that it is about are gone.
package recycled

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// Schemas are those of the cases of one kit.
type Schemas struct {
	pool     *pgxpool.Pool
	patience time.Duration

	mu   sync.Mutex
	made int
	rest []rested
}

type rested struct {
	name  string
	since time.Time
}

// resting is how long a schema is left alone.
const resting = 3 * time.Second

// Of has the schemas in the pool's database. A server that does not answer is tried again for patience.
func Of(pool *pgxpool.Pool, patience time.Duration) *Schemas {
	return &Schemas{pool: pool, patience: patience}
}

// Name is a schema for the case: empty, and as Migrate makes it.
func (s *Schemas) Name(tb storetest.TB) string {
	tb.Helper()
	name, used := s.take()
	prepare := func(ctx context.Context) error { return s.empty(ctx, name) } // again: what came late
	if !used {
		prepare = func(ctx context.Context) error {
			store, err := postgres.New(s.pool, postgres.WithSchema(name))
			if err != nil {
				return err
			}
			return store.Migrate(ctx)
		}
	}
	if err := s.until(tb.Context(), prepare); err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() || s.until(context.Background(), func(ctx context.Context) error { return s.empty(ctx, name) }) != nil {
			return // it is not used again
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rest = append(s.rest, rested{name, time.Now()})
	})
	return name
}

// Client makes a client of a store.
func (s *Schemas) Client(tb storetest.TB, schema string, opts ...postgres.Option) *postgres.Store {
	tb.Helper()
	store, err := postgres.New(s.pool, append(opts, postgres.WithSchema(schema))...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return store
}

func (s *Schemas) take() (name string, used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) == 0 || time.Since(s.rest[0].since) < resting {
		s.made++
		return fmt.Sprintf("recycled_%d", s.made), false
	}
	name = s.rest[0].name
	s.rest = s.rest[1:]
	return name, true
}

// empty removes all that a case wrote. Numbers of changes go on.
func (s *Schemas) empty(ctx context.Context, schema string) (err error) {
	for _, table := range []string{"lease", "session", "change", "entity", "entity_mark"} {
		if err == nil {
			_, err = s.pool.Exec(ctx, fmt.Sprintf("DELETE FROM %s.%s", schema, table), pgx.QueryExecModeExec)
		}
	}
	return err
}

// until repeats f until it succeeds, or for as long as the patience goes.
func (s *Schemas) until(ctx context.Context, f func(context.Context) error) error {
	for deadline := time.Now().Add(s.patience); ; time.Sleep(50 * time.Millisecond) {
		attempt, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := f(attempt)
		cancel()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}
