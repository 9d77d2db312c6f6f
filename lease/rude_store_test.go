package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// brokenStore repeats tokens.
type brokenStore struct{ lease.Store }

func (b brokenStore) Acquire(ctx context.Context, s lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	outs, err := b.Store.Acquire(ctx, s, claims)
	for i := range outs {
		outs[i].Record.Token = 7
	}
	return outs, err
}

func TestARepeatedTokenIsNotTrusted(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, brokenStore{store}, "a")
		la := a.hold("job")
		require.NoError(t, la.Release(t.Context()))
		won, err := la.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.False(t, la.CheckAlive())
	})
}

// rudeStore panics, or never comes back, whatever its context says.
type rudeStore struct {
	lease.Store
	panics bool
	hang   chan struct{}
}

func (r *rudeStore) Renew(ctx context.Context, s []lease.Session) ([]lease.Grant, error) {
	if r.panics {
		panic("rude")
	}
	<-r.hang
	return nil, errors.New("late")
}

func TestARudeStoreHarmsNobody(t *testing.T) {
	for _, panics := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			hang := make(chan struct{})
			a := start(t, &rudeStore{Store: store, panics: panics, hang: hang}, "a")
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
