package sharding_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// counter has a state that moves with it.
type counter struct {
	n     int
	fail  *atomic.Bool
	how   func() // it fails otherwise, nil: by an error
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
			a.how()
		}
		return nil, errors.New("no")
	}
	return []byte(strings.Repeat("x", a.n)), nil
}

func (a *counter) RestoreState(state []byte) error {
	a.n, a.given = len(state), true
	return nil
}

// The state of entities moves with a planned hand-over, and one that is too large is a cold start.
func TestStateIsHandedOver(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		ns := c.nodes("a", "b")
		for _, n := range ns {
			k.start(n, 4, sharding.WithStateLimit(5))
		}
		c.settled(5*time.Second, ns...)
		for n := range 3 {
			require.Zero(t, k.ask(ns[1], 20, n))
		}
		require.NoError(t, ns[0].region.Drain(context.Background()))
		require.Zero(t, k.ask(ns[1], 20, 3))
		require.EqualValues(t, 20, k.cold.Load())
		require.NotZero(t, k.warm.Load())
		ns[0].region.Undrain()
		c.settled(20*time.Second, ns...)
		require.Zero(t, k.ask(ns[1], 20, 4))
		require.Zero(t, k.ask(ns[1], 20, 5), "more than the limit")
		k.require(0)
		require.NoError(t, ns[0].region.Drain(context.Background()))
		lost := k.ask(ns[1], 20, 6)
		require.NotZero(t, lost)
		k.require(lost)
	})
}

// However an entity fails that is asked for its state, it is asked once, and the shard moves.
func TestAStateThatIsNotHandedOver(t *testing.T) {
	for how, fail := range map[string]func(){"an error": nil, "a panic": func() { panic("a bug") }} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				k := &keepers{t: t, how: fail}
				k.fail.Store(true)
				ns := c.nodes("a", "b")
				for _, n := range ns {
					k.start(n, 1)
				}
				c.settled(5*time.Second, ns...)
				host := ns[slices.Index([]string{"a", "b"}, owners(ns[0])[0])]
				const all = 3
				require.Zero(t, k.ask(ns[1], all, 0))
				require.NoError(t, host.region.Drain(contextFor(10*time.Second)))
				require.EqualValues(t, all, k.asked.Load(), "each once")
				k.require(all)
				k.fail.Store(false)
				require.Equal(t, all, k.ask(host, all, 1), "they began cold")
			})
		})
	}
}
