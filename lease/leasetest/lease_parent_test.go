package leasetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// child is a lease that hangs on another, which is acquired with it.
type child struct {
	*lease.Handle
	parent *lease.Handle
}

func (c child) Acquire(ctx context.Context) (bool, error) {
	if won, err := c.parent.Acquire(ctx); !won {
		return false, err
	}
	return c.Handle.Acquire(ctx)
}

// TestALossByAParentHasAReason: ErrParentLost is one of those of lease.Loss.
func TestALossByAParentHasAReason(t *testing.T) {
	parents := func(tb TB) Bare {
		const ttl = 10 * time.Second
		shared, cut := memory.New(), map[lease.Lease]*lease.Handle{}
		return Bare{
			TTL: ttl,
			Lease: func() lease.Lease {
				k, err := lease.NewKeeper(shared, lease.Config{ID: "n", TTL: ttl, Logger: zap.NewNop()})
				if err != nil {
					tb.Fatalf("%v", err)
				}
				tb.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), ttl)
					defer cancel()
					_ = k.Close(ctx)
				})
				parent, _ := k.Lease("parent")
				h, _ := k.Lease("job", lease.WithParent(parent))
				l := child{h, parent}
				cut[l] = parent
				return l
			},
			Cut: func(l lease.Lease, on bool) { // what the child hangs on ends
				if on {
					_ = cut[l].Release(context.Background())
				}
			},
		}
	}
	for _, c := range bareLostCases {
		if c.name == "lost/told-once" || c.name == "lost/each-loss" {
			require.Empty(t, findings(t, parents, []bareCase{c}))
		}
	}
}
