package directory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/placement"
)

// BenchmarkDecide says what a coordinator's decision takes, of 100 hosts of which one has
// just come: what is known is copied, and the strategy asked.
func BenchmarkDecide(b *testing.B) {
	for _, shards := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint("shards=", shards), func(b *testing.B) {
			t := New(Config{Shards: shards, Elapsed: func() time.Duration { return 0 }})
			var v placement.View
			for i := range 100 {
				id := fmt.Sprint("host", i)
				v.Hosts = append(v.Hosts, placement.Host{ID: id, Incarnation: id + "-1", Capacity: 1})
			}
			for i := range t.shards {
				t.shards[i] = ShardRecord{Record: lease.Record{Owner: lease.Owner{Incarnation: v.Hosts[i%99].Incarnation}},
					Held: true, Last: lease.Token(i)}
			}
			b.ReportAllocs()
			for b.Loop() {
				v.Owners = make([]string, shards)
				seats, _ := t.Seats()
				for i, s := range seats {
					v.Owners[i] = s.Owner
				}
				if slices.Equal(v.Owners, placement.Balanced{}.Target(v)) {
					b.Fatal("nothing is to be done")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*shards), "ns/shard")
		})
	}
}
