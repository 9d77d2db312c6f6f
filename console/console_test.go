package console_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
)

func TestMain(m *testing.M) { // protoactor's log of dead letters ends a second later
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// From the store alone there are records, and what only nodes know is absent. A minute after the last
// look nothing is followed any more.
func TestTheStoreAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		k, err := lease.NewKeeper(s, lease.Config{ID: "viewer"})
		require.NoError(t, err)
		defer k.Close(t.Context())
		h, err := k.Lease("outbox/orders", lease.WithMetadata(map[string]string{"pod": "x"}))
		require.NoError(t, err)
		won, err := h.Acquire(t.Context())
		require.True(t, won, "%v", err)
		c, err := console.New(k, nil, console.Config{})
		require.NoError(t, err)
		defer c.Close()
		snap, err := c.Snapshot(t.Context(), time.Time{})
		require.NoError(t, err)
		require.Empty(t, snap.Node)
		require.Len(t, snap.Leases, 1)
		require.Equal(t, "viewer", snap.Leases[0].Owner.ID)
		require.Equal(t, "x", snap.Leases[0].Metadata["pod"])
		require.Empty(t, snap.Events)
		_, err = c.Act(t.Context(), "ada", console.Request{Action: "release", Name: "outbox/orders"})
		require.ErrorContains(t, err, "read-only")
		time.Sleep(2 * time.Minute)
		_, err = c.Snapshot(t.Context(), time.Time{})
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestBadConfigs(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	defer k.Close(t.Context())
	_, err = console.New(nil, nil, console.Config{})
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = console.New(k, nil, console.Config{Actions: true})
	require.ErrorContains(t, err, "Authorize")
	allow := func(*http.Request, console.Access) (string, error) { return "ada", nil }
	_, err = console.New(k, nil, console.Config{Actions: true, Authorize: allow})
	require.ErrorContains(t, err, "actor system")
}

// A change of holder is shown within a quarter of a second, and what does not change is looked at each
// second.
func TestChangesAreSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "viewer"})
		require.NoError(t, err)
		defer k.Close(t.Context())
		c, err := console.New(k, nil, console.Config{})
		require.NoError(t, err)
		defer c.Close()
		looks := map[time.Time]bool{}
		look := func() console.Snapshot {
			time.Sleep(50 * time.Millisecond)
			s, err := c.Snapshot(t.Context(), time.Time{})
			require.NoError(t, err)
			looks[s.At] = true
			return s
		}
		for range 10*20 + 5 { // 10.25 s
			look()
		}
		require.Len(t, looks, 11)
		h, err := k.Lease("outbox/orders")
		require.NoError(t, err)
		_, err = h.Acquire(t.Context())
		require.NoError(t, err)
		acquired := time.Now()
		for len(look().Leases) == 0 {
		}
		require.LessOrEqual(t, time.Since(acquired), 250*time.Millisecond)
		require.NoError(t, h.Release(t.Context()))
	})
}
