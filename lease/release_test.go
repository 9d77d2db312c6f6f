package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// A term that expired while the process stood still is lost, also if Release is the
// first to see it.
func TestAReleaseDoesNotHideALoss(t *testing.T) {
	for what, end := range map[string]func(*lease.Handle) error{
		"release": func(h *lease.Handle) error { return h.Release(context.Background()) },
		"close":   func(h *lease.Handle) error { return h.Close(context.Background()) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, m := metered(t, store)
				h := a.hold("job")
				lost := watchLosses(h)
				term, _ := h.Term()
				a.clock.Freeze()
				a.store.Partition()
				time.Sleep(3 * ttl)
				a.store.Heal()
				require.NoError(t, end(h)) // the first thing that runs
				a.clock.Thaw()
				require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
				lost.one(t, lease.ErrExpired)
				require.EqualValues(t, 1, m.read()["losses expired"])
				require.Zero(t, m.read()["held"])
			})
		})
	}
}
