package lease_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// bounded is a store that says so of itself.
type bounded struct {
	*memory.Store
	limits store.Limits
}

func (b bounded) Limits() store.Limits { return b.limits }

func newBounded(l store.Limits) bounded { return bounded{memory.New(), l} }

var errShouting = errors.New("no capital letters")

func quiet(name string) error {
	if name != strings.ToLower(name) {
		return errShouting
	}
	return nil
}

// TestLimitsAreCheckedWhereTheyAreConfigured: not at the first acquisition, hours later.
func TestLimitsAreCheckedWhereTheyAreConfigured(t *testing.T) {
	limits := store.Limits{Name: "small", MaxTTL: 20 * time.Second, CheckName: quiet, MaxMetadata: 10}
	_, err := lease.NewKeeper(newBounded(limits), lease.Config{ID: "a", TTL: 21 * time.Second})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.EqualError(t, err, "lease.Config.TTL: invalid: 21s, must be at least 300ms and at most 20s")
	short := limits
	short.MaxTTL = time.Second
	_, err = lease.NewKeeper(newBounded(short), lease.Config{ID: "a"})
	require.ErrorContains(t, err, "lease.Config.TTL: invalid: 10s", "the default, too")

	k, err := lease.NewKeeper(newBounded(limits), lease.Config{ID: "a"})
	require.NoError(t, err)
	defer func() { require.NoError(t, k.Close(t.Context())) }()
	for says, open := range map[string]func() (*lease.Handle, error){
		"lease.WithTTL: invalid: 20.000000001s, must be at least 300ms and at most 20s": func() (*lease.Handle, error) {
			return k.Lease("a", lease.WithTTL(20*time.Second+1))
		},
		`lease name "Job": invalid: no capital letters (a bound of store small)`: func() (*lease.Handle, error) { return k.Lease("Job") },
		"metadata: invalid: its keys and values have 11 bytes, at most 10 (a bound of store small)": func() (*lease.Handle, error) {
			return k.Lease("a", lease.WithMetadata(map[string]string{"key": "12345678"}))
		},
	} {
		_, err := open()
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	_, err = k.Lease("Job")
	require.ErrorIs(t, err, errShouting)

	h, err := k.Lease("job", lease.WithTTL(20*time.Second), lease.WithMetadata(map[string]string{"key": "1234567"}))
	require.NoError(t, err, "at the bounds")
	won, err := h.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	require.NoError(t, h.Close(t.Context()))

	d, err := k.Lease("described", lease.WithMetadata(map[string]string{"a": "1"}))
	require.NoError(t, err)
	require.NoError(t, d.Describe(map[string]string{"b": "1234567"}))
	err = d.Describe(map[string]string{"b": "12345678"})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "11 bytes, at most 10", "with what it was made with")
	require.NoError(t, d.Close(t.Context()))
}

func TestLimitsThatNoStoreHas(t *testing.T) {
	for says, l := range map[string]store.Limits{
		"store.Limits.MinTTL: invalid: -1ns, must be at least 0":                                      {MinTTL: -1},
		"store.Limits.MinTTL: invalid: 8760h0m0.000000001s, must be at least 0 and at most 8760h0m0s": {MinTTL: 365*24*time.Hour + 1},
		"store.Limits.MaxTTL: invalid: -1s, must be at least 0":                                       {MaxTTL: -time.Second},
		"store.Limits.MaxTTL: invalid: 299ms, must be at least 300ms, or 0 for no bound (store odd)":  {MaxTTL: 299 * time.Millisecond},
		"store.Limits.MaxTTL: invalid: 4s, must be at least 5s":                                       {MinTTL: 5 * time.Second, MaxTTL: 4 * time.Second},
		"store.Limits.Batch: invalid: -7":                                                             {Batch: -7},
		"store.Limits.MaxMetadata: invalid: -1, must be at least 0 (0: no bound) (store odd)":         {MaxMetadata: -1},
	} {
		l.Name = "odd"
		_, err := lease.NewKeeper(newBounded(l), lease.Config{ID: "a"})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

func TestWhatIsBeyondAStore(t *testing.T) {
	limits := store.Limits{Name: "small", MaxTTL: time.Minute, CheckName: quiet, MaxMetadata: 10}
	owner := lease.Owner{ID: "n", Incarnation: "i"}
	require.NoError(t, limits.ValidateSession(store.Session{ID: 1, Owner: owner, TTL: time.Minute}))
	err := limits.ValidateSession(store.Session{ID: 1, Owner: owner, TTL: time.Minute + 1})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.EqualError(t, err, "session 1: invalid: TTL 1m0.000000001s, must be at most 1m0s (a bound of store small)")
	require.ErrorContains(t, limits.ValidateSession(store.Session{Owner: owner, TTL: 1}), "ID 0", "and what no store takes")

	require.NoError(t, limits.ValidateClaim(store.Claim{Name: "a", Metadata: map[string]string{"": "1234567890"}}))
	require.ErrorIs(t, limits.ValidateClaim(store.Claim{Name: "A"}), errShouting)
	require.ErrorIs(t, limits.ValidateClaim(store.Claim{Name: "a//b"}), lease.ErrInvalid)
	err = limits.ValidateClaim(store.Claim{Name: "a", Metadata: map[string]string{"ß": "123456789"}})
	require.EqualError(t, err, `lease "a": metadata: invalid: its keys and values have 11 bytes, at most 10 (a bound of store small)`)

	move := store.Transfer{Held: store.Held{Name: "a"}, To: lease.Offer{Name: "a", Owner: owner, Session: 7, TTL: time.Second}}
	require.NoError(t, limits.ValidateTransfer(move))
	move.Metadata = map[string]string{"12345": "123456"}
	require.ErrorContains(t, limits.ValidateTransfer(move), "11 bytes, at most 10")
	move.To.Name = "b"
	require.ErrorContains(t, limits.ValidateTransfer(move), "store.Offer.Name")
}

// TestACheckNameThatPanics: the error says so.
func TestACheckNameThatPanics(t *testing.T) {
	limits := store.Limits{Name: "rude", CheckName: func(string) error { panic("rude") }}
	k, err := lease.NewKeeper(newBounded(limits), lease.Config{ID: "a"})
	require.NoError(t, err)
	defer func() { require.NoError(t, k.Close(t.Context())) }()
	_, err = k.Lease("job")
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.EqualError(t, err, `lease name "job": invalid: it panicked: rude (a bound of store rude)`)
	require.ErrorIs(t, limits.ValidateClaim(store.Claim{Name: "job"}), lease.ErrInvalid)
}
