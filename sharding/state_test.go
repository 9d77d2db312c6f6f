package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// counter has a state that moves with it.
type counter struct {
	n     int
	fail  *atomic.Bool
	how   func(*counter) // it fails otherwise, nil: by an error
	asked *atomic.Int32
	cold  *atomic.Int32
	warm  *atomic.Int32
	given bool
}

func (a *counter) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		if a.given {
			a.warm.Add(1)
		} else {
			a.cold.Add(1)
		}
	case howMany:
		a.n++
		ctx.Respond(a.n)
	}
}

func (a *counter) HandOverState() ([]byte, error) {
	a.asked.Add(1)
	if a.fail.Load() {
		if a.how != nil {
			a.how(a)
		}
		return nil, errors.New("no")
	}
	return []byte(strings.Repeat("x", a.n)), nil
}

func (a *counter) RestoreState(state []byte) error {
	a.n, a.given = len(state), true
	return nil
}

// The state of entities moves with a planned hand-over, and a failure is a cold
// start.
func TestStateIsHandedOver(t *testing.T) {
	bubble(t, func(c *cluster) {
		var fail atomic.Bool
		var asked, cold, warm, told atomic.Int32
		props := actor.PropsFromProducer(func() actor.Actor {
			return &counter{fail: &fail, asked: &asked, cold: &cold, warm: &warm}
		})
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.counts(sharding.ColdStart, &told)
			n.startType(sharding.Type{Name: "account", Shards: 4, Props: props}, sharding.WithStateLimit(5))
		}
		c.settled(5*time.Second, ns...)
		all := func(want int) {
			for i := range 20 {
				got, err := sharding.Ask[int](contextFor(time.Second), ns[1].region, fmt.Sprint("id", i), howMany{})
				require.NoError(t, err)
				if want > 0 {
					require.Equal(t, want, got)
				}
			}
		}
		for k := range 3 {
			all(k + 1)
		}
		require.EqualValues(t, 20, cold.Load())
		require.NoError(t, ns[0].region.Drain(context.Background()))
		all(4)
		require.NotZero(t, warm.Load())
		require.EqualValues(t, 20, cold.Load())
		ns[0].region.Undrain()
		c.settled(20*time.Second, ns...)
		all(5)
		synctest.Wait()
		require.Zero(t, told.Load())
		all(6) // more than the limit
		require.NoError(t, ns[0].region.Drain(context.Background()))
		all(0)
		synctest.Wait()
		require.NotZero(t, told.Load())
		require.Greater(t, cold.Load(), int32(20))
	})
}

// However an entity fails that is asked for its state, it is asked once, and the shard moves.
func TestAStateThatIsNotHandedOver(t *testing.T) {
	for how, fail := range map[string]func(*counter){
		"an error": nil, "a panic": func(*counter) { panic("a bug") },
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				var bad atomic.Bool
				var asked, cold, warm, told atomic.Int32
				bad.Store(true)
				props := actor.PropsFromProducer(func() actor.Actor {
					return &counter{fail: &bad, how: fail, asked: &asked, cold: &cold, warm: &warm}
				})
				ns := c.nodes("a", "b")
				for _, n := range ns {
					n.counts(sharding.ColdStart, &told)
					n.startType(sharding.Type{Name: "account", Shards: 1, Props: props})
				}
				c.settled(5*time.Second, ns...)
				host, other := ns[0], ns[1]
				if owners(host)[0] == "b" {
					host, other = other, host
				}
				const all = 3
				for i := range all {
					_, err := sharding.Ask[int](contextFor(time.Second), other.region, fmt.Sprint("id", i), howMany{})
					require.NoError(t, err)
				}
				require.NoError(t, host.region.Drain(contextFor(10*time.Second)))
				require.EqualValues(t, all, asked.Load(), "each once")
				synctest.Wait()
				require.EqualValues(t, all, told.Load())
				bad.Store(false)
				for i := range all {
					n, err := sharding.Ask[int](contextFor(time.Second), host.region, fmt.Sprint("id", i), howMany{})
					require.NoError(t, err)
					require.Equal(t, 1, n, "it began cold")
				}
			})
		})
	}
}
