package lease_test

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func benchKeeper(tb testing.TB, store store.Store) *lease.Keeper {
	tb.Helper()
	k, err := lease.NewKeeper(store, lease.Config{ID: "bench", TTL: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		k.Close(ctx)
	})
	return k
}

func benchHandle(tb testing.TB) *lease.Handle {
	tb.Helper()
	h, err := benchKeeper(tb, memory.New()).Lease("bench")
	if err != nil {
		tb.Fatal(err)
	}
	if won, err := h.Acquire(context.Background()); !won || err != nil {
		tb.Fatal(won, err)
	}
	tb.Cleanup(func() { h.Close(context.Background()) })
	return h
}

var sinkTime time.Time

// timeNow is what CheckAlive is measured against: a single look at the clock.
func timeNow(n int) time.Duration {
	began := time.Now()
	for range n {
		sinkTime = time.Now()
	}
	return time.Since(began)
}

func checkAlive(tb testing.TB, h *lease.Handle, n int) time.Duration {
	began := time.Now()
	for range n {
		if !h.CheckAlive() {
			tb.Fatal("not alive")
		}
	}
	return time.Since(began)
}

// BenchmarkCheckAlive reports its cost as a multiple of time.Now's, measured in
// turns so that a busy machine slows both. The aim is 1.5 at most.
func BenchmarkCheckAlive(b *testing.B) {
	h := benchHandle(b)
	b.ReportAllocs()
	var ours, clock time.Duration
	const turn = 10_000
	for n := b.N; n > 0; n -= turn {
		b.StopTimer()
		clock += timeNow(min(n, turn))
		b.StartTimer()
		ours += checkAlive(b, h, min(n, turn))
	}
	b.ReportMetric(float64(ours)/float64(clock), "×time.Now")
}

func BenchmarkCheckAliveParallel(b *testing.B) {
	h := benchHandle(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !h.CheckAlive() {
				b.Error("not alive")
				return
			}
		}
	})
}

func BenchmarkTimeNow(b *testing.B) {
	b.ReportAllocs()
	timeNow(b.N)
}

func BenchmarkAcquireRelease(b *testing.B) {
	h := benchHandle(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
		if won, err := h.Acquire(ctx); !won || err != nil {
			b.Fatal(won, err)
		}
	}
}

func TestCheckAliveDoesNotAllocate(t *testing.T) {
	h := benchHandle(t)
	term, _ := h.Term()
	allocs := testing.AllocsPerRun(1000, func() {
		if !h.CheckAlive() || !term.CheckAlive() {
			t.Error("not alive")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkHundredThousandLeases holds 100 000 leases in one Keeper and reports
// what one costs it in heap, the store's share taken off: at most 1 KiB is the
// aim.
func BenchmarkHundredThousandLeases(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(heapPerLease(b, 100_000), "heap-B/lease")
	}
}

func TestHeapPerLease(t *testing.T) {
	if per := heapPerLease(t, 20_000); per > 1024 {
		t.Errorf("a lease costs the Keeper %.0f bytes, at most 1024", per)
	}
}

// heapPerLease compares the heap of a store that was given the records by hand
// with that of the same records held by a Keeper.
func heapPerLease(tb testing.TB, n int) float64 {
	names := manyNames(n)
	base := heap()
	bare := memory.New()
	fill(tb, bare, names)
	storeOnly := heap() - base
	runtime.KeepAlive(bare)
	bare = nil

	base = heap()
	store := memory.New()
	k := benchKeeper(tb, store)
	handles := holdMany(tb, k, names)
	both := heap() - base
	for _, h := range handles {
		if !h.CheckAlive() {
			tb.Fatal("not alive")
		}
	}
	var wg sync.WaitGroup
	for _, h := range handles {
		wg.Go(func() { h.Release(context.Background()) })
	}
	wg.Wait()
	runtime.KeepAlive(names)
	return float64(both-storeOnly) / float64(n)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fill writes records as a Keeper would, a thousand to a session.
func fill(tb testing.TB, db *memory.Store, names []string) {
	owner := lease.Owner{ID: "bench", Incarnation: "by hand"}
	ctx := context.Background()
	for i := 0; i < len(names); i += 1000 {
		s := store.Session{ID: store.SessionID(i + 1), Owner: owner, TTL: time.Minute}
		if _, err := db.OpenSession(ctx, s); err != nil {
			tb.Fatal(err)
		}
		var claims []store.Claim
		for j, name := range names[i:min(i+1000, len(names))] {
			claims = append(claims, store.Claim{Name: name, Nonce: uint64(i + j)})
		}
		if _, err := db.Acquire(ctx, s, claims); err != nil {
			tb.Fatal(err)
		}
	}
}

func BenchmarkTouch(b *testing.B) {
	h, err := benchKeeper(b, memory.New()).Lease("session/x", lease.WithRenewal(lease.RenewOnActivity()))
	if err != nil {
		b.Fatal(err)
	}
	if won, err := h.Acquire(b.Context()); !won || err != nil {
		b.Fatal(won, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		h.Touch()
	}
}

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
