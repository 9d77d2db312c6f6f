package lease_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// BenchmarkWaitIsTold measures from a release until who waits for the name has heard of it,
// by a watch and by hints. Between rounds hints rest.
func BenchmarkWaitIsTold(b *testing.B) {
	for name, of := range map[string]func(*memory.Store) lease.Store{
		"watch": func(s *memory.Store) lease.Store { return s },
		"hints": func(s *memory.Store) lease.Store { return faultstore.NewHinting(s, nil) },
	} {
		b.Run(name, func(b *testing.B) {
			s := memory.New()
			holder, err := benchKeeper(b, of(s)).Lease("bench")
			if err != nil {
				b.Fatal(err)
			}
			waiting, err := benchKeeper(b, of(s)).Lease("bench")
			if err != nil {
				b.Fatal(err)
			}
			told := make(chan time.Time, 1)
			var all []time.Duration
			for range b.N {
				if won, err := holder.Acquire(b.Context()); !won || err != nil {
					b.Fatal(won, err)
				}
				go func() {
					if err := waiting.Wait(context.Background()); err != nil {
						b.Error(err)
					}
					told <- time.Now()
				}()
				time.Sleep(150 * time.Millisecond)
				began := time.Now()
				if err := holder.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
				all = append(all, (<-told).Sub(began))
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs/median")
			b.ReportMetric(0, "ns/op")
		})
	}
}
