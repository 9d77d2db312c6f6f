package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
)

const benchNames = 100_000

// filled returns a Store with 100 000 names in sessions of 1000.
func filled(tb testing.TB) (*memory.Store, []store.Session) {
	s := memory.New()
	var sessions []store.Session
	for i := range benchNames {
		if i%1000 == 0 {
			sessions = append(sessions, open(tb, s, store.SessionID(len(sessions)+1), owner("a"), time.Hour))
		}
		win(tb, s, sessions[len(sessions)-1], fmt.Sprintf("bench/%d", i))
	}
	return s, sessions
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkMemoryPerRecord reports the heap that one record takes, its name
// included.
func BenchmarkMemoryPerRecord(b *testing.B) {
	for b.Loop() {
		before := heap()
		s, _ := filled(b)
		b.ReportMetric(float64(heap()-before)/benchNames, "B/record")
		runtime.KeepAlive(s)
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	s, sessions := filled(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		out, err := s.Acquire(ctx, sessions[0], []store.Claim{{Name: "one", Nonce: 1}})
		if err != nil || !out[0].OK {
			b.Fatal(out, err)
		}
		if _, err := s.Release(ctx, []store.Held{out[0].Record.Held()}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenewAll(b *testing.B) {
	s, sessions := filled(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Renew(context.Background(), sessions); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkListAll(b *testing.B) {
	s, _ := filled(b)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.List(context.Background(), store.Query{Prefix: "bench/"}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != benchNames {
			b.Fatal(n)
		}
	}
}
