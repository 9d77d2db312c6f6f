package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
)

func TestWhatNoStoreMayTake(t *testing.T) {
	owner := store.Owner{ID: "n", Incarnation: "i", Address: "h:1"}
	good := store.Offer{Name: "a/b", Owner: owner, Session: 7, TTL: time.Second, Nonce: 1}
	for says, spoil := range map[string]func(o *store.Offer){
		"Offer.Name":              func(o *store.Offer) { o.Name = "" },
		"Offer.Session":           func(o *store.Offer) { o.Session = 0 },
		"Offer.TTL":               func(o *store.Offer) { o.TTL = -1 },
		"Offer.Owner.Incarnation": func(o *store.Offer) { o.Owner.Incarnation = "" },
		"ID is not UTF-8":         func(o *store.Offer) { o.Owner.ID = "n\xff" },
		"incarnation is not UTF-": func(o *store.Offer) { o.Owner.Incarnation = "\x80" },
		"address is not UTF-8":    func(o *store.Offer) { o.Owner.Address = "\xc3" },
	} {
		bad := good
		spoil(&bad)
		err := store.Limits{}.ValidateTransfer(store.Transfer{Held: store.Held{Name: "a/b"}, To: bad})
		require.ErrorIs(t, err, store.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	for says, s := range map[string]store.Session{
		"ID 0":         {Owner: owner, TTL: time.Second},
		"ID -7":        {ID: -7, Owner: owner, TTL: time.Second},
		"TTL 0s":       {ID: 1, Owner: owner},
		"TTL -1ns":     {ID: 1, Owner: owner, TTL: -1},
		"incarnation":  {ID: 1, Owner: store.Owner{ID: "n"}, TTL: time.Second},
		"not UTF-8":    {ID: 1, Owner: store.Owner{ID: "\xff", Incarnation: "i"}, TTL: time.Second},
		`owner "\xff"`: {ID: 1, Owner: store.Owner{ID: "\xff", Incarnation: "i"}, TTL: time.Second},
	} {
		require.ErrorIs(t, store.Limits{}.ValidateSession(s), store.ErrInvalid, says)
		require.ErrorContains(t, store.Limits{}.ValidateSession(s), says)
	}
	require.NoError(t, store.Limits{}.ValidateSession(store.Session{ID: 1, Owner: owner, TTL: 1}))
	move := store.Transfer{Held: store.Held{Name: "a/b", Token: 1}, To: good, Metadata: map[string]string{"k": "v"}}
	require.NoError(t, store.Limits{}.ValidateTransfer(move))
	move.Name = "a/c"
	require.EqualError(t, store.Limits{}.ValidateTransfer(move), `lease "a/c": store.Offer.Name: invalid: "a/b", must be "a/c"`)
	move.Name, move.Metadata = "a/b", map[string]string{"k": "\xfe"}
	require.EqualError(t, store.Limits{}.ValidateTransfer(move), `lease "a/b": metadata: invalid: the value of "k" is not UTF-8: "\xfe"`)
	require.NoError(t, store.Limits{}.ValidateClaim(store.Claim{Name: "a"}))
	require.ErrorIs(t, store.Limits{}.ValidateClaim(store.Claim{Name: "a//b"}), store.ErrInvalid)
	require.ErrorContains(t, store.Limits{}.ValidateClaim(store.Claim{Name: "a", Metadata: map[string]string{"\xff": ""}}), `the key "\xff"`)
}

func TestValidateName(t *testing.T) {
	for _, good := range []string{
		"a", "singleton/a", "a b", "ключ/值", "%2F", "..", strings.Repeat("x", store.MaxName), "a/b/c/d", "\u00a0",
	} {
		require.NoError(t, store.ValidateName(good), "%q", good)
	}
	for bad, says := range map[string]string{
		"":                                   "empty",
		strings.Repeat("x", store.MaxName+1): "at most 512",
		strings.Repeat("x", 10<<10):          "10240 bytes",
		"\xff":                               "UTF-8",
		"a\xc3":                              "UTF-8",
		"/":                                  "empty segment",
		"/a":                                 "empty segment",
		"a/":                                 "empty segment",
		"a//b":                               "empty segment",
		"a\x00b":                             "control character",
		"a\nb":                               "control character",
		"a\x7f":                              "control character",
	} {
		err := store.ValidateName(bad)
		require.ErrorIs(t, err, store.ErrInvalid, "%.20q", bad)
		require.ErrorContains(t, err, says)
		require.Less(t, len(err.Error()), 200, "an error does not repeat 10 KiB")
	}
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, nil, new(store.Offer), new(store.Record), new(store.Session), new(store.Limits))
}
