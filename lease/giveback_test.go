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

// slowToLook makes every look of the node last, and loses its acquisitions if it is told to.
func (n *node) slowToLook(acquiresLost bool) {
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		switch {
		case c.Op == faultstore.Get:
			return faultstore.Fault{Kind: faultstore.Delay, Delay: 500 * time.Millisecond}
		case c.Op == faultstore.Acquire && acquiresLost:
			return faultstore.Fault{Kind: faultstore.Drop}
		}
		return faultstore.Fault{}
	})
}

// An acquisition whose outcome is not known is looked for, and given back. What was
// transferred to an offer meanwhile is no acquisition.
func TestWhatWasTransferredIsNotGivenBack(t *testing.T) {
	for how, acquire := range map[string]func(t *testing.T, lb *lease.Handle){
		"its caller left": func(t *testing.T, lb *lease.Handle) {
			ctx := within(t, 300*time.Millisecond)
			_, err := lb.Acquire(ctx)
			require.ErrorIs(t, err, lease.ErrUnknown)
		},
		"it was released": func(t *testing.T, lb *lease.Handle) {
			_, err := lb.Acquire(t.Context())
			require.ErrorIs(t, err, lease.ErrUnknown)
			go lb.Release(context.Background())
		},
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				la, lb := a.hold("job"), b.lease("job")
				b.hold("another") // so that it has a session
				b.slowToLook(true)
				acquire(t, lb)
				b.slowToLook(false)
				synctest.Wait()
				time.Sleep(300 * time.Millisecond) // it looks
				o := offerOf(t, lb)
				require.NoError(t, la.Transfer(t.Context(), o))
				mustAdopt(t, lb, o)
				term, _ := lb.Term()
				require.True(t, term.(lease.Continuing).Adopted(o), "nobody could win in between")
			})
		})
	}
}

// What was transferred to an offer that its maker does not take up is released all the
// same, once the offer is over.
func TestWhatWasTransferredInVainIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		b.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Drop})
		ctx := within(t, 300*time.Millisecond)
		_, err := lb.Acquire(ctx)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NoError(t, la.Transfer(t.Context(), o))
		require.NoError(t, lb.Release(t.Context()))
		rec, ok := standing(t, store, "job")
		require.True(t, ok)
		require.Equal(t, o.Nonce, rec.Nonce, "the offer stands")
		time.Sleep(o.Lifetime + ttl + time.Second)
		requireFree(t, store, "job")
	})
}
