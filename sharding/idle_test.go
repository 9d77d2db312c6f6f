package sharding_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// asleep returns the fewest bytes that a node allocated in one of several stretches of time
// in which nothing happened: the engine lists all records in the others.
func asleep(t *testing.T, shards int, opts ...sharding.Option) (least uint64) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		n.start(shards, opts...)
		c.settled(time.Minute, n)
		time.Sleep(10 * ttl)
		for range 5 {
			var before, after runtime.MemStats
			synctest.Wait()
			runtime.ReadMemStats(&before)
			time.Sleep(ttl * 8 / 10)
			synctest.Wait()
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; least == 0 || took < least {
				least = took
			}
		}
	})
	return least
}

// What a coordinator does grows with what happens, not with how many shards there are: while
// nothing changes it looks at none of them.
func TestWhileNothingHappensNoShardIsLookedAt(t *testing.T) {
	shards := 8000
	if tier.Racing {
		shards = 3000
	}
	few := asleep(t, 50)
	require.Less(t, asleep(t, shards), few+8*uint64(shards), "bytes in %v", ttl*8/10)
}

// A strategy of users may ask elsewhere: it is asked once a second, whatever happened here,
// and what it says then is done. What it does with the View it was given is its own affair.
func TestAStrategyThatAsksElsewhereIsAskedWhileNothingHappens(t *testing.T) {
	bubble(t, func(c *cluster) {
		var where atomic.Pointer[string]
		var asked atomic.Int64
		strategy := sharding.WithStrategy(placement.StrategyFunc(func(v placement.View) []string {
			asked.Add(1)
			target := placement.Balanced{}.Target(v)
			if id := where.Load(); id != nil {
				i := slices.IndexFunc(v.Hosts, func(h placement.Host) bool { return h.ID == *id })
				for s := range target {
					target[s] = v.Hosts[i].Incarnation
				}
			}
			clear(v.Owners)
			clear(v.Hosts)
			return target
		}))
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.start(8, strategy)
		}
		c.settled(time.Minute, ns...)
		time.Sleep(5 * time.Minute)
		moved := func() int64 { return ns[0].region.Info().HandedOff + ns[1].region.Info().HandedOff }
		before, were := asked.Load(), moved()
		time.Sleep(time.Minute)
		require.InDelta(t, 60, asked.Load()-before, 3)
		require.Equal(t, were, moved(), "moves though nothing was wanted")
		for _, id := range []string{"b", "a", "b"} {
			where.Store(&id)
			time.Sleep(3 * time.Second)
			for _, s := range ns[0].region.Info().Table {
				require.Equal(t, id, s.Owner, "shard %d", s.Shard)
			}
			time.Sleep(time.Minute)
		}
	})
}

// heavy is a store that remembers so many entities of each shard, and counts how many of the
// ids that it told are needed by nobody any more.
type heavy struct {
	sharding.EntityStore
	each        int
	told, freed *atomic.Int64
}

func (s heavy) Load(_ context.Context, o lease.Ownership) (ids []string, err error) {
	shard, ok := strings.CutPrefix(o.Name(), "shard/g/account/")
	for i := 0; ok && len(ids) < s.each; i++ {
		id := strings.Clone(fmt.Sprintf("an id of some length, as they are: %d", i))
		if fmt.Sprint(sharding.ShardOf(id, 16)) != shard {
			continue
		}
		s.told.Add(1)
		runtime.AddCleanup(unsafe.StringData(id), func(n *atomic.Int64) { n.Add(1) }, s.freed)
		ids = append(ids, id)
	}
	return ids, nil
}

func (s heavy) Update(context.Context, lease.Ownership, []string, []string) error { return nil }

// A node that gave shards away has nothing left of them, after a while: not what was
// remembered of them, and not the handles of their leases, which are anybody's on that node.
func TestANodeKeepsNothingOfShardsThatItGaveAway(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		a, b := ns[0], ns[1]
		s := heavy{each: 20, told: &atomic.Int64{}, freed: &atomic.Int64{}}
		a.start(16, sharding.WithRemember(s, 0))
		time.Sleep(10 * time.Second)
		require.Equal(t, 320, a.region.Info().Entities)
		b.start(16, sharding.WithRemember(heavy{told: &atomic.Int64{}, freed: &atomic.Int64{}}, 0))
		c.settled(time.Minute, ns...)
		require.EqualValues(t, 320, s.told.Load())
		time.Sleep(3 * time.Minute)
		require.Equal(t, 160, a.region.Info().Entities)

		for range 1000 {
			if s.freed.Load() == 160 {
				break
			}
			runtime.GC()
			for range 100 {
				runtime.Gosched()
			}
		}
		require.EqualValues(t, 160, s.freed.Load(), "of 160 ids of shards that were given away nobody needs so many")
		for _, x := range a.region.Info().Table {
			h, err := a.keeper.Lease(fmt.Sprint("shard/g/account/", x.Shard))
			if x.Owner == a.id {
				require.ErrorIs(t, err, lease.ErrNameInUse)
				continue
			}
			require.NoError(t, err, "shard %d", x.Shard)
			require.NoError(t, h.Close(context.Background()))
		}
		// They come back as if they had never been there.
		require.NoError(t, b.region.Stop(context.Background()))
		c.settled(time.Minute, a)
		time.Sleep(time.Second) // the records are a's before it has taken them up
		require.Equal(t, 16, a.region.Info().Held)
	})
}
