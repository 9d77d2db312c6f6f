package sharding_test

import (
	"context"
	"errors"
	"fmt"
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
	if a.fail.Load() {
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
		var cold, warm, told atomic.Int32
		props := actor.PropsFromProducer(func() actor.Actor { return &counter{fail: &fail, cold: &cold, warm: &warm} })
		ns := c.nodes("a", "b")
		for _, n := range ns {
			n.system.EventStream.Subscribe(func(e any) {
				if e, ok := e.(sharding.Event); ok && e.Kind == sharding.ColdStart {
					told.Add(1)
				}
			})
			n.startType(sharding.Type{Name: "account", Shards: 4, Props: props}, sharding.WithStateLimit(5))
		}
		c.settled(5*time.Second, ns...)
		all := func(want int) {
			for i := range 20 {
				got, err := sharding.Ask[int](contextFor(t, time.Second), ns[1].region, fmt.Sprint("id", i), howMany{})
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
		require.Zero(t, told.Load())
		all(6) // more than the limit
		require.NoError(t, ns[0].region.Drain(context.Background()))
		all(0)
		require.NotZero(t, told.Load())
		require.Greater(t, cold.Load(), int32(20))
	})
}
