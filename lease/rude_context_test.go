package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// backAgain is a context whose every method calls f.
type backAgain struct {
	context.Context
	f func()
}

func (c backAgain) Err() error                  { c.f(); return c.Context.Err() }
func (c backAgain) Done() <-chan struct{}       { c.f(); return c.Context.Done() }
func (c backAgain) Value(key any) any           { c.f(); return c.Context.Value(key) }
func (c backAgain) Deadline() (time.Time, bool) { c.f(); return c.Context.Deadline() }

// TestAContextMayCallTheKeeper: it is code of the user's, and runs under no lock.
func TestAContextMayCallTheKeeper(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	h, err := k.Lease("job")
	require.NoError(t, err)
	other, err := k.Lease("other")
	require.NoError(t, err)
	ctx := backAgain{t.Context(), func() {
		_ = other.Describe(nil)
		_, _ = k.Get(context.Background(), "other")
	}}
	for _, x := range []struct {
		name string
		call func() error
	}{
		{"Acquire", func() error { _, err := h.Acquire(ctx); return err }},
		{"Get", func() error { _, err := k.Get(ctx, "job"); return err }},
		{"List", func() error { _, err := k.List(ctx, ""); return err }},
		{"Wait", func() error { return h.Wait(ctx) }},
		{"Release", func() error { return h.Release(ctx) }},
		{"AcquireTerm", func() error { _, err := h.AcquireTerm(ctx); return err }},
		{"Close of the handle", func() error { return h.Close(ctx) }},
		{"Offer", func() error { _, err := other.Offer(ctx); return err }},
		{"Close", func() error { return k.Close(ctx) }},
	} {
		done := meanwhile(func() error { return x.call() })
		select {
		case err := <-done:
			require.NoError(t, err, x.name)
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not return", x.name)
		}
	}
}
