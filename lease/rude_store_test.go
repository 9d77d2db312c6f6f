package lease_test

import (
	"context"
	"errors"
	"runtime"
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

// rudeStore panics, ends its goroutine, or never comes back, whatever its context says.
type rudeStore struct {
	lease.Store
	manner string
	hang   chan struct{}
}

func (r *rudeStore) Renew(ctx context.Context, s []lease.Session) ([]lease.Grant, error) {
	switch r.manner {
	case "panics":
		panic("rude")
	case "leaves":
		runtime.Goexit()
	}
	<-r.hang
	return nil, errors.New("late")
}

func TestARudeStoreHarmsNobody(t *testing.T) {
	for _, manner := range []string{"panics", "leaves", "hangs"} {
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

// leavingStore ends its goroutine when it is to read.
type leavingStore struct{ lease.Store }

func (leavingStore) Get(context.Context, ...string) ([]lease.Record, error) {
	runtime.Goexit()
	return nil, nil
}

// A request whose goroutine ended has no answer: least of all that a name is free.
func TestAGoroutineThatEndsIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, err := lease.NewKeeper(leavingStore{store}, lease.Config{ID: "a", TTL: ttl})
		require.NoError(t, err)
		defer func() { require.NoError(t, k.Close(context.Background())) }()
		h, err := k.Lease("job")
		require.NoError(t, err)
		_, _, err = h.Holder(t.Context())
		require.ErrorContains(t, err, "ended its goroutine")
		require.Error(t, k.Health(t.Context()))
	})
}
