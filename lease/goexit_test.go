package lease_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// aside runs f on a goroutine that may be ended, and returns when it has.
func aside(f func()) {
	over := make(chan struct{})
	go func() { defer close(over); f() }()
	<-over
}

// A prompt store that ends the goroutine of a request ends that of its caller. What was
// asked for then goes on without: nothing is kept for nobody, the handle can be used, and
// the Keeper closed.
func TestAStoreThatEndsItsCallersGoroutine(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.Drop, faultstore.ApplyThenFail, faultstore.LandLate} {
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Release, faultstore.Transfer} {
			t.Run(op.String()+", "+kind.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memory.Store) {
					a, b := start(t, store, "a"), start(t, store, "b")
					require.NoError(t, a.hold("other").Release(t.Context())) // its session is open
					mine, theirs := a.lease("job"), b.lease("job")
					time.Sleep(time.Second)
					if op != faultstore.Acquire {
						mustWin(t, mine)
					}
					offer, err := theirs.Offer(t.Context())
					require.NoError(t, err)
					a.once(op, 1, faultstore.Fault{Kind: kind, Delay: time.Second, Exit: true})
					returned := false
					aside(func() {
						switch op {
						case faultstore.Acquire:
							_, _ = mine.Acquire(t.Context())
						case faultstore.Release:
							_ = mine.Release(t.Context())
						case faultstore.Transfer:
							_ = mine.Transfer(t.Context(), offer)
						}
						returned = true
					})
					require.False(t, returned, "on a goroutine of its own")
					if op == faultstore.Transfer { // until it is acquired or released
						require.NoError(t, mine.Release(t.Context()))
					}
					time.Sleep(3 * ttl)
					require.False(t, mine.CheckAlive())
					mustWin(t, theirs)
					require.NoError(t, theirs.Release(t.Context()))
					mustWin(t, mine)
					require.NoError(t, mine.Release(t.Context()))
					require.NoError(t, a.Close(t.Context()))
				})
			})
		}
	}
}

// What ends the goroutine that follows records, be it the store or the one who is told,
// interrupts it, as an error does.
func TestFollowingSurvivesTheEndOfItsGoroutine(t *testing.T) {
	for _, who := range []string{"the store is asked", "the store begins", "the store goes on", "the user"} {
		t.Run(who, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				var mu sync.Mutex
				told := map[string]int{}
				if who == "the store is asked" {
					a.once(faultstore.Watch, 3, faultstore.Fault{Kind: faultstore.Drop, Exit: true})
				}
				stop, err := a.Watch("job/", func(ev lease.Event) {
					mu.Lock()
					told[ev.Record.Name]++
					mu.Unlock()
					if ev.Kind == lease.EventPut && who == "the user" {
						runtime.Goexit()
					}
				})
				require.NoError(t, err)
				mine := a.hold("mine")
				time.Sleep(time.Second)
				switch who {
				case "the store begins":
					a.once(faultstore.Watch, 3, faultstore.Fault{Kind: faultstore.Drop, Exit: true})
				case "the store goes on":
					a.once(faultstore.Watch, 3, faultstore.Fault{Kind: faultstore.ApplyThenFail, Exit: true})
				}
				a.store.CutWatches()
				b.hold("job/1")
				time.Sleep(ttl)
				two := b.hold("job/2")
				time.Sleep(ttl)
				require.NoError(t, two.Release(t.Context()))
				rec, ok := standing(t, store, "mine")
				require.True(t, ok)
				lost := watchLosses(mine)
				_, err = store.Release(context.Background(), []lease.Held{rec.Held()})
				require.NoError(t, err)
				time.Sleep(ttl)
				lost.one(t, lease.ErrRecordGone)
				stop()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, map[string]int{"": 1, "job/1": 1, "job/2": 2}, told, "once each, and that it was synced")
			})
		})
	}
}
