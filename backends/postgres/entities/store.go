package entities

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// Store remembers entities in PostgreSQL. Make one with New. It is safe for concurrent use.
type Store struct {
	db     *db.DB
	leases *postgres.Store
	schema string

	mu     sync.Mutex
	shards map[string]*shard // by lease name, kept for good
}

// shard is what a Store knows of one.
type shard struct {
	turn chan struct{} // has room for one: who sends
	mark int64         // as last seen; by whose turn it is
}

var _ sharding.EntityStore = (*Store)(nil)

// New returns a store over pool, which it neither changes nor closes, fenced by leases, which must be
// in the same database; it uses their schema. It sends nothing. An error is store.ErrInvalid.
func New(pool *pgxpool.Pool, leases *postgres.Store) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("entities.New: pool: %w: nil, must come from pgxpool.New", store.ErrInvalid)
	}
	if leases == nil || leases.SchemaName() == "" {
		return nil, fmt.Errorf("entities.New: leases: %w: nil or the zero value, must come from postgres.New", store.ErrInvalid)
	}
	return &Store{db: db.OfPool(pool), leases: leases, schema: leases.SchemaName(), shards: map[string]*shard{}}, nil
}

// enter checks the arguments, waits for its turn with the shard, and returns how to end it. name
// and token are those of o at that moment.
func (s *Store) enter(ctx context.Context, o lease.Ownership) (
	sh *shard, name string, token store.Token, leave func(), err error) {
	if s.db == nil {
		return nil, "", 0, nil, fmt.Errorf("%w: the store is the zero value, must come from entities.New", store.ErrInvalid)
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return nil, "", 0, nil, err
	}
	if input.Nil(o) {
		return nil, "", 0, nil, fmt.Errorf("owner: %w: nil", store.ErrInvalid)
	}
	name, token = o.Name(), o.Token()
	if err := store.ValidateName(name); err != nil {
		return nil, name, token, nil, err
	}
	if token == 0 || token > math.MaxInt64 {
		return nil, name, token, nil, fmt.Errorf("token: %w: %d, must be that of a lease in PostgreSQL",
			store.ErrInvalid, token)
	}
	s.mu.Lock()
	sh = s.shards[name]
	if sh == nil {
		sh = &shard{turn: make(chan struct{}, 1)}
		s.shards[name] = sh
	}
	s.mu.Unlock()
	select {
	case sh.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, name, token, nil, ctx.Err()
	}
	leave = func() { <-sh.turn }
	if err := ctx.Err(); err != nil { // select draws if both are ready
		leave()
		return nil, name, token, nil, err
	}
	return sh, name, token, leave, nil
}

// explain says which shard an error is about, in the terms of sharding.EntityStore.
func explain(ctx context.Context, what, name string, token store.Token, err error) error {
	if err == nil {
		return nil
	}
	switch db.StateOf(err) {
	case postgres.FencedState:
		err = fmt.Errorf("the lease has not token %d: %w", token, sharding.ErrStaleOwner)
	case db.StateTimeline:
		err = fmt.Errorf("%w: %w: %w", store.ErrDenied, postgres.ErrOldPrimary, err)
	case db.StateSettings:
		err = fmt.Errorf("%w: %w: %w", store.ErrDenied, postgres.ErrUnsafeServer, err)
	}
	if ctx != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("postgres entities of %s: %s: %w", name, what, err)
}

// Load implements sharding.EntityStore. All ids are of one moment.
func (s *Store) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	sh, name, token, leave, err := s.enter(ctx, o)
	if err != nil {
		return nil, explain(ctx, "load", name, token, err)
	}
	defer leave()
	var ids []string
	query := "SELECT mark, id FROM " + s.function("entities_load") + "($1::text, $2::bigint)"
	err = s.run(ctx, query, []any{name, int64(token)},
		func(scan db.Scan) error {
			var mark int64
			var id *string
			if err := scan(&mark, &id); err != nil {
				return err
			}
			if id == nil {
				sh.mark = mark
				return nil
			}
			ids = append(ids, db.Unescape(*id))
			return nil
		})
	if err != nil {
		return nil, explain(ctx, "load", name, token, err)
	}
	return ids, nil
}

// Update implements sharding.EntityStore. It is applied as a whole.
func (s *Store) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	for _, id := range slices.Concat(add, remove) {
		if err := sharding.ValidateEntityID(id); err != nil {
			return fmt.Errorf("postgres entities: update: %w", err)
		}
	}
	sh, name, token, leave, err := s.enter(ctx, o)
	if err != nil {
		return explain(ctx, "update", name, token, err)
	}
	defer leave()
	for {
		applied, mark := false, int64(0)
		query := "SELECT applied, mark FROM " + s.function("entities_update") +
			"($1::text, $2::bigint, $3::bigint, $4::text[], $5::text[])"
		err := s.run(ctx, query, []any{name, int64(token), sh.mark, db.Array(add, db.Escape), db.Array(remove, db.Escape)},
			func(scan db.Scan) error { return scan(&applied, &mark) })
		if err != nil {
			return explain(ctx, "update", name, token, err)
		}
		sh.mark = mark
		if applied {
			return nil
		}
		// Changed by a write of ours whose answer did not come, or by another Store: again from there.
	}
}

// run makes one statement on a server that the leases' store would use: what an old primary says of a
// lease, or was told to remember, is nothing to the one that took its place.
func (s *Store) run(ctx context.Context, query string, args []any, row func(db.Scan) error) error {
	least := s.leases.Timeline()
	query, args = db.On(s.function("on_timeline"), least, db.AnyTimeline, query, args)
	err := s.db.Run(ctx, query, args, row)
	answered := err == nil || db.StateOf(err) == postgres.FencedState
	if now := s.leases.Timeline(); answered && now != least {
		return fmt.Errorf("the answer may be of timeline %d, and meanwhile the leases' store has used timeline %d, "+
			"which may not have what was done", least, now)
	}
	return err
}

// function is the name of a function of the schema.
func (s *Store) function(name string) string { return `"` + s.schema + `".` + name }
