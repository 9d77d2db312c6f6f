package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultclock"
)

// typedNils are interfaces that are not nil, and that panic when they are called.
var typedNils = []any{(*faultclock.Clock)(nil), (*noop.MeterProvider)(nil)}

func TestWhatNoConfigMayHave(t *testing.T) {
	inputtest.Fields(t, lease.Config{ID: "a"}, typedNils, map[string]string{
		"Jitter: -1":            "negative means none",
		"Jitter: -Inf":          "negative means none",
		"NamesPerSession: most": "a session may have any number",
	}, func(c lease.Config) error {
		k, err := lease.NewKeeper(memory.New(), c)
		if err == nil {
			return k.Close(context.Background())
		}
		return err
	})
}

func TestOptionsRefuseBadValues(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	defer k.Close(t.Context())
	parent, err := k.Lease("parent")
	require.NoError(t, err)
	inputtest.Options(t, map[string][]any{
		"WithParent":     {lease.WithParent, parent},
		"WithTTL":        {lease.WithTTL, time.Second},
		"WithMetadata":   {lease.WithMetadata, map[string]string{"k": "v"}},
		"WithOwnSession": {lease.WithOwnSession},
		"WithRenewal":    {lease.WithRenewal, lease.RenewLazy()}, // its bad values: TestPoliciesThatCanNotBeKept
	}, nil, nil, func(o lease.Option) error {
		h, err := k.Lease("a", o)
		if err == nil {
			return h.Close(context.Background())
		}
		return err
	})
}

func TestNoContextIsAnError(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	h, err := k.Lease("a")
	require.NoError(t, err)
	work := func(context.Context, lease.Term) error { return nil }
	done := func(context.Context) (bool, error) { return true, nil }
	pool, err := lease.NewPool(k, "pool", 1)
	require.NoError(t, err)
	slot := func(context.Context, int, lease.Term) error { return nil }
	inputtest.Functions(t, map[string]func() error{
		"Run":        func() error { return lease.Run(inputtest.None, h, work) },
		"TryRun":     func() error { return lease.TryRun(inputtest.None, h, work) },
		"RunForever": func() error { return lease.RunForever(inputtest.None, h, work) },
		"Once":       func() error { return lease.Once(inputtest.None, h, done, work) },
	})
	inputtest.Contexts(t, k)
	inputtest.Contexts(t, h)
	inputtest.Contexts(t, pool)
	require.ErrorIs(t, pool.Run(inputtest.None, slot), lease.ErrInvalid)
	require.ErrorIs(t, pool.TryRun(inputtest.None, slot), lease.ErrInvalid)
	require.NoError(t, pool.Close(t.Context()))

	// What is refused has changed nothing.
	won, err := h.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	inputtest.Contexts(t, k)
	inputtest.Contexts(t, h)
	require.True(t, h.CheckAlive())
	require.NoError(t, h.Close(t.Context()))
	require.NoError(t, k.Close(t.Context()))
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, map[string]string{}, new(lease.Keeper), new(lease.Handle), new(lease.Fence), new(lease.Renewal), new(lease.HeldError), new(lease.Pool))
	var k lease.Keeper
	_, err := k.Lease("a")
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "lease.NewKeeper")
	require.ErrorIs(t, k.Close(t.Context()), lease.ErrInvalid)
	var h lease.Handle
	_, err = h.Acquire(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "Keeper.Lease")
	require.ErrorIs(t, lease.NewFence(3).Do(4, nil), lease.ErrInvalid)

	require.ErrorIs(t, lease.Run(t.Context(), (*lease.Handle)(nil), func(context.Context, lease.Term) error { return nil }), lease.ErrInvalid)
}

// rings wrap each other.
type ring struct {
	lease.Lease
	next *ring
}

func (r *ring) Unwrap() lease.Lease { return r.next }

// TestALeaseThatWrapsItself: nobody looks through it for ever.
func TestALeaseThatWrapsItself(t *testing.T) {
	within := func(what string, f func()) {
		t.Helper()
		done := make(chan struct{})
		go func() { defer close(done); f() }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			require.FailNow(t, "it does not return", what)
		}
	}
	inner := struct{ lease.Lease }{&plain{}} // hides all but a Lease
	self := &ring{Lease: inner}
	self.next = self
	a, b := &ring{Lease: inner}, &ring{Lease: inner}
	a.next, b.next = b, a
	for what, l := range map[string]lease.Lease{"itself": self, "a ring": a} {
		within("As, "+what, func() {
			_, ok := lease.As[lease.Waiter](l)
			require.False(t, ok)
		})
		within("TermOf, "+what, func() {
			_, stop := lease.TermOf(l)
			stop()
		})
		within("Run, "+what, func() {
			err := lease.Run(t.Context(), l, func(context.Context, lease.Term) error { return nil })
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "wraps itself")
		})
	}
	// One that wraps nothing is what it is.
	alone := &ring{Lease: inner}
	ran := false
	require.NoError(t, lease.Run(t.Context(), alone, func(context.Context, lease.Term) error { ran = true; return nil }))
	require.True(t, ran)
}
