package observed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
)

func TestBadInput(t *testing.T) {
	s, err := observed.New(observedtest.NewMap(), nil)
	require.NoError(t, err)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(observed.Store))
	_, err = new(observed.Store).Get(t.Context(), "a")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "observed.New")
	for _, objects := range []observed.Objects{nil, (*observedtest.Map)(nil)} {
		_, err = observed.New(objects)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, "observed.New: objects")
	}
	_, err = observed.New(observedtest.NewMap(), observed.WithClock(nil))
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "observed.WithClock: invalid: nil, must be a clock such as leas")
	inputtest.Options(t, map[string][]any{
		"WithClock": {observed.WithClock, store.SystemClock()},
	}, []any{(*faultclock.Clock)(nil)}, nil, func(o observed.Option) error {
		_, err := observed.New(observedtest.NewMap(), o)
		return err
	})
}
