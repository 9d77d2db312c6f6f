package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var node = store.Session{ID: 5, Owner: store.Owner{ID: "a", Incarnation: "a-1"}, TTL: time.Hour}

var errWhy = errors.New("the test's reason")

// kit is a faulty store with an open session over a store that is looked at
// directly.
type kit struct {
	*faultstore.Store
	inner *memory.Store
	begin time.Time
}

// bubble runs f on fake time.
func bubble(t *testing.T, f func(t *testing.T, k kit)) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		_, err := inner.OpenSession(t.Context(), node)
		require.NoError(t, err)
		f(t, kit{faultstore.Wrap(inner), inner, time.Now()})
	})
}

// always makes every call meet one fault.
func (k kit) always(f faultstore.Fault) {
	k.SetRule(func(faultstore.Call) faultstore.Fault { return f })
}

// acquire claims "n" within a timeout; 0: without one.
func (k kit) acquire(t *testing.T, timeout time.Duration) error {
	ctx := t.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errWhy)
		defer cancel()
	}
	outs, err := k.Acquire(ctx, node, []store.Claim{{Name: "n", Nonce: 1}})
	if err == nil {
		require.Len(t, outs, 1)
		require.True(t, outs[0].OK)
	}
	return err
}

// applied tells whether the claim has reached the inner store.
func (k kit) applied(t *testing.T) bool {
	rs, err := k.inner.Get(t.Context(), "n")
	require.NoError(t, err)
	return len(rs) == 1
}

// after checks that this much time has passed since the bubble began.
func (k kit) after(t *testing.T, d time.Duration) {
	t.Helper()
	require.Equal(t, d, time.Since(k.begin))
}
