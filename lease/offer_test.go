package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// What can't become a readable record is refused before any store gets it, and
// harms the holder nothing.
func TestAnOfferIsCheckedBeforeAnythingIsTransferred(t *testing.T) {
	spoiled := map[string]func(*lease.Offer){
		"Owner.ID":          func(o *lease.Offer) { o.Owner.ID = "" },
		"Owner.Incarnation": func(o *lease.Offer) { o.Owner.Incarnation = "" },
		"Session":           func(o *lease.Offer) { o.Session = -1 },
		"TTL":               func(o *lease.Offer) { o.TTL = 0 },
		"Offer.TTL":         func(o *lease.Offer) { o.TTL = 2 * 365 * 24 * time.Hour },
		"Name":              func(o *lease.Offer) { o.Name = "" },
	}
	for field, spoil := range spoiled {
		t.Run(field, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				la, lb := a.hold("job"), b.lease("job")
				lost := watchLosses(la)
				o := offerOf(t, lb)
				require.NoError(t, o.Validate())
				bad := o
				spoil(&bad)
				require.ErrorIs(t, bad.Validate(), lease.ErrInvalid)
				asked := 0
				a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
					if c.Op == faultstore.Transfer {
						asked++
					}
					return faultstore.Fault{}
				})
				err := la.Transfer(t.Context(), bad)
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.ErrorContains(t, err, field)
				require.Zero(t, asked)
				require.True(t, la.CheckAlive(), "nothing was done")
				require.Empty(t, lost.all())

				require.NoError(t, la.Transfer(t.Context(), o))
				mustAdopt(t, lb, o)
			})
		})
	}
}
