package lease_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// TestHistoriesOfHints follows records by hints that are missing, doubled, late, without a
// name or for nothing, amid other faults: what is told goes from one thing that stood to the
// next, and is what stands soon after each change.
func TestHistoriesOfHints(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) { followHints(t, s, rand.New(rand.NewPCG(seed, 5))) })
		})
	}
}

func followHints(t *testing.T, s *memory.Store, r *rand.Rand) {
	const names = 5
	name := func(i int) string { return fmt.Sprint("team/", i) }
	var mu sync.Mutex
	own := rand.New(rand.NewPCG(r.Uint64(), 6))
	odds, late := []float64{0, 0.3, 0.9, 1}[r.IntN(4)], r.IntN(2) == 0
	store := faultstore.NewHinting(s, func(h lease.Hint) []lease.Hint {
		mu.Lock()
		defer mu.Unlock()
		if own.Float64() >= odds {
			return []lease.Hint{h}
		}
		return [][]lease.Hint{nil, {h, h}, {{}}, {{Name: name(own.IntN(names))}}}[own.IntN(4)]
	})
	a := start(t, s, "a")
	b := start(t, store, "b", func(c *lease.Config) { c.TTL = time.Minute }) // else much is looked at besides
	if late {
		b.store.SetLag(func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(own.Int64N(int64(time.Second)))
		})
	}
	var view sync.Mutex
	stands, synced := map[string]lease.Token{}, 0
	stop, err := b.Watch("team/", func(ev lease.Event) {
		view.Lock()
		defer view.Unlock()
		was, ok := stands[ev.Record.Name]
		switch ev.Kind {
		case lease.EventPut:
			require.Greater(t, ev.Record.Token, was)
			stands[ev.Record.Name] = ev.Record.Token
		case lease.EventDelete:
			require.True(t, ok, "%q did not stand", ev.Record.Name)
			delete(stands, ev.Record.Name)
		case lease.EventSynced:
			synced++
		}
	})
	require.NoError(t, err)
	defer stop()
	handles := make([]*lease.Handle, names)
	for i := range handles {
		handles[i] = a.lease(name(i))
	}
	for range 20 {
		for range 1 + r.IntN(4) {
			if h := handles[r.IntN(names)]; h.CheckAlive() {
				require.NoError(t, h.Release(t.Context()))
			} else {
				mustWin(t, h)
			}
			time.Sleep(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
		}
		if r.IntN(8) == 0 {
			b.store.CutWatches()
		}
		// What a name's hint was missing for is found though others are hinted of.
		for range 40 {
			busy := handles[0]
			if busy.CheckAlive() {
				require.NoError(t, busy.Release(t.Context()))
			} else {
				mustWin(t, busy)
			}
			time.Sleep(250 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		view.Lock()
		for i, h := range handles {
			rec, ok := standing(t, s, h.Name())
			if told, is := stands[h.Name()]; i > 0 && (ok != is || told != rec.Token) {
				t.Errorf("%s: told that %d stands, 0 for none, and there stands %d", h.Name(), told, rec.Token)
			}
		}
		require.Equal(t, 1, synced)
		view.Unlock()
	}
}
