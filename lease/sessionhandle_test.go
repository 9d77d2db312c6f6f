package lease_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// TestHandlesComeBack: in every call on a session, and in offers.
func TestHandlesComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		clients := func() lease.Store { return faultstore.Wrap(store, faultstore.WithHandles("here")) }
		a, b := start(t, clients(), "a"), start(t, clients(), "b")
		la, lb := a.hold("job"), b.lease("job")
		time.Sleep(3 * ttl) // renewed
		require.True(t, la.CheckAlive())
		o := offerOf(t, lb)
		require.True(t, strings.HasPrefix(o.Handle, "here/"), o.Handle)
		require.NoError(t, la.Transfer(t.Context(), o))
		mustAdopt(t, lb, o)
		require.NoError(t, lb.Release(t.Context()))
		mustWin(t, la)
		require.NoError(t, la.Close(t.Context()))
		time.Sleep(3 * ttl) // empty sessions are closed
		require.Positive(t, store.Stats().CloseSession)
	})
}

// TestAnOfferOfAnotherStore names a session that this one does not know under that handle.
func TestAnOfferOfAnotherStore(t *testing.T) {
	for label, wrap := range map[string]func(*memory.Store) lease.Store{
		"a store of handles":    func(s *memory.Store) lease.Store { return faultstore.Wrap(s, faultstore.WithHandles("here")) },
		"a store that has none": func(s *memory.Store) lease.Store { return s },
	} {
		t.Run(label, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, wrap(store), "a"), start(t, faultstore.Wrap(store, faultstore.WithHandles("there")), "b")
				la := a.hold("job")
				o := offerOf(t, b.lease("job"))
				err := la.Transfer(t.Context(), o)
				require.ErrorIs(t, err, lease.ErrTransferRefused)
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.ErrorContains(t, err, "lease.Session.Handle: invalid: \"there/")
				r, ok := standing(t, store, "job")
				require.True(t, ok)
				require.Equal(t, "a", r.Owner.ID)
				mustWin(t, la)
			})
		})
	}
}

// boasting is a store whose handles are no handles.
type boasting struct {
	*memory.Store
	handle string
}

func (b boasting) OpenSession(ctx context.Context, s lease.Session) (lease.Grant, error) {
	g, err := b.Store.OpenSession(ctx, s)
	g.Handle = b.handle
	return g, err
}

func TestHandlesThatAreNone(t *testing.T) {
	for says, handle := range map[string]string{
		"257 bytes, must be at most 256": strings.Repeat("h", lease.MaxHandle+1),
		`"row\xff", must be UTF-8`:       "row\xff",
	} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			won, err := start(t, boasting{store, handle}, "a").lease("job").Acquire(t.Context())
			require.False(t, won)
			require.ErrorIs(t, err, lease.ErrInconsistent)
			require.ErrorContains(t, err, "lease.Session.Handle: invalid: "+says)
		})
		owner := lease.Owner{ID: "n", Incarnation: "i"}
		err := lease.ValidateSession(lease.Session{ID: 1, Owner: owner, TTL: 1, Handle: handle})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, says)
		err = lease.Offer{Name: "a", Owner: owner, Session: 1, TTL: 1, Handle: handle}.Validate()
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "lease.Offer.Handle: invalid")
		require.ErrorContains(t, err, "must be UTF-8 of at most 256 bytes")
	}
	require.NoError(t, lease.ValidateNoHandle(""))
	require.ErrorIs(t, lease.ValidateNoHandle("row/1"), lease.ErrInvalid)
}
