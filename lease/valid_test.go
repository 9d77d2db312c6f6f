package lease_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// TestMetadataIsCheckedWhereItIsGiven: a handle that no acquisition could write is
// refused, and its name stays free for another.
func TestMetadataIsCheckedWhereItIsGiven(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "n"})
	require.NoError(t, err)
	defer k.Close(t.Context())
	for _, bad := range []map[string]string{{"k": "\xff\xfe"}, {"\x80": ""}} {
		_, err := k.Lease("a", lease.WithMetadata(maps.Clone(bad)))
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, `lease "a" (keeper n, store memory): metadata`)
	}
	h, err := k.Lease("a", lease.WithMetadata(map[string]string{"": "\x00 ü"}))
	require.NoError(t, err)
	ok, err := h.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, h.Release(t.Context()))
	_, err = lease.NewKeeper(memory.New(), lease.Config{ID: "n", Address: "\xff"})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "lease.Config.Address")
}
