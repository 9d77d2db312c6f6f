package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// node is one Keeper with its own clock and its own, disturbable way to the
// store.
type node struct {
	*lease.Keeper
	t     *testing.T
	clock *faultclock.Clock
	store *faultstore.Store
}

// bubble runs a test on fake time.
func bubble(t *testing.T, f func(t *testing.T, store *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
}

// onOne runs a test of one node on fake time, onTwo one of two.
func onOne(t *testing.T, f func(t *testing.T, store *memory.Store, a *node)) {
	t.Helper()
	bubble(t, func(t *testing.T, store *memory.Store) { f(t, store, start(t, store, "a")) })
}

func onTwo(t *testing.T, f func(t *testing.T, store *memory.Store, a, b *node)) {
	t.Helper()
	onOne(t, func(t *testing.T, store *memory.Store, a *node) { f(t, store, a, start(t, store, "b")) })
}

// each runs a test on fake time for every row, under its name.
func each[R any](t *testing.T, rows map[string]R, f func(t *testing.T, store *memory.Store, row R)) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) { f(t, store, row) })
		})
	}
}

// watched runs a test against a store that lists by session, and one that can't.
func watched(t *testing.T, f func(t *testing.T, store store.Store)) {
	t.Helper()
	each(t, map[string]func(*memory.Store) store.Store{
		"everything is listed": func(s *memory.Store) store.Store { return sessionless(s) },
		"sessions are listed":  func(s *memory.Store) store.Store { return s },
	}, func(t *testing.T, s *memory.Store, less func(*memory.Store) store.Store) { f(t, less(s)) })
}

// start makes a node; it is closed with the test.
func start(t *testing.T, store store.Store, id string, change ...func(*lease.Config)) *node {
	t.Helper()
	n := &node{t: t, clock: faultclock.New(), store: faultstore.Wrap(store)}
	cfg := lease.Config{ID: id, Address: id + ":1", TTL: ttl, Clock: n.clock, Logger: zap.NewNop()}
	for _, f := range change {
		f(&cfg)
	}
	k, err := lease.NewKeeper(n.store, cfg)
	require.NoError(t, err)
	n.Keeper = k
	t.Cleanup(func() {
		n.clock.Thaw()
		n.clock.Wake()
		n.store.SetRule(nil)
		n.store.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		k.Close(ctx)
		n.store.Wait()
	})
	return n
}

// keeper makes a Keeper with nothing of a node; it is closed with the test.
func keeper(t *testing.T, db store.Store, cfg lease.Config) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(db, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close(context.Background())) })
	return k
}

// crash cuts the node off for good, as a dead process is.
func (n *node) crash() {
	n.clock.Freeze()
	n.store.Partition()
}

func (n *node) lease(name string, opts ...lease.Option) *lease.Handle {
	n.t.Helper()
	h, err := n.Lease(name, opts...)
	require.NoError(n.t, err)
	return h
}

// hold makes a handle and acquires it.
func (n *node) hold(name string, opts ...lease.Option) *lease.Handle {
	n.t.Helper()
	h := n.lease(name, opts...)
	mustWin(n.t, h)
	return h
}

func acquire(t *testing.T, l lease.Lease) bool {
	t.Helper()
	won, err := l.Acquire(t.Context())
	require.NoError(t, err)
	return won
}

func mustWin(t *testing.T, l lease.Lease) {
	t.Helper()
	require.True(t, acquire(t, l), "the lease should be won")
	require.True(t, l.CheckAlive())
}

func mustNotWin(t *testing.T, l lease.Lease) {
	t.Helper()
	require.False(t, acquire(t, l), "the lease is another's")
	require.False(t, l.CheckAlive())
}

// offerOf is an offer of h's to take its name over.
func offerOf(t *testing.T, h *lease.Handle) lease.Offer {
	t.Helper()
	o, err := h.Offer(t.Context())
	require.NoError(t, err)
	return o
}

func mustAdopt(t *testing.T, h *lease.Handle, o lease.Offer) {
	t.Helper()
	won, err := h.Adopt(t.Context(), o)
	require.NoError(t, err)
	require.True(t, won)
}

// remove deletes a record behind its owner's back.
func remove(t *testing.T, db store.Store, r lease.Record) {
	t.Helper()
	_, err := db.Release(t.Context(), []store.Held{r.Held()})
	require.NoError(t, err)
}

func token(t *testing.T, h *lease.Handle) lease.Token {
	t.Helper()
	term, ok := h.Term()
	require.True(t, ok, "a living term")
	return term.Token()
}

// losses collects what OnLost told.
type losses struct {
	mu   sync.Mutex
	told []lease.Loss
}

func watchLosses(l lease.Lease) *losses {
	s := &losses{}
	l.OnLost(func(x lease.Loss) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, x)
	})
	return s
}

func (s *losses) all() []lease.Loss {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]lease.Loss(nil), s.told...)
}

func (s *losses) one(t *testing.T, reason error) lease.Loss {
	t.Helper()
	all := s.all()
	require.Len(t, all, 1, "told of one loss")
	require.ErrorIs(t, all[0].Reason, reason)
	return all[0]
}

// standing returns the record of name, if one stands.
func standing(t *testing.T, store store.Store, name string) (lease.Record, bool) {
	t.Helper()
	recs, err := store.Get(context.Background(), name)
	require.NoError(t, err)
	if len(recs) == 0 {
		return lease.Record{}, false
	}
	return recs[0], true
}

// rule disturbs calls of one kind.
func (n *node) rule(op faultstore.Op, f faultstore.Fault) {
	n.store.SetRule(faultstore.On(f, op))
}
