package sharding_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

func TestBadInput(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		props := actor.PropsFromFunc(func(actor.Context) {})
		good := sharding.Type{Name: "x", Props: props, Shards: 4}
		for _, x := range []struct {
			why  string
			typ  sharding.Type
			opts []sharding.Option
		}{
			{"x name", sharding.Type{}, nil},
			{"shards: -1, must be 1 to 65536", sharding.Type{Name: "x", Shards: -1}, nil},
			{"shards: 65537", sharding.Type{Name: "x", Shards: 65537}, nil},
			{"nil Option", good, []sharding.Option{nil}},
			{"WithStrategy: nil", good, []sharding.Option{sharding.WithStrategy(nil)}},
			{"Limits.Moves: -1", good, []sharding.Option{sharding.WithLimits(sharding.Limits{Moves: -1})}},
			{"bound of a shard: 0, must be at least 1", good, []sharding.Option{sharding.WithBuffer(0, 1, sharding.DropNewest)}},
			{"bound in all: 0", good, []sharding.Option{sharding.WithBuffer(1, 0, sharding.DropNewest)}},
			{"unknown policy 9", good, []sharding.Option{sharding.WithBuffer(1, 1, 9)}},
			{"WithStop: 0", good, []sharding.Option{sharding.WithStop(nil, 0)}},
			{"OnStubborn: unknown policy 9", good, []sharding.Option{sharding.OnStubborn(9)}},
			{"WithPassivation: -1", good, []sharding.Option{sharding.WithPassivation(-1)}},
			{"WithPassivation: 1ms, must be 0 or at least 10ms", good,
				[]sharding.Option{sharding.WithPassivation(time.Millisecond)}},
			{"WithMaxActive: -1", good, []sharding.Option{sharding.WithMaxActive(-1)}},
			{"entities a second: -1", good, []sharding.Option{sharding.WithRemember(nil, -1)}},
			{"WithStateLimit: -1", good, []sharding.Option{sharding.WithStateLimit(-1)}},
			{"least: 0", good, []sharding.Option{sharding.WithBackoff(0, 1)}},
			{"most: 1000000, must be at least 2000000", good,
				[]sharding.Option{sharding.WithBackoff(2*time.Millisecond, time.Millisecond)}},
			{"WithLinger: -1", good, []sharding.Option{sharding.WithLinger(-1)}},
			{"WithDepart: -1", good, []sharding.Option{sharding.WithDepart(-1)}},
			{"WithSettle: -1", good, []sharding.Option{sharding.WithSettle(-1)}},
		} {
			_, err := sharding.Start(n.system, n.group, x.typ, x.opts...)
			require.ErrorIs(t, err, lease.ErrInvalid, x.why)
			if x.why != "x name" {
				require.ErrorContains(t, err, x.why)
			}
		}
		_, err := sharding.Start(nil, n.group, good)
		require.ErrorContains(t, err, "system")
		_, err = sharding.Start(n.system, nil, good)
		require.ErrorContains(t, err, "group")
		alone := actor.NewActorSystem(remoting.LogTo(nil))
		_, err = sharding.Start(alone, n.group, good)
		require.ErrorContains(t, err, "start remote before")

		r := n.startType(good)
		_, err = sharding.Start(n.system, n.group, good)
		require.ErrorIs(t, err, sharding.ErrNameInUse)
		for _, id := range []string{"", strings.Repeat("x", sharding.MaxEntityID+1), "\xff"} {
			require.ErrorIs(t, r.Tell(id, job{}), lease.ErrInvalid)
			_, err := r.Ref(id)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		require.ErrorIs(t, r.Tell("x", nil), lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), nil, "x", job{})
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), r, "x", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.NoError(t, r.Stop(context.Background()))
		require.ErrorIs(t, r.Tell("x", job{}), sharding.ErrClosed)
		require.NoError(t, r.Stop(context.Background()), "twice")
		synctest.Wait()
	})
}

// Start may fail, and leaves nothing behind.
func TestStartThatFailsLeavesNothing(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		n.store.Partition()
		_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
		require.Error(t, err)
		n.store.Heal()
		time.Sleep(2 * ttl)
		n.start(8)
		c.settled(30*time.Second, n)
	})
}
