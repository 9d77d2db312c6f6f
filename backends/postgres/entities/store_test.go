//go:build unix

package entities_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/entities"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/remembertest"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var schemas atomic.Int64

// place is a fresh schema on a server.
type place struct {
	t       *testing.T
	server  *postgrestest.Server
	pool    *pgxpool.Pool
	leases  *postgres.Store
	store   *entities.Store
	handles map[string]*lease.Handle
	keeper  *lease.Keeper
}

func newPlace(t *testing.T, server *postgrestest.Server) *place {
	t.Helper()
	p := &place{t: t, server: server, pool: server.Pool(t), handles: map[string]*lease.Handle{}}
	var err error
	p.leases, err = postgres.New(p.pool, postgres.WithSchema(fmt.Sprintf("place_%d", schemas.Add(1))))
	require.NoError(t, err)
	require.NoError(t, p.leases.Migrate(t.Context()))
	p.store = p.over(p.pool)
	p.keeper, err = lease.NewKeeper(p.leases, lease.Config{ID: "node-1"})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for _, h := range p.handles {
			require.NoError(t, h.Release(ctx))
		}
		require.NoError(t, p.keeper.Close(ctx))
	})
	return p
}

// over returns a store of this place over another pool.
func (p *place) over(pool *pgxpool.Pool) *entities.Store {
	p.t.Helper()
	s := must(entities.New(pool, p.leases))(p.t)
	return s
}

// own releases and acquires the lease of name.
func (p *place) own(name string) lease.Ownership {
	p.t.Helper()
	h := p.handles[name]
	if h == nil {
		h = must(p.keeper.Lease(name))(p.t)
		p.handles[name] = h
	}
	require.NoError(p.t, h.Release(p.t.Context()))
	ok := must(h.Acquire(p.t.Context()))(p.t)
	require.True(p.t, ok)
	term, ok := h.Term()
	require.True(p.t, ok)
	return term
}

func TestConformance(t *testing.T) {
	server := postgrestest.Start(t)
	remembertest.Run(t, func(t *testing.T) (sharding.EntityStore, func(string) lease.Ownership) {
		p := newPlace(t, server)
		return p.store, p.own
	})
}

// TestReleasedLease: it takes no successor to be stale.
func TestReleasedLease(t *testing.T) {
	p := newPlace(t, postgrestest.Start(t))
	const name = "shard/g/t/1"
	o := p.own(name)
	require.NoError(t, p.store.Update(t.Context(), o, []string{"a/b", "nul\x00", `back\slash "quoted" {}`}, nil))
	require.NoError(t, p.handles[name].Release(t.Context()))
	require.ErrorIs(t, p.store.Update(t.Context(), o, []string{"c"}, nil), sharding.ErrStaleOwner)
	_, err := p.store.Load(t.Context(), o)
	require.ErrorIs(t, err, sharding.ErrStaleOwner)
	ids := must(p.store.Load(t.Context(), p.own(name)))(t)
	require.ElementsMatch(t, []string{"a/b", "nul\x00", `back\slash "quoted" {}`}, ids, "what is remembered outlives the lease")
}

// TestLate: a request that was given up comes through after a later one was applied, and is not
// applied any more.
func TestLate(t *testing.T) {
	p := newPlace(t, postgrestest.Start(t))
	o := p.own("shard/g/t/1")
	require.NoError(t, p.store.Update(t.Context(), o, []string{"stays"}, nil))
	// A transaction of another keeps the mark for a while: the late request waits there.
	tx := must(p.pool.Begin(t.Context()))(t)
	_, err := tx.Exec(t.Context(), "SELECT 1 FROM "+p.leases.SchemaName()+".entity_mark FOR UPDATE")
	require.NoError(t, err)
	slow := p.over(p.server.Pool(t))
	late := make(chan error, 1)
	go func() { late <- slow.Update(context.Background(), o, []string{"late"}, []string{"stays"}) }()
	time.Sleep(100 * time.Millisecond)
	_, err = tx.Exec(t.Context(), "UPDATE "+p.leases.SchemaName()+".entity_mark SET mark = mark + 1")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-late, "it found the mark changed, and was sent anew from there")

	// One whose sender is gone is not sent anew.
	mark := func() (n int64) {
		require.NoError(t, p.pool.QueryRow(t.Context(), "SELECT mark FROM "+p.leases.SchemaName()+".entity_mark").Scan(&n))
		return n
	}
	before := mark()
	_, err = p.store.Load(t.Context(), o)
	require.NoError(t, err)
	var applied bool
	require.NoError(t, p.pool.QueryRow(t.Context(), "SELECT applied FROM "+p.leases.SchemaName()+".entities_update($1, $2, $3, '{lost}', '{}')",
		o.Name(), int64(o.Token()), before).Scan(&applied))
	require.False(t, applied)
	ids := must(p.store.Load(t.Context(), o))(t)
	require.Equal(t, []string{"late"}, ids)
}

func TestBadInput(t *testing.T) {
	pool := must(pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none"))(t)
	t.Cleanup(pool.Close)
	leases := must(postgres.New(pool))(t)
	_, err := entities.New(nil, leases)
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = entities.New(pool, nil)
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = entities.New(pool, &postgres.Store{})
	require.ErrorIs(t, err, store.ErrInvalid)
	s := must(entities.New(pool, leases))(t)
	for _, o := range []lease.Ownership{nil, owned{"", 1}, owned{"a", 0}, owned{"a", 1 << 63}} {
		_, err := s.Load(t.Context(), o)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorIs(t, s.Update(t.Context(), o, nil, nil), store.ErrInvalid)
	}
	_, err = new(entities.Store).Load(t.Context(), owned{"a", 1})
	require.ErrorIs(t, err, store.ErrInvalid)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(entities.Store))
}

type owned struct {
	name  string
	token store.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() store.Token { return o.token }

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
