package runlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/runlock"
)

var histories = simulate.New("runlock", 40, 1000)

// Workers resume runs whose ids are alike, several of a process at once, over a store that fails.
// Never do two work on one run, by locks that live; and in the end every run can be had.
func TestHistories(t *testing.T) {
	histories.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, store *memory.Store) { history(t, store, histories.Random(seed)) })
	})
}

func history(t *testing.T, store *memory.Store, r *simulate.Random) {
	const ttl = time.Minute
	runs := [][2]string{{"a/b", "c"}, {"a", "b/c"}, {"a", "b"}}
	upTo := func(own *rand.Rand, d time.Duration) time.Duration { return time.Duration(own.Int64N(int64(d))) }
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), 1)) }
	var workers []*worker
	for i := range 3 {
		w := start(t, store, fmt.Sprint("w", i), nil, runlock.WithTTL(ttl))
		w.store.SetRule(simulate.Faults(fork(), r.Float64()/3, ttl/4))
		workers = append(workers, w)
	}
	var mu sync.Mutex
	working := map[[2]string]map[lease.Term]bool{}
	var all sync.WaitGroup
	for range r.Each(60) {
		w, run, own := workers[r.IntN(len(workers))], runs[r.IntN(len(runs))], fork()
		switch r.IntN(8) {
		case 0:
			w.store.Partition()
		case 1, 2:
			w.store.Heal()
		default:
			simulate.Go(t, &all, func() {
				_ = w.Around(context.Background(), run[0], run[1], func(ctx context.Context, term lease.Term) error {
					mu.Lock()
					for other := range working[run] {
						if other.CheckAlive() && term.CheckAlive() {
							t.Errorf("two work on %q, under %d and %d", run, other.Token(), term.Token())
						}
					}
					if working[run] == nil {
						working[run] = map[lease.Term]bool{}
					}
					working[run][term] = true
					mu.Unlock()
					select {
					case <-ctx.Done():
						time.Sleep(upTo(own, ttl/2))
					case <-time.After(upTo(own, ttl)):
					}
					mu.Lock()
					defer mu.Unlock()
					delete(working[run], term)
					return nil
				})
			})
		}
		time.Sleep(time.Duration(r.Int64N(int64(ttl / 4))))
	}
	for _, w := range workers {
		w.store.SetRule(nil)
		w.store.Heal()
	}
	all.Wait()
	time.Sleep(2*ttl + 2*time.Minute)
	for _, run := range runs {
		workers[0].free(t, run[0], run[1])
		require.NoError(t, workers[1].Around(t.Context(), run[0], run[1], nothing))
	}
}
