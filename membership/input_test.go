package membership_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

func TestOptionsRefuseBadValues(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		inputtest.Options(t, map[string][]any{
			"WithRoles":         {membership.WithRoles, "r"},
			"WithCapacity":      {membership.WithCapacity, 1},
			"WithEvents":        {membership.WithEvents, func(any) {}},
			"WithLeaseOptions":  {membership.WithLeaseOptions, lease.WithTTL(time.Second)},
			"WithLogger":        {membership.WithLogger, zap.NewNop()},
			"WithMeterProvider": {membership.WithMeterProvider, noop.NewMeterProvider()},
		}, []any{(*noop.MeterProvider)(nil)}, map[string]string{
			"WithLogger(nil)":        "the default",
			"WithMeterProvider(nil)": "the default",
		}, func(o membership.Option) error {
			g, err := membership.Join(context.Background(), n.keeper, "g", o)
			if err != nil {
				return err
			}
			return g.Leave(context.Background())
		})
		n.join()
		n.leave()
	})
}

func TestNoContextIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := w.node("a")
		inputtest.Functions(t, map[string]func() error{
			"Join": func() error { _, err := membership.Join(inputtest.None, n.keeper, "g"); return err },
		})
		_, err := membership.Join(t.Context(), &lease.Keeper{}, "g")
		require.ErrorIs(t, err, lease.ErrInvalid)
		n.join()
		inputtest.Contexts(t, n.group)
		self, ok := n.group.Self()
		require.True(t, ok, "what is refused has changed nothing")
		require.False(t, self.Leaving)
		n.leave()
	})
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, nil, new(membership.Group), new(membership.Election), new(membership.Member), new(membership.Snapshot),
		new(membership.Static))
	_, err := new(membership.Group).Leadership()
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "membership.Join")

	// A follower of a zero Static may panic as one of any other may.
	var s membership.Static
	told := make(chan struct{})
	stop := s.Follow(func(membership.LeaderChanged) { defer close(told); panic("rude") })
	s.Set(lease.Owner{ID: "a"})
	<-told
	stop()
}
