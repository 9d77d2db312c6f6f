package lease_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// noStop is a lease of the user's that has nothing to end a registration with.
type noStop struct{ plain }

func (*noStop) OnLost(func(lease.Loss)) func() bool { return nil }

// noStopAround wraps a lease in the same manner.
type noStopAround struct{ lease.Lease }

func (noStopAround) OnLost(func(lease.Loss)) func() bool { return nil }
func (n noStopAround) Unwrap() lease.Lease               { return n.Lease }

func TestALeaseWhoseOnLostReturnsNothing(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	defer k.Close(t.Context())
	h, err := k.Lease("a")
	require.NoError(t, err)
	for _, l := range []lease.Lease{&noStop{}, noStopAround{h}} {
		ran := false
		require.NoError(t, lease.TryRun(t.Context(), l, func(_ context.Context, held lease.Term) error {
			ran = held.CheckAlive()
			return nil
		}))
		require.True(t, ran, "%T", l)
	}
}
