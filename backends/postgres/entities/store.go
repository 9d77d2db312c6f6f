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
	shards sync.Map // *shard, by lease name, kept for good
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
	return &Store{db: db.OfPool(pool), leases: leases, schema: leases.SchemaName()}, nil
}

// enter checks the arguments of a call, and waits for its turn with the shard: transactions that
// overlap would guard the lease without a gap, and its release waits for none. The caller ends the
// turn.
func (s *Store) enter(ctx context.Context, o lease.Ownership, ids ...string) (*shard, error) {
	if s.db == nil {
		return nil, fmt.Errorf("%w: the store is the zero value, must come from entities.New", store.ErrInvalid)
	}
	if err := sharding.ValidateCall(ctx, o, ids...); err != nil {
		return nil, err
	}
	if o.Token() > math.MaxInt64 {
		return nil, fmt.Errorf("token: %w: %d, must be that of a lease in PostgreSQL", store.ErrInvalid, o.Token())
	}
	known, _ := s.shards.LoadOrStore(o.Name(), &shard{turn: make(chan struct{}, 1)})
	sh := known.(*shard)
	select {
	case sh.turn <- struct{}{}:
		return sh, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// explain says which shard an error is about, in the terms of sharding.EntityStore.
func explain(ctx context.Context, what string, o lease.Ownership, err error) error {
	if err == nil || input.Nil(o) {
		return err
	}
	switch db.StateOf(err) {
	case postgres.FencedState:
		err = fmt.Errorf("the lease has not token %d: %w", o.Token(), sharding.ErrStaleOwner)
	case db.StateTimeline:
		err = fmt.Errorf("%w: %w: %w", store.ErrDenied, postgres.ErrOldPrimary, err)
	case db.StateSettings:
		err = fmt.Errorf("%w: %w: %w", store.ErrDenied, postgres.ErrUnsafeServer, err)
	}
	if ctx != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("postgres entities of %s: %s: %w", o.Name(), what, err)
}

// Load implements sharding.EntityStore. All ids are of one moment.
func (s *Store) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	ids, err := s.load(ctx, o)
	return ids, explain(ctx, "load", o, err)
}

func (s *Store) load(ctx context.Context, o lease.Ownership) (ids []string, err error) {
	sh, err := s.enter(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { <-sh.turn }()
	query := "SELECT mark, id FROM " + s.function("entities_load") + "($1::text, $2::bigint)"
	err = s.run(ctx, query, []any{o.Name(), int64(o.Token())}, func(scan db.Scan) error {
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
		return nil, err
	}
	return ids, nil
}

// Update implements sharding.EntityStore. It is applied as a whole.
func (s *Store) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	return explain(ctx, "update", o, s.update(ctx, o, add, remove))
}

func (s *Store) update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	sh, err := s.enter(ctx, o, slices.Concat(add, remove)...)
	if err != nil {
		return err
	}
	defer func() { <-sh.turn }()
	query := "SELECT applied, mark FROM " + s.function("entities_update") +
		"($1::text, $2::bigint, $3::bigint, $4::text[], $5::text[])"
	for applied := false; !applied; {
		err := s.run(ctx, query, []any{o.Name(), int64(o.Token()), sh.mark, db.Array(add, db.Escape), db.Array(remove, db.Escape)},
			func(scan db.Scan) error { return scan(&applied, &sh.mark) })
		if err != nil {
			return err
		}
		// If not applied, the mark was changed by a write of ours whose answer did not come, or by
		// another Store: again from there.
	}
	return nil
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
