package sharding_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// brittle returns the Props of entities that fail before their first message while bad is set.
func (n *node) brittle(how string, bad *atomic.Bool) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		if how == "Props panic" && bad.Load() {
			panic("no configuration")
		}
		a := &account{n: n}
		return actor.ReceiveFunc(func(ctx actor.Context) {
			if _, first := ctx.Message().(*actor.Started); first && how == "Started panics" && bad.Load() {
				panic("no database")
			} else if first || a.self != nil {
				a.Receive(ctx)
			}
		})
	})
}

// Entities that fail at once on one node are hosted by the others, but for a moment now and then.
func TestEntitiesThatFailAtOnceAreHandedOn(t *testing.T) {
	for _, how := range []string{"Props panic", "Started panics"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				const shards = 6
				ns := c.nodes("a", "b", "c")
				var bad atomic.Bool
				ns[0].startType(sharding.Type{Name: "account", Props: ns[0].brittle(how, &bad), Shards: shards})
				ns[1].start(shards)
				ns[2].start(shards)
				c.settled(5*time.Second, ns...)
				bad.Store(true)
				ill, answered, moved := 0, 0, ns[0].region.Info().HandedOff
				const minutes = 10
				for i := range minutes * 60 {
					if ns[0].region.Health(t.Context()) != nil {
						ill++
					}
					if _, err := ask(ns[1], idOf(i%shards, shards), i); err == nil {
						answered++
					}
					time.Sleep(time.Second)
				}
				require.Greater(t, answered, minutes*60*90/100)
				require.Less(t, ns[0].region.Info().HandedOff-moved, int64(2*(6+2*minutes+3)), "its shards move once in a pause")
				require.Less(t, ill, minutes*60/10)
				bad.Store(false)
				c.settled(2*time.Minute, ns...)
				for i := range shards {
					_, err := ask(ns[0], idOf(i, shards), i)
					require.NoError(t, err)
				}
				require.NoError(t, ns[0].region.Health(t.Context()))
				c.log.check()
			})
		})
	}
}

// Where entities work nowhere, every node says so, and they are tried again and again.
func TestEntitiesThatFailEverywhere(t *testing.T) {
	for _, ids := range [][]string{{"a"}, {"a", "b"}} {
		bubble(t, func(c *cluster) {
			const shards = 4
			ns := c.nodes(ids...)
			var bad atomic.Bool
			for _, n := range ns {
				n.startType(sharding.Type{Name: "account", Props: n.brittle("Started panics", &bad), Shards: shards})
			}
			c.settled(5*time.Second, ns...)
			bad.Store(true)
			ill := 0
			for i := range 600 {
				_, err := ask(ns[0], idOf(i%shards, shards), i)
				require.Error(t, err)
				for _, n := range ns {
					if n.region.Health(t.Context()) != nil {
						ill++
					}
				}
			}
			require.Greater(t, ill, 500)
			bad.Store(false)
			time.Sleep(time.Minute)
			for i := range shards {
				_, err := ask(ns[0], idOf(i, shards), i)
				require.NoError(t, err)
			}
			for _, n := range ns {
				require.NoError(t, n.region.Health(t.Context()))
			}
		})
	}
}
