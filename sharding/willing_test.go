package sharding_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// A handler that hangs keeps the node that lost its shard from taking it up again. The
// strategy wants it there all the same; a node that is willing gets it.
func TestAFreeShardGoesToAWillingNode(t *testing.T) {
	bubble(t, func(c *cluster) {
		hold := make(chan struct{})
		defer close(hold)
		ns := c.hostingType("a b c", sharding.Type{Name: "account", Shards: 6,
			Props: actor.PropsFromProducer(func() actor.Actor { return &stubborn{c: c, hold: hold} })},
			sharding.WithStop(nil, time.Second))
		require.Equal(t, []string{"a", "a", "b", "b", "c", "c"}, owners(ns[0]))
		for _, shard := range []int{0, 1} { // all that a has
			require.NoError(t, ns[0].region.Tell(idOf(shard, 6), block{}))
		}
		time.Sleep(10 * time.Millisecond)
		for _, n := range ns {
			n.store.Partition()
		}
		time.Sleep(2 * ttl)
		for _, n := range ns {
			n.store.Heal()
		}
		time.Sleep(2 * ttl)
		for i := range 6 {
			_, err := ask(ns[i%3], idOf(i, 6), i)
			require.NoError(t, err, "shard %d: %v", i, owners(ns[1]))
		}
	})
}
