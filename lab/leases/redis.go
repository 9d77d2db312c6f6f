//go:build linux

package leases

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/store"
)

// The locks that people use on Redis, in our words: a key of each name that has a TTL, tried for now and
// then. The pauses are those that redsync has by default, and that redislock's examples have.
const (
	wide   = "SET NX, 50 to 250 ms"
	narrow = "SET NX, 100 ms"
)

func (b *bed) onRedis(ctx context.Context) {
	b.redis = scene.Must(redistest.Run(ctx, redistest.Options{}))
	b.main, b.shut = b.redis, b.redis.Close
}

func (h holding) redisClient() *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: h.URL})
}

func (h holding) redisStore(ctx context.Context) (store.Store, func() error) {
	client := h.redisClient()
	s := scene.Must(redis.New(ctx, client))
	return s, func() error { _ = s.Close(); return client.Close() }
}

var (
	extend = goredis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`)
	remove = goredis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
)

// key is a lock that is a key with a TTL.
func (h holding) key() candidate {
	client, value := h.redisClient(), fmt.Sprint(rand.Uint64())
	key := []string{h.Way + "/" + h.Name}
	c := candidate{close: func() { _ = client.Close() }}
	c.try = func(ctx context.Context) bool {
		return scene.Must(client.SetNX(ctx, key[0], value, h.TTL).Result())
	}
	c.await = func(ctx context.Context) {
		for !c.try(ctx) {
			pause := 100 * time.Millisecond
			if h.Way == wide {
				pause = 50*time.Millisecond + rand.N(200*time.Millisecond)
			}
			scene.Check(lab.Pause(ctx, pause))
		}
	}
	c.renew = func(ctx context.Context) {
		held(scene.Must(extend.Run(ctx, client, key, value, h.TTL.Milliseconds()).Int()) == 1)
	}
	c.release = func(ctx context.Context) { held(scene.Must(remove.Run(ctx, client, key, value).Int()) == 1) }
	return c
}

// crashes times from the death of a holder that has just acquired until the waiter has its name.
func crashes(ctx context.Context, b *bed, p sizes, of holding) map[string][]time.Duration {
	got := map[string][]time.Duration{}
	rounds := 5
	if b.Short {
		rounds = 1
	}
	for i := range rounds {
		waiting, began := map[string]<-chan won{}, map[string]time.Time{}
		for _, way := range waysOn(of.Store) {
			of.Way, of.Name = way, fmt.Sprint("crash-", i)
			holder, waiter := b.candidate(ctx, of, "holder"), b.candidate(ctx, of, "waiter")
			holder.await(ctx)
			waiting[way] = waits(ctx, waiter)
			scene.Check(lab.Pause(ctx, settle))
			began[way] = time.Now()
			holder.close()
		}
		for way, w := range waiting {
			took := <-w
			scene.Check(took.err, "after a crash, "+way)
			got[way] = append(got[way], took.at.Sub(began[way]))
		}
	}
	return got
}
