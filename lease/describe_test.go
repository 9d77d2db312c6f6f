package lease_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// What a holder says of itself is in the records it acquires, beside what the lease was
// made with, from the next on.
func TestAHolderDescribesItself(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		h := a.lease("job", lease.WithMetadata(map[string]string{"k": "v"}))
		d, ok := lease.As[lease.Describer](h)
		require.True(t, ok)
		said := map[string]string{"version": "1"}
		require.NoError(t, d.Describe(said))
		said["version"] = "changed"
		mustWin(t, h)
		has := func(want map[string]string) {
			t.Helper()
			rec, ok := standing(t, store, "job")
			require.True(t, ok)
			require.Equal(t, want, rec.Metadata)
		}
		has(map[string]string{"k": "v", "version": "1"})
		require.NoError(t, d.Describe(map[string]string{"settings": "2"}))
		has(map[string]string{"k": "v", "version": "1"})
		again := func() {
			require.NoError(t, h.Release(context.Background()))
			mustWin(t, h)
		}
		again()
		has(map[string]string{"k": "v", "settings": "2"})
		for _, bad := range []map[string]string{{"k": "v"}, {"k": "other", "x": "y"}, {"x": "\xff"}, {"\xff": "x"}} {
			err := d.Describe(bad)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "metadata")
		}
		again()
		has(map[string]string{"k": "v", "settings": "2"})
		require.NoError(t, d.Describe(nil))
		again()
		has(map[string]string{"k": "v"})
	})
}

// It is of that holder: a transfer leaves it behind, and keeps what the lease was made
// with until the next has taken it up.
func TestADescriptionIsNotHandedOver(t *testing.T) {
	for name, described := range map[string]bool{"described": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				from := a.lease("job", lease.WithMetadata(map[string]string{"k": "a"}))
				to := b.lease("job", lease.WithMetadata(map[string]string{"k": "b"}))
				if described {
					require.NoError(t, from.Describe(map[string]string{"version": "1"}))
					require.NoError(t, to.Describe(map[string]string{"version": "2"}))
				}
				mustWin(t, from)
				o := offerOf(t, to)
				if described {
					require.NoError(t, from.Describe(nil)) // what stands was written before
				}
				require.NoError(t, from.Transfer(t.Context(), o))
				rec, _ := standing(t, store, "job")
				require.Equal(t, map[string]string{"k": "a"}, rec.Metadata)
				require.Equal(t, "b", rec.Owner.ID)
				mustAdopt(t, to, o)
				rec, _ = standing(t, store, "job")
				want := map[string]string{"k": "b"}
				if described {
					want["version"] = "2"
				}
				require.Equal(t, want, rec.Metadata)
			})
		})
	}
}
