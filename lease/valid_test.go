package lease_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

func TestWhatNoStoreMayTake(t *testing.T) {
	owner := lease.Owner{ID: "n", Incarnation: "i", Address: "h:1"}
	good := lease.Offer{Name: "a/b", Owner: owner, Session: 7, TTL: time.Second, Nonce: 1}
	for says, spoil := range map[string]func(o *lease.Offer){
		"Offer.Name":              func(o *lease.Offer) { o.Name = "" },
		"Offer.Session":           func(o *lease.Offer) { o.Session = 0 },
		"Offer.TTL":               func(o *lease.Offer) { o.TTL = -1 },
		"Offer.Owner.Incarnation": func(o *lease.Offer) { o.Owner.Incarnation = "" },
		"ID is not UTF-8":         func(o *lease.Offer) { o.Owner.ID = "n\xff" },
		"incarnation is not UTF-": func(o *lease.Offer) { o.Owner.Incarnation = "\x80" },
		"address is not UTF-8":    func(o *lease.Offer) { o.Owner.Address = "\xc3" },
	} {
		bad := good
		spoil(&bad)
		err := lease.ValidateTransfer(lease.Transfer{Held: lease.Held{Name: "a/b"}, To: bad})
		require.ErrorIs(t, err, lease.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	for says, s := range map[string]lease.Session{
		"ID 0":         {Owner: owner, TTL: time.Second},
		"ID -7":        {ID: -7, Owner: owner, TTL: time.Second},
		"TTL 0s":       {ID: 1, Owner: owner},
		"TTL -1ns":     {ID: 1, Owner: owner, TTL: -1},
		"incarnation":  {ID: 1, Owner: lease.Owner{ID: "n"}, TTL: time.Second},
		"not UTF-8":    {ID: 1, Owner: lease.Owner{ID: "\xff", Incarnation: "i"}, TTL: time.Second},
		`owner "\xff"`: {ID: 1, Owner: lease.Owner{ID: "\xff", Incarnation: "i"}, TTL: time.Second},
	} {
		require.ErrorIs(t, lease.ValidateSession(s), lease.ErrInvalid, says)
		require.ErrorContains(t, lease.ValidateSession(s), says)
	}
	require.NoError(t, lease.ValidateSession(lease.Session{ID: 1, Owner: owner, TTL: 1}))
	move := lease.Transfer{Held: lease.Held{Name: "a/b", Token: 1}, To: good, Metadata: map[string]string{"k": "v"}}
	require.NoError(t, lease.ValidateTransfer(move))
	move.Name = "a/c"
	require.EqualError(t, lease.ValidateTransfer(move), `lease "a/c": lease.Offer.Name: invalid: "a/b", must be "a/c"`)
	move.Name, move.Metadata = "a/b", map[string]string{"k": "\xfe"}
	require.EqualError(t, lease.ValidateTransfer(move), `lease "a/b": metadata: invalid: the value of "k" is not UTF-8: "\xfe"`)
	require.NoError(t, lease.ValidateClaim(lease.Claim{Name: "a"}))
	require.ErrorIs(t, lease.ValidateClaim(lease.Claim{Name: "a//b"}), lease.ErrInvalid)
	require.ErrorContains(t, lease.ValidateClaim(lease.Claim{Name: "a", Metadata: map[string]string{"\xff": ""}}), `the key "\xff"`)
}

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
