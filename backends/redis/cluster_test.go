//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/store"
)

// TestASlotThatMoves: while its keys are on two nodes calls may fail, and none is applied by
// halves: each outcome that is known stands. A watch that goes on, or is begun again, has all of
// them.
func TestASlotThatMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	for _, opts := range [][]redis.Option{nil, {redis.WithWait(1, time.Millisecond)}} {
		p := prefix()
		s := open(t, c.Client(t), p, append(opts, redis.WithLogger(zap.NewNop()))...)
		if opts != nil { // there are no replicas
			sess := session(t, s, "a", lasting)
			_, err := s.Acquire(t.Context(), sess, []store.Claim{claim("job")})
			require.ErrorContains(t, err, "0 of 1 replicas")
			require.Len(t, must(s.Get(t.Context(), "job"))(t), 1)
			continue
		}
		sess := session(t, s, "a", lasting)
		next := synced(t, s)
		from := must(c.Owner(t.Context(), p+":rev"))(t)
		to := c.Nodes[0]
		if to == from {
			to = c.Nodes[1]
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var known sync.Map
		var failures atomic.Int64
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				cl := claim(fmt.Sprint("job/", i))
				outs, err := s.Acquire(t.Context(), sess, []store.Claim{cl})
				if err != nil {
					failures.Add(1)
					continue
				}
				known.Store(cl.Name, outs[0].Record.Token)
			}
		})
		time.Sleep(50 * time.Millisecond)
		move := must(c.Move(t.Context(), p+":rev", to))(t)
		for {
			keys := must(move.Keys(t.Context(), 1))(t) // one at a time
			if len(keys) == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, move.Finish(t.Context()))
		time.Sleep(50 * time.Millisecond)
		eventually(t, "it goes on", func() bool {
			_, err := s.Get(t.Context(), "job")
			return err == nil
		})
		stop()
		wg.Wait()
		require.Positive(t, failures.Load())
		last := win(t, s, sess, "the last")
		standing := map[string]store.Token{}
		for r, err := range s.List(t.Context(), store.Query{}) {
			require.NoError(t, err)
			standing[r.Name] = r.Token
		}
		known.Range(func(name, token any) bool {
			require.Equal(t, token, standing[name.(string)], name)
			return true
		})
		seen := map[string]store.Token{}
		for seen["the last"] != last.Token {
			e := next()
			if e.err != nil {
				t.Logf("the watch has ended: %v", e.err)
				clear(seen)
				next, _ = watch(t, s, store.Scope{})
				continue
			}
			if e.Kind == store.EventPut {
				seen[e.Record.Name] = e.Record.Token
			}
		}
		for name := range standing {
			if seen[name] != standing[name] {
				t.Fatalf("%q stands with token %d, and was seen with %d", name, standing[name], seen[name])
			}
		}
	}
}

// TestAClientOfOneNode of a cluster says what is needed.
func TestAClientOfOneNode(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	for _, n := range c.Nodes {
		node := goredis.NewClient(&goredis.Options{Addr: n.Addr(), DisableIdentity: true})
		s, err := redis.New(t.Context(), node)
		if owner := must(c.Owner(t.Context(), "{holdfast}:rev"))(t); n == owner {
			require.NoError(t, err)
			require.NoError(t, s.Close())
		} else {
			require.ErrorIs(t, err, store.ErrDenied)
			require.ErrorContains(t, err, "needs redis.NewClusterClient")
		}
		require.NoError(t, node.Close())
	}
}
