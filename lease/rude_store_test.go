package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// brokenStore answers with one token, whatever it has issued.
type brokenStore struct {
	store.Store
	token lease.Token
}

func (b brokenStore) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	outs, err := b.Store.Acquire(ctx, s, claims)
	for i := range outs {
		outs[i].Record.Token = b.token
	}
	return outs, err
}

func TestARepeatedTokenIsNotTrusted(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, brokenStore{store, 7}, "a")
		la := a.hold("job")
		require.NoError(t, la.Release(t.Context()))
		won, err := la.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.False(t, la.CheckAlive())
	})
}

// A success without a token is a broken answer, and says nothing of the store's history:
// what else there is is not ended, and the next answer may be right.
func TestAWinWithoutATokenIsNoSetback(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		broken := &fickleStore{Store: store}
		a := start(t, broken, "a")
		other := a.hold("other")
		broken.is = true
		l := a.lease("job")
		won, err := l.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.NotErrorIs(t, err, lease.ErrSetback)
		require.NoError(t, a.Setback())
		require.True(t, other.CheckAlive())
		broken.is = false
		mustWin(t, l)
	})
}

// fickleStore is broken at times.
type fickleStore struct {
	store.Store
	is bool
}

func (f *fickleStore) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	if f.is {
		return brokenStore{f.Store, 0}.Acquire(ctx, s, claims)
	}
	return f.Store.Acquire(ctx, s, claims)
}

// rudeStore panics or never returns, whatever its context says.
type rudeStore struct {
	store.Store
	manner string
	hang   chan struct{}
}

func (r *rudeStore) Renew(ctx context.Context, s []store.Session) ([]store.Grant, error) {
	if r.manner == "panics" {
		panic("rude")
	}
	<-r.hang
	return nil, errors.New("late")
}

func TestARudeStoreHarmsNobody(t *testing.T) {
	for _, manner := range []string{"panics", "hangs"} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			hang := make(chan struct{})
			a := start(t, &rudeStore{Store: store, manner: manner, hang: hang}, "a")
			la := a.hold("job")
			lost := watchLosses(la)
			time.Sleep(ttl)
			require.False(t, la.CheckAlive())
			lost.one(t, lease.ErrExpired)
			mustWin(t, la)
			close(hang)
		})
	}
}

// panickingStore panics when it is read.
type panickingStore struct{ store.Store }

func (panickingStore) Get(context.Context, ...string) ([]lease.Record, error) { panic("rude") }

// A request that panicked has no answer: least of all that a name is free.
func TestAPanicIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, err := lease.NewKeeper(panickingStore{store}, lease.Config{ID: "a", TTL: ttl})
		require.NoError(t, err)
		defer func() { require.NoError(t, k.Close(context.Background())) }()
		h, err := k.Lease("job")
		require.NoError(t, err)
		_, _, err = h.Holder(t.Context())
		require.ErrorContains(t, err, "the store panicked: rude")
		require.Error(t, k.Health(t.Context()))
	})
}
