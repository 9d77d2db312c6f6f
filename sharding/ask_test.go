package sharding_test

import (
	"context"
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// A strategy that hangs, panics or answers nonsense keeps no shard down, is told of, and
// has its way again when it is well.
func TestAStrategyThatFails(t *testing.T) {
	for what, fails := range map[string]func(free <-chan struct{}) []string{
		"hangs":            func(free <-chan struct{}) []string { <-free; return nil },
		"panics":           func(<-chan struct{}) []string { panic("no strategy") },
		"answers nonsense": func(<-chan struct{}) []string { return []string{"somebody"} },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				var fail atomic.Bool
				var most atomic.Int32 // calls at a time, on any one node
				told := &perToken{}
				free := make(chan struct{})
				ns := c.nodes("a", "b", "c")
				for _, n := range ns {
					var calls atomic.Int32
					n.system.EventStream.Subscribe(func(e any) {
						if e, ok := e.(sharding.Event); ok && e.Kind == sharding.StrategyFailed {
							told.add(e.Token)
						}
					})
					n.start(9, sharding.WithStrategy(placement.StrategyFunc(func(v placement.View) []string {
						if n := calls.Add(1); n > most.Load() {
							most.Store(n)
						}
						defer calls.Add(-1)
						if fail.Load() {
							return fails(free)
						}
						return placement.Balanced{}.Target(v)
					})))
				}
				c.settled(20*time.Second, ns...)
				require.Empty(t, told.counts())
				fail.Store(true)
				time.Sleep(4 * time.Second) // the next call is within 1 s, and waited for for 2 s
				require.Len(t, told.counts(), 1)
				require.NoError(t, ns[1].region.Stop(context.Background()))
				c.settled(time.Second, ns[0], ns[2])
				ns[2].crash()
				time.Sleep(2*ttl + 5*time.Second)
				require.Equal(t, strings.Split("a a a a a a a a a", " "), owners(ns[0]))
				for token, n := range told.counts() {
					require.Equal(t, 1, n, "the coordinator under %d told it more than once", token)
				}
				fail.Store(false)
				close(free)
				d := c.node("d")
				d.start(9)
				c.settled(20*time.Second, ns[0], d)
				require.EqualValues(t, 1, most.Load(), "one call at a time on a node")
			})
		})
	}
}

// perToken counts, for each, how often something was told.
type perToken struct {
	mu sync.Mutex
	n  map[lease.Token]int
}

func (x *perToken) add(t lease.Token) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.n == nil {
		x.n = map[lease.Token]int{}
	}
	x.n[t]++
}

func (x *perToken) counts() map[lease.Token]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.n)
}

// A deadline may be as far off as can be: the question waits for a host, here and at the node
// that it is sent to.
func TestAnAskWithoutAnEnd(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		ns[0].start(4, sharding.WithProxyOnly())
		time.Sleep(5 * time.Second)
		answers := make(chan error, 3)
		question := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err := sharding.Ask[done](ctx, ns[0].region, "x", job{Number: 1})
			answers <- err
		}
		go question(math.MaxInt64)
		time.Sleep(time.Second)
		go question(10 * time.Second) // when it gives up, all that waits is looked at
		time.Sleep(20 * time.Second)
		require.Len(t, answers, 1)
		require.Error(t, <-answers)
		ns[1].start(4)
		time.Sleep(20 * time.Second)
		go question(math.MaxInt64) // to a host that is there
		time.Sleep(time.Second)
		require.Len(t, answers, 2)
		require.NoError(t, <-answers)
		require.NoError(t, <-answers)
	})
}
