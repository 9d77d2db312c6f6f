//go:build unix

package redis_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// clients makes Stores of one prefix.
func clients(tb storetest.TB, c goredis.UniversalClient, prefix string, opts ...redis.Option) func() store.Store {
	return func() store.Store {
		s, err := redis.New(context.Background(), c, append(opts, redis.WithPrefix(prefix))...)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		tb.Cleanup(func() { _ = s.Close() })
		return s
	}
}

// room is a pool for the kit: each Store that is watched keeps a connection.
func room(o *goredis.UniversalOptions) { o.PoolSize = 400 }

func factory(c goredis.UniversalClient, opts ...redis.Option) storetest.Factory {
	return func(tb storetest.TB) func() store.Store { return clients(tb, c, prefix(), opts...) }
}

// spoilt are values that are no records of this version.
var spoilt = []string{"garbage", "hf2 7 8 9 10 and more", "hf1 17 00", ""}

// spoil writes something under a name, as a newer version would: with a change.
const spoil = `local rev = string.format('%.0f', (redis.call('GET', KEYS[1]) or 0) + 1)
	redis.call('XADD', KEYS[3], rev .. '-0', 'prev', redis.call('GET', KEYS[1]) or 0, 'kind', 'put', 'name', ARGV[1], 'value', ARGV[2], 'owner', '')
	redis.call('SET', KEYS[1], rev)
	return redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])`

func TestConformance(t *testing.T) {
	c := server(t).Client(t, room)
	storetest.Run(t, factory(c), storetest.TTL(2*time.Second),
		storetest.Unreachable(func(tb storetest.TB) func() store.Store {
			route, err := server(t).NewRoute()
			if err != nil {
				tb.Fatalf("%v", err)
			}
			route.Cut()
			return clients(tb, route.Client(t, room), prefix())
		}),
		storetest.BadRecords(func(tb storetest.TB) (func() store.Store, func(string)) {
			p, n := prefix(), 0
			return clients(tb, c, p), func(name string) {
				n++
				do(t, server(t), "EVAL", spoil, 3, p+":rev", p+":lease", p+":change", name, spoilt[n%len(spoilt)])
			}
		}),
		storetest.Restart(func(tb storetest.TB) (func() store.Store, func()) {
			own := redistest.Start(t, redistest.WithAOF())
			return clients(tb, own.Client(t, room), prefix()), func() {
				if err := own.Restart(tb.Context()); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}))
}

// The kit against a primary whose replica confirms what it grants.
func TestConformanceWithWait(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance is the same without a replica")
	primary := redistest.Start(t)
	must(primary.NewReplica(t.Context()))(t)
	storetest.Run(t, factory(primary.Client(t, room), redis.WithWait(1, time.Second)), storetest.TTL(2*time.Second))
}

func TestConformanceInACluster(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance is the same on one server")
	storetest.Run(t, factory(redistest.StartCluster(t).Client(t, room)), storetest.TTL(2*time.Second))
}

func TestConformanceBehindSentinel(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance is the same on one server")
	storetest.Run(t, factory(redistest.StartSentinels(t).Client(t, room)), storetest.TTL(2*time.Second))
}
