package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
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
		ns := k.hosting(c, 4, sharding.WithStateLimit(5))
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
		subtest(t, how, func(t *testing.T, c *cluster) {
			k := &keepers{t: t, how: fail}
			k.fail.Store(true)
			ns := k.hosting(c, 1)
			host := ns[slices.Index([]string{"a", "b"}, owners(ns[0])[0])]
			const all = 3
			require.Zero(t, k.ask(ns[1], all, 0))
			require.NoError(t, host.region.Drain(contextFor(10*time.Second)))
			require.EqualValues(t, all, k.asked.Load(), "each once")
			k.require(all)
			k.fail.Store(false)
			require.Equal(t, all, k.ask(host, all, 1), "they began cold")
		})
	}
}

// moving is a shard whose many states are on their way from a node to another, over a
// link that takes half a second, when fault strikes in the midst of them. exact: as many
// cold starts are told as there are; else no fewer.
func moving(t *testing.T, exact bool, states int, fault func(c *cluster, k *keepers, from, to *node),
	at ...func(from, to *node)) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t, pad: 10 << 10, stopping: time.Second}
		from, to := k.filled(c, states)
		for _, f := range at {
			f(from, to)
		}
		go func() { _ = from.region.Drain(context.Background()) }()
		time.Sleep(900 * time.Millisecond) // the offer has been made
		c.shape(memnet.Link{Delay: 500 * time.Millisecond}, from, to)
		fault(c, k, from, to)
		c.shape(memnet.Link{}, from, to)
		time.Sleep(3 * time.Minute)
		asker := from
		if from.dead {
			asker = to
		}
		lost := k.ask(asker, states, 1)
		t.Logf("%d of %d lost", lost, states)
		if told, _ := k.events(); !exact {
			require.GreaterOrEqual(t, told, lost)
		} else {
			k.require(lost)
		}
		for _, n := range []*node{from, to} {
			if !n.dead {
				require.Zero(t, handover.Of(n.system).Left.Used(), "of %s", n.id)
				require.Zero(t, handover.Of(n.system).Taken.Used(), "of %s", n.id)
			}
		}
	})
}

const manyStates = 600 // three windows

func TestTheLinkBreaksInTheMidstOfTheStates(t *testing.T) {
	for name, heal := range map[string]time.Duration{"shortly": 0, "for a while": 5 * time.Second,
		"for longer than frames are kept": 80 * time.Second} {
		for _, after := range tier.Sample([]time.Duration{200 * time.Millisecond, 900 * time.Millisecond, 1700 * time.Millisecond,
			2300 * time.Millisecond}) {
			t.Run(fmt.Sprint(name, " after ", after), func(t *testing.T) {
				// Acknowledgements that are lost for good leave both nodes to tell.
				exact := heal < time.Minute || after != 900*time.Millisecond
				moving(t, exact, manyStates, func(c *cluster, _ *keepers, from, to *node) {
					time.Sleep(after)
					c.net.Cut(from.id+":1", to.id+":1")
					time.Sleep(heal)
					c.net.Heal(from.id+":1", to.id+":1")
				})
			})
		}
	}
}

func TestANodeDiesInTheMidstOfTheStates(t *testing.T) {
	for gives, moments := range map[bool][]time.Duration{true: {1100, 1700, 2300}, false: {300, 1100, 1700}} {
		for _, moment := range moments {
			t.Run(fmt.Sprint("gives=", gives, " after ", int(moment), " ms"), func(t *testing.T) {
				moving(t, true, manyStates, func(_ *cluster, _ *keepers, from, to *node) {
					time.Sleep(moment * time.Millisecond)
					if gives {
						from.crash()
						return
					}
					to.crash()
					from.region.Undrain()
				})
			})
		}
	}
}

func TestMoreStatesThanTheBudget(t *testing.T) {
	for name, budget := range map[string]func(n *node) *handover.Budget{
		"of what is left":  func(n *node) *handover.Budget { return &handover.Of(n.system).Left },
		"of what is taken": func(n *node) *handover.Budget { return &handover.Of(n.system).Taken },
	} {
		t.Run(name, func(t *testing.T) {
			moving(t, true, 300, func(c *cluster, k *keepers, _, _ *node) {
				time.Sleep(5 * time.Second)
				told, _ := k.events()
				require.InDelta(t, 200, told, 5)
			}, func(from, to *node) {
				budget(from).Bound(1 << 20)
				budget(to).Bound(1 << 20)
			})
		})
	}
}

// An entity that is shut off leaves nothing, which is told.
func TestAForcedStopLosesTheState(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		ns := k.hosting(c, 4, sharding.WithStop(nil, 500*time.Millisecond))
		require.Zero(t, k.ask(ns[1], 40, 0))
		k.stopping = time.Second
		require.NoError(t, ns[0].region.Drain(context.Background()))
		lost := k.ask(ns[1], 40, 1)
		require.NotZero(t, lost)
		k.require(lost)
	})
}

// A peer that sends states of its own accord takes up nothing, and is no event.
func TestHostileStates(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		ns := c.nodes("a", "b")
		k.start(ns[0], 1)
		time.Sleep(3 * time.Second)
		b := ns[1]
		evil := &wire.Node{Address: "b:1", Incarnation: b.keeper.Owner().Incarnation}
		to := processAt("a:1")
		name := "shard/g/account/0"
		require.NoError(t, ns[0].region.Tell("id0", howMany{}))
		time.Sleep(time.Second)
		for i := range 1000 {
			b.system.Root.Send(to, &wire.EntityState{Name: name, From: evil, Number: 7, Key: fmt.Sprint("id", i),
				State: make([]byte, 1000), States: 1 << 31})
		}
		b.system.Root.Send(to, &wire.HandedOver{Name: name, From: evil, Number: 7, States: 1 << 31})
		time.Sleep(time.Second)
		require.Zero(t, handover.Of(ns[0].system).Taken.Used())
		k.require(0)
	})
}

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
	n.hears(sharding.ColdStart, func(e sharding.Event) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if n.dead {
			return
		}
		k.told += e.States
		k.whys = append(k.whys, fmt.Sprintf("%s on %s: %v", e.ID, n.id, e.Reason))
	})
	n.startType(sharding.Type{Name: "account", Shards: shards, Props: k.props()}, opts...)
}

// hosting starts shards on the nodes a and b, and waits until they are hosted.
func (k *keepers) hosting(c *cluster, shards int, opts ...sharding.Option) []*node {
	k.t.Helper()
	ns := c.nodes("a", "b")
	for _, n := range ns {
		k.start(n, shards, opts...)
	}
	c.settled(5*time.Second, ns...)
	return ns
}

// filled starts a shard with so many states, and returns its host and the other node.
func (k *keepers) filled(c *cluster, states int) (from, to *node) {
	k.t.Helper()
	ns := k.hosting(c, 1, sharding.WithBuffer(10*states, 100*states, hosting.DropNewest))
	time.Sleep(time.Second)
	from, to = ns[0], ns[1]
	if from.region.Info().Held == 0 {
		from, to = to, from
	}
	for i := range states {
		require.NoError(k.t, from.region.Tell(fmt.Sprint("id", i), howMany{}))
	}
	time.Sleep(time.Second)
	return from, to
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
func (k *keepers) events() (told int, whys []string) {
	synctest.Wait() // the outlet tells them
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.told, k.whys
}

func (k *keepers) require(lost int) {
	k.t.Helper()
	told, whys := k.events()
	require.Equal(k.t, lost, told, "every cold start is an event: %d lost, %.2000v", lost, whys)
}

// A planned move over links that are slow starts warm, also where states take longer than the old
// host's record.
func TestPlannedMovesOverSlowLinksStartWarm(t *testing.T) {
	delays := tier.Draws(28, 28)
	for i := range delays {
		d := 50*time.Millisecond + time.Duration(i)*350*time.Millisecond/time.Duration(delays-1)
		subtest(t, d.String(), func(t *testing.T, c *cluster) {
			k := &keepers{t: t}
			ns := k.hosting(c, 4)
			require.Equal(t, 0, k.ask(ns[1], 40, 0))
			c.shape(memnet.Link{Delay: d}, ns...)
			require.NoError(t, ns[0].region.Drain(context.Background()))
			require.Zero(t, k.ask(ns[1], 40, 1))
			k.require(0)
		})
	}
}

// lateStore's Load takes its time.
type lateStore struct {
	sharding.EntityStore
	wait *atomic.Bool
}

func (s lateStore) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	for s.wait.Load() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return s.EntityStore.Load(ctx, o)
}

// A state that was handed over and whose entity has not started yet moves on with the
// shard, or is told where nobody takes that over.
func TestUnclaimedStatesMoveOn(t *testing.T) {
	for name, x := range map[string]struct {
		wait  time.Duration
		moves bool
	}{"to the next host": {2 * time.Second, true}, "perhaps to nobody, as the other node is about to host again": {0, false}} {
		subtest(t, name, func(t *testing.T, c *cluster) {
			k := &keepers{t: t}
			var slow atomic.Bool
			store := sharding.NewMemoryEntities()
			ns := k.hosting(c, 4, sharding.WithRemember(lateStore{store, &slow}, 0))
			require.Zero(t, k.ask(ns[1], 40, 0))
			slow.Store(true)
			require.NoError(t, ns[0].region.Drain(context.Background()))
			ns[0].region.Undrain()
			time.Sleep(x.wait)
			require.NoError(t, ns[1].region.Drain(context.Background()))
			slow.Store(false)
			time.Sleep(5 * time.Second)
			lost := k.ask(ns[0], 40, 1)
			if x.moves {
				require.Zero(t, lost)
			}
			k.require(lost)
			ns[1].region.Undrain()
		})
	}
}

// A planned move waits for no store of what is remembered, which a coordinator asks when it
// begins: the shards that live move, warm.
func TestMovesDoNotWaitForTheStoreOfEntities(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		var slow atomic.Bool
		store := sharding.NewMemoryEntities()
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			k.start(n, 12, sharding.WithRemember(lateStore{store, &slow}, 0))
		}
		c.settled(5*time.Second, ns...)
		time.Sleep(2 * time.Second)
		require.Zero(t, k.ask(ns[1], 40, 0))
		slow.Store(true)
		for len(ns) > 1 { // the next coordinator begins
			time.Sleep(time.Second)
			i := slices.IndexFunc(ns, func(n *node) bool { return n.region.Info().Coordinator.ID == n.id })
			require.GreaterOrEqual(t, i, 0)
			began := time.Now()
			require.NoError(t, ns[i].region.Stop(context.Background()))
			require.Less(t, time.Since(began), 5*time.Second)
			ns = slices.Delete(ns, i, i+1)
		}
		require.Equal(t, 12, ns[0].region.Info().Held)
		slow.Store(false)
		time.Sleep(5 * time.Second)
		require.Zero(t, k.ask(ns[0], 40, 1))
		k.require(0)
	})
}

// States that come after the new host went on without them are told, one by one.
func TestLateStatesAreReported(t *testing.T) {
	moving(t, true, 40, func(c *cluster, k *keepers, from, to *node) {
		c.net.SetDelay(from.id+":1", to.id+":1", 12*time.Second)
		time.Sleep(time.Minute)
		told, _ := k.events()
		require.NotZero(t, told)
	})
}

// 10 000 states on a slow link wait on their node, within a window on the link.
func TestManyStatesGoInAWindow(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t, pad: 1 << 10}
		ids := tier.Draws(10_000, 10_000)
		from, to := k.filled(c, ids)
		c.net.SetDelay(from.id+":1", to.id+":1", 300*time.Millisecond)
		var most atomic.Uint64
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					most.Store(max(most.Load(), c.net.Stats().Queued))
				}
			}
		}()
		require.NoError(t, from.region.Drain(context.Background()))
		time.Sleep(10 * time.Second)
		close(stop)
		time.Sleep(time.Second)
		require.Less(t, most.Load(), uint64(transport.MaxBytes/(1<<10)+200), "the window")
		require.Greater(t, most.Load(), uint64(ids/10))
		require.EqualValues(t, ids, k.warm.Load())
		k.require(0)
	})
}
