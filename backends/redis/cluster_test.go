//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/internal/churn"
	"github.com/holdfast-go/holdfast/internal/tier"
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

// away begins to move the slot of all keys to a node that has not got it.
func away(ctx context.Context, c *redistest.Cluster, key string) (*redistest.Move, error) {
	from, err := c.Owner(ctx, key)
	if err != nil {
		return nil, err
	}
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	return c.Move(ctx, key, to)
}

// TestMoveByStep stands still between the steps of a move. While some keys are at the old node and
// some at the new one, the servers refuse all that names both; nothing of it is applied. What
// exists of a Store moves as a whole where the mover asks for all keys at once, as redis-cli does
// for up to ten. At last the node dies.
func TestMoveByStep(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.WithAOF())
	client := c.Client(t, unsteady)
	p := partyOf(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan store.Event, 100)
	ended := make(chan error, 1)
	go func() {
		for e, err := range p.Watch(ctx, store.Scope{Prefix: "move/"}) {
			if err != nil {
				ended <- err
				return
			}
			told <- e
		}
	}()
	require.Equal(t, store.EventSynced, (<-told).Kind)
	term := hold(t, keeper(t, partyOf(t, client).Store, 5*time.Second), "kept")
	var won []store.Token
	works := func(step string) {
		won = append(won, p.win("move/"+step).Token)
		require.NoError(t, p.renew())
		require.Len(t, p.stands("move/"+step), 1)
	}
	works("before")
	m, err := away(t.Context(), c, redis.DefaultPrefix)
	require.NoError(t, err)
	works("begun") // all keys are where they were

	some, err := m.Keys(t.Context(), 2)
	require.NoError(t, err)
	require.Len(t, some, 2)
	_, err = p.claim("move/split")
	require.ErrorContains(t, err, "TRYAGAIN")
	require.NotErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, p.renew(), "TRYAGAIN")

	rest, err := m.Keys(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, rest, 4)
	require.Empty(t, p.stands("move/split"))
	works("asked") // the old node sends each request on with ASK
	require.NoError(t, m.Finish(t.Context()))
	works("moved")
	for i, token := range won {
		select {
		case e := <-told:
			require.Equal(t, token, e.Revision, "event %d: %+v", i, e)
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(soon):
			t.Fatalf("event %d did not come", i)
		}
	}
	require.True(t, term.CheckAlive())

	node := must(c.Owner(t.Context(), redis.DefaultPrefix))(t)
	require.NoError(t, node.Kill())
	_, err = p.claim("move/dead")
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrDenied)
	require.NoError(t, node.Restart(t.Context()))
	eventually(t, "the node is back", func() bool { return p.renew() == nil })
	require.Len(t, p.stands("move/moved"), 1)
	works("again")
}

func TestConformanceWhileASlotMoves(t *testing.T) {
	tier.NightlyOnly(t, "TestMoveByStep")
	c := redistest.StartCluster(t)
	conformWhile(t, c.Client(t, unsteady), churn.Churn{
		What: "moves of a slot",
		Fault: func(ctx context.Context, r *rand.Rand) error {
			m, err := away(ctx, c, "{t}") // of all prefixes
			for range 3 {
				if err == nil {
					_, err = m.Keys(ctx, 1+r.IntN(20))
					time.Sleep(churn.Between(r, 0, 100*time.Millisecond))
				}
			}
			if err != nil {
				return err
			}
			return m.Finish(ctx)
		},
		Pause: func(_ int, r *rand.Rand) time.Duration { return churn.Between(r, 500*time.Millisecond, 2*time.Second) },
		Least: churn.Least{Faults: 5, Settled: 50},
	})
}
