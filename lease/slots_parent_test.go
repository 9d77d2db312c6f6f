package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// A pool's slots hang on a lease: who waits for one begins with it, as with Run, and stops with
// it. A slot that ended on time comes back, and keeps no parent up.
func TestAPoolUnderAParent(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memory.Store) {
		store := &ordered{Store: inner}
		a := start(t, store, "a")
		parent := a.lease("parent")
		p := a.pool("slot", 1, lease.WithParent(parent), lease.WithRenewal(lease.RenewNever()))
		run := func(stop time.Duration) (began <-chan time.Time, ended <-chan error) {
			at, err := make(chan time.Time, 1), make(chan error, 1)
			go func() {
				err <- p.Run(context.Background(), func(ctx context.Context, _ int, _ lease.Term) error {
					at <- time.Now()
					<-ctx.Done()
					time.Sleep(stop)
					return nil
				})
			}()
			return at, err
		}
		began, ended := run(2 * time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, began)
		mustWin(t, parent)
		held := time.Now()
		require.Equal(t, held, <-began)
		time.Sleep(time.Second)
		require.NoError(t, parent.Release(t.Context()))
		require.Equal(t, held.Add(3*time.Second), time.Now(), "when the work had stopped")
		require.ErrorIs(t, <-ended, lease.ErrParentLost)
		require.Equal(t, []string{"slot/0", "parent"}, store.all())

		mustWin(t, parent)
		began, ended = run(0)
		<-began
		require.ErrorIs(t, <-ended, lease.ErrLapsed)
		began, ended = run(0) // the slot is back
		<-began
		require.NoError(t, parent.Release(t.Context()))
		require.ErrorIs(t, <-ended, lease.ErrParentLost)

		_, ended = run(0)
		time.Sleep(time.Minute)
		require.NoError(t, parent.Close(t.Context()))
		err := <-ended
		require.True(t, errors.Is(err, lease.ErrClosed), "%v", err)
	})
}
