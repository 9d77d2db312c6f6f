package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// idle is a store that is not called.
type idle struct{ store.Store }

func (idle) Limits() store.Limits { return store.Limits{} }

// A request is bounded; what the store says when it is told to end still counts,
// if it comes within a tenth.
func TestCallIsBounded(t *testing.T) {
	const attempt = time.Second
	for _, c := range []struct {
		late  time.Duration // after the end of the attempt
		heard bool
	}{{0, true}, {attempt / 20, true}, {attempt / 5, false}} {
		synctest.Test(t, func(t *testing.T) {
			k, err := NewKeeper(idle{}, Config{ID: "a", AttemptTimeout: attempt})
			require.NoError(t, err)
			defer k.Close(t.Context())
			began := time.Now()
			v, err := call(&k.core, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				time.Sleep(c.late)
				return 7, nil
			})
			if c.heard {
				require.NoError(t, err)
				require.Equal(t, 7, v)
				require.Equal(t, attempt+c.late, time.Since(began))
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "no answer within 1s")
			require.Equal(t, attempt+attempt/10, time.Since(began))
		})
	}
}

// The default logger writes warnings: what it would not write does not wait for it.
func TestTheDefaultLoggersLevelIsKnown(t *testing.T) {
	core := newLater(boundary.Default(), zap.String("keeper", "a")).logger().Core()
	require.False(t, core.Enabled(zap.InfoLevel))
	require.True(t, core.Enabled(zap.WarnLevel))
}
