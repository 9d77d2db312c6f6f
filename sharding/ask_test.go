package sharding_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
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
				var calls, failures, most atomic.Int32
				free := make(chan struct{})
				ns := c.nodes("a", "b", "c")
				for _, n := range ns {
					n.system.EventStream.Subscribe(func(e any) {
						if e, ok := e.(sharding.Event); ok && e.Kind == sharding.StrategyFailed {
							failures.Add(1)
						}
					})
					n.start(9, sharding.WithStrategy(sharding.StrategyFunc(func(v sharding.View) []string {
						if n := calls.Add(1); n > most.Load() {
							most.Store(n)
						}
						defer calls.Add(-1)
						if fail.Load() {
							return fails(free)
						}
						return sharding.Balanced{}.Target(v)
					})))
				}
				c.settled(20*time.Second, ns...)
				require.Zero(t, failures.Load())
				fail.Store(true)
				time.Sleep(3 * time.Second)
				require.EqualValues(t, 1, failures.Load())
				require.NoError(t, ns[1].region.Stop(context.Background()))
				c.settled(time.Second, ns[0], ns[2])
				ns[2].crash()
				time.Sleep(2*ttl + 5*time.Second)
				require.Equal(t, strings.Split("a a a a a a a a a", " "), owners(ns[0]))
				require.EqualValues(t, 1, failures.Load())
				fail.Store(false)
				close(free)
				d := c.node("d")
				d.start(9)
				c.settled(20*time.Second, ns[0], d)
				require.EqualValues(t, 1, most.Load(), "one call at a time")
			})
		})
	}
}
