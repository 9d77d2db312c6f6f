package pername_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultclock"
	"github.com/holdfast-go/holdfast/lease/pername"
)

// typedNils are interfaces that are not nil, and that panic when they are called.
var typedNils = []any{(*faultclock.Clock)(nil)}

func TestWhatNoOptionMayHave(t *testing.T) {
	inputtest.Options(t, map[string][]any{
		"WithClock":       {pername.WithClock, lease.SystemClock()},
		"WithConcurrency": {pername.WithConcurrency, 1},
	}, typedNils, nil, func(o pername.Option) error {
		s, err := pername.New(newNameMap(), o)
		if err != nil {
			return err
		}
		return works(s)
	})
}

// works holds two leases in a store.
func works(s lease.Store) error {
	ctx := context.Background()
	k, err := lease.NewKeeper(s, lease.Config{ID: "a"})
	if err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		h, err := k.Lease(name)
		if err != nil {
			return err
		}
		if won, err := h.Acquire(ctx); !won {
			return errors.Join(err, errors.New("not won"))
		}
		if err := h.Close(ctx); err != nil {
			return err
		}
	}
	return k.Close(ctx)
}

func TestNoContextIsAnError(t *testing.T) {
	inputtest.Contexts(t, must(t, newNameMap()))
}

func TestANilBackendIsAnError(t *testing.T) {
	var none *nameMap
	for _, b := range []pername.Backend{nil, none} {
		_, err := pername.New(b)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "backend")
	}
}
