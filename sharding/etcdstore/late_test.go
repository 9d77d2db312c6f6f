package etcdstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/sharding"
)

// TestAServersWordForLate: a server whose time for a request was over says so in its
// own terms; the caller reads of the context that set the time, and of nothing else.
func TestAServersWordForLate(t *testing.T) {
	timedOut := rpctypes.Error(rpctypes.ErrGRPCTimeout)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, timedOut, late(ctx, timedOut), "the server's own time was over")
		time.Sleep(time.Second) // the timer need not have fired
		require.ErrorIs(t, late(ctx, timedOut), context.DeadlineExceeded)
		require.ErrorIs(t, late(ctx, timedOut), timedOut)

		canceled, stop := context.WithCancel(t.Context())
		stop()
		require.ErrorIs(t, late(canceled, timedOut), context.Canceled)
		for _, definite := range []error{sharding.ErrStaleOwner, errClosed, rpctypes.Error(rpctypes.ErrGRPCNoSpace)} {
			require.Equal(t, definite, late(canceled, definite))
		}
	})
}
