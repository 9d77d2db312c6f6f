package sharding_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
)

// keepers watches what becomes of the states of entities that count.
type keepers struct {
	t          *testing.T
	fail       atomic.Bool
	how        func()
	asked      atomic.Int32
	cold, warm atomic.Int32
	pad        int           // bytes of each state besides
	stopping   time.Duration // how long an entity takes

	mu   sync.Mutex
	told int      // states that ColdStart events of nodes that live are about
	whys []string // of these
	noes int      // events that do not say of how many
}

// padded is a counter with a large state.
type padded struct {
	counter
	k *keepers
}

func (a *padded) Receive(ctx actor.Context) {
	if _, ok := ctx.Message().(*actor.Stopping); ok {
		time.Sleep(a.k.stopping)
	}
	a.counter.Receive(ctx)
}

func (a *padded) HandOverState() ([]byte, error) {
	state, err := a.counter.HandOverState()
	return append(state, make([]byte, a.k.pad)...), err
}

func (a *padded) RestoreState(state []byte) error {
	return a.counter.RestoreState(state[:len(state)-a.k.pad])
}

func (k *keepers) props() *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		return &padded{counter{fail: &k.fail, how: k.how, asked: &k.asked, cold: &k.cold, warm: &k.warm}, k}
	})
}

func (k *keepers) start(n *node, shards int, opts ...sharding.Option) {
	n.system.EventStream.Subscribe(func(e any) {
		if e, ok := e.(sharding.Event); ok && e.Kind == sharding.ColdStart && !n.dead {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.told += e.States
			k.whys = append(k.whys, fmt.Sprintf("%s on %s: %v", e.ID, n.id, e.Reason))
			if e.States == 0 {
				k.noes++
			}
		}
	})
	n.startType(sharding.Type{Name: "account", Shards: shards, Props: k.props()}, opts...)
}

// ask counts a message at each of the entities, and returns how many of them had not
// counted want before it.
func (k *keepers) ask(n *node, ids, want int) (lost int) {
	k.t.Helper()
	for i := range ids {
		var got int
		var err error
		for range 30 {
			if got, err = sharding.Ask[int](contextFor(5*time.Second), n.region, fmt.Sprint("id", i),
				howMany{}); err == nil {
				break
			}
		}
		require.NoError(k.t, err)
		if got != want+1 {
			lost++
		}
	}
	return lost
}

// events returns how many cold starts were told so far.
func (k *keepers) events() (told, unknown int, whys []string) {
	synctest.Wait() // the outlet tells them
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.told, k.noes, k.whys
}

func (k *keepers) require(lost int) {
	k.t.Helper()
	told, _, whys := k.events()
	require.Equal(k.t, lost, told, "every cold start is an event: %d lost, %.2000v", lost, whys)
}
