package lease_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// counting counts what is read.
type counting struct {
	*memory.Store
	requests, records atomic.Int64
}

func (s *counting) List(ctx context.Context, q store.Query) iter.Seq2[lease.Record, error] {
	s.requests.Add(1)
	return func(yield func(lease.Record, error) bool) {
		for r, err := range s.Store.List(ctx, q) {
			s.records.Add(1)
			if !yield(r, err) {
				return
			}
		}
	}
}

func (s *counting) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	s.requests.Add(1)
	s.records.Add(int64(len(names)))
	return s.Store.Get(ctx, names...)
}

// BenchmarkReconciliation reports what a Keeper reads for reconciliation per TTL, while
// 100 000 names are held in the store: by a Keeper that has 1000 of them, and by one that
// has all. A watch runs, and nothing is in doubt.
func BenchmarkReconciliation(b *testing.B) {
	const all, ttl, rounds = 100_000, 2 * time.Second, 6
	for _, mine := range []int{1000, all} {
		for name, of := range map[string]func(*counting) store.Store{
			"by session": func(s *counting) store.Store { return s },
			"everything": func(s *counting) store.Store { return sessionless(s) },
		} {
			b.Run(name+"/"+map[int]string{1000: "1 of 100 nodes", all: "1 node"}[mine], func(b *testing.B) {
				s := &counting{Store: memory.New()}
				names := manyNames(all)
				fill(b, s.Store, names[mine:])
				k, err := lease.NewKeeper(of(s), lease.Config{ID: "bench", TTL: ttl, OperationTimeout: time.Minute})
				if err != nil {
					b.Fatal(err)
				}
				defer k.Close(ended())
				holdMany(b, k, names[:mine])
				time.Sleep(2 * ttl)
				for b.Loop() {
					s.requests.Store(0)
					s.records.Store(0)
					time.Sleep(rounds * ttl)
				}
				b.ReportMetric(float64(s.requests.Load())/rounds, "requests/TTL")
				b.ReportMetric(float64(s.records.Load())/rounds, "records/TTL")
			})
		}
	}
}

// ended is a context that is done.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// BenchmarkKeeperGet asks for one name that is held.
func BenchmarkKeeperGet(b *testing.B) {
	store := memory.New()
	k := benchKeeper(b, store)
	h, err := k.Lease("bench")
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	if won, err := h.Acquire(ctx); !won || err != nil {
		b.Fatal(won, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Get(ctx, "bench"); err != nil {
			b.Fatal(err)
		}
	}
}
