package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultclock"
)

func TestBadInput(t *testing.T) {
	inputtest.Contexts(t, memory.New())
	inputtest.Zeros(t, nil, new(memory.Store))
	_, err := new(memory.Store).Get(t.Context(), "a")
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "memory.New")

	inputtest.Options(t, map[string][]any{
		"WithClock":  {memory.WithClock, lease.SystemClock()},
		"WithMinTTL": {memory.WithMinTTL, time.Second},
	}, []any{(*faultclock.Clock)(nil)}, map[string]string{
		"WithClock(nil)":                     "the default",
		"WithClock(a nil *faultclock.Clock)": "the default",
		"WithMinTTL(least)":                  "no bound",
		"WithMinTTL(-1)":                     "no bound",
		"WithMinTTL(most)":                   "every session lives for ever",
	}, func(o memory.Option) error {
		s, ctx := memory.New(o), context.Background()
		in := lease.Session{ID: 1, Owner: lease.Owner{ID: "a", Incarnation: "i"}, TTL: time.Second}
		if _, err := s.OpenSession(ctx, in); err != nil {
			return err
		}
		if _, err := s.Acquire(ctx, in, []lease.Claim{{Name: "a"}}); err != nil {
			return err
		}
		for _, err := range s.Watch(ctx, "") {
			return err
		}
		return nil
	})
}
