package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// A request that was sent may be applied, though its caller no longer waits for the answer. One
// that was not sent is not.
func TestWhatIsCutOffIsUnknownIfItWasSent(t *testing.T) {
	slow := faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 2 * time.Second}
	for what, op := range map[string]struct {
		op faultstore.Op
		do func(n *node, la *lease.Handle, o lease.Offer) error
	}{
		"transfer": {faultstore.Transfer, func(_ *node, la *lease.Handle, o lease.Offer) error {
			return la.Transfer(context.Background(), o)
		}},
		"release": {faultstore.Release, func(_ *node, la *lease.Handle, _ lease.Offer) error {
			return la.Release(context.Background())
		}},
		"acquire": {faultstore.Acquire, func(n *node, _ *lease.Handle, _ lease.Offer) error {
			_, err := n.lease("free").Acquire(context.Background())
			return err
		}},
		"adopt": {faultstore.Acquire, func(n *node, _ *lease.Handle, _ lease.Offer) error {
			h := n.lease("free")
			o, err := h.Offer(context.Background())
			if err == nil {
				_, err = h.Adopt(context.Background(), o)
			}
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				la := a.hold("job")
				o := offerOf(t, b.lease("job"))
				a.rule(op.op, slow)
				got, next := make(chan error, 1), make(chan error, 1)
				go func() { got <- op.do(a, la, o) }()
				synctest.Wait()
				go func() { next <- la.Transfer(context.Background(), o) }()
				synctest.Wait()
				_ = a.Close(within(t, time.Second))
				err := <-got
				require.ErrorIs(t, err, lease.ErrClosed)
				require.ErrorIs(t, err, lease.ErrUnknown)
				if what == "transfer" || what == "release" { // the other waited behind it
					err = <-next
					require.ErrorIs(t, err, lease.ErrClosed)
					require.NotErrorIs(t, err, lease.ErrUnknown, "nothing was sent of it")
				}
			})
		})
	}
}

// An acquisition that another goroutine's Release ends may have been applied, too.
func TestAnAcquireThatIsReleasedIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		a.hold("another")
		la := a.lease("job")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		got := meanwhile(func() error { _, err := la.Acquire(context.Background()); return err })
		synctest.Wait()
		require.NoError(t, la.Release(t.Context()))
		err := <-got
		require.ErrorIs(t, err, lease.ErrReleased)
		require.ErrorIs(t, err, lease.ErrUnknown)
		requireFree(t, store, "job")
	})
}
