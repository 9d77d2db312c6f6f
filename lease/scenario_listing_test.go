package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// endless lets no listing come to its end within an attempt.
func endless(c faultstore.Call) faultstore.Fault {
	if c.Op == faultstore.List || c.Op == faultstore.ListSession {
		return faultstore.Fault{Kind: faultstore.Delay, Delay: 3 * time.Second}
	}
	return faultstore.Fault{}
}

// What this Keeper asked for is looked at though the listing of everything never
// comes to its end.
func TestScenarioALateClaimIsFoundWithoutTheListing(t *testing.T) {
	watched(t, func(t *testing.T, store store.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		a.store.SetRule(endless)
		a.hold("other") // keeps the session
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Acquire && slices.Contains(c.Names, "job") {
				return faultstore.Fault{Kind: faultstore.LandLate, Delay: 20 * time.Second, Hang: true}
			}
			return endless(c)
		})
		_, err := a.lease("job").Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		a.store.SetRule(endless)
		time.Sleep(20*time.Second + 2*ttl)
		rec, stands := standing(t, store, "job")
		require.False(t, stands, "%v stands for nobody", rec)
		mustWin(t, b.lease("job"))
	})
}

// So is what it holds: a record that went while no watch ran is missed, and who
// waits for a name that became free then hears of it.
func TestScenarioWhatWentUnseenIsMissedWithoutTheListing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a", func(c *lease.Config) { c.PollMin, c.PollMax = time.Hour, time.Hour }), start(t, store, "b")
		mine, theirs := a.hold("mine"), b.hold("theirs")
		lost := watchLosses(mine)
		waiting := a.lease("theirs")
		mustNotWin(t, waiting)
		time.Sleep(time.Second)
		free := make(chan time.Time, 1)
		waiting.OnFree(func() { free <- time.Now() })
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Watch {
				return faultstore.Fault{Kind: faultstore.Drop}
			}
			return endless(c)
		})
		a.store.CutWatches()
		require.NoError(t, theirs.Release(t.Context()))
		rec, _ := standing(t, store, "mine")
		remove(t, store, rec)
		a.store.SetRule(endless)
		back := time.Now()
		time.Sleep(ttl)
		require.False(t, mine.CheckAlive())
		lost.one(t, lease.ErrRecordGone)
		require.Less(t, (<-free).Sub(back), ttl)
	})
}
