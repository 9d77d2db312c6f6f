package sharding_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding"
)

// moving is a shard whose many states are on their way from a node to another, over a
// link that takes half a second, when fault strikes in the midst of them. exact: as many
// cold starts are told as there are; else no fewer.
func moving(t *testing.T, exact bool, states int, fault func(c *cluster, k *keepers, from, to *node),
	at ...func(c *cluster, k *keepers, ns []*node)) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t, pad: 10 << 10, stopping: time.Second}
		ns := c.nodes("a", "b")
		for _, n := range ns {
			k.start(n, 1, sharding.WithBuffer(10*states, 100*states, hosting.DropNewest))
		}
		time.Sleep(3 * time.Second)
		from, to := ns[0], ns[1]
		if from.region.Info().Held == 0 {
			from, to = to, from
		}
		for i := range states {
			require.NoError(t, from.region.Tell(fmt.Sprint("id", i), howMany{}))
		}
		time.Sleep(time.Second)
		for _, f := range at {
			f(c, k, ns)
		}
		go func() { _ = from.region.Drain(context.Background()) }()
		time.Sleep(900 * time.Millisecond) // the offer has been made
		c.net.SetDelay(from.id+":1", to.id+":1", 500*time.Millisecond)
		c.net.SetDelay(to.id+":1", from.id+":1", 500*time.Millisecond)
		fault(c, k, from, to)
		c.net.SetDelay(from.id+":1", to.id+":1", 0)
		c.net.SetDelay(to.id+":1", from.id+":1", 0)
		time.Sleep(3 * time.Minute)
		asker := from
		if from.dead {
			asker = to
		}
		lost := k.ask(asker, states, 1)
		t.Logf("%d of %d lost", lost, states)
		if told, _, _ := k.events(); !exact {
			require.GreaterOrEqual(t, told, lost)
		} else {
			k.require(lost)
		}
		for _, n := range ns {
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

func TestTheGivingNodeDiesInTheMidstOfTheStates(t *testing.T) {
	for _, after := range []time.Duration{1100 * time.Millisecond, 1700 * time.Millisecond, 2300 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			moving(t, true, manyStates, func(_ *cluster, k *keepers, from, _ *node) {
				time.Sleep(after)
				from.crash()
			})
		})
	}
}

func TestTheTakingNodeDiesInTheMidstOfTheStates(t *testing.T) {
	for _, after := range []time.Duration{300 * time.Millisecond, 1100 * time.Millisecond, 1700 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			moving(t, true, manyStates, func(_ *cluster, _ *keepers, from, to *node) {
				time.Sleep(after)
				to.crash()
				from.region.Undrain()
			})
		})
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
				told, _, _ := k.events()
				require.InDelta(t, 200, told, 5)
			}, func(_ *cluster, _ *keepers, ns []*node) {
				for _, n := range ns {
					budget(n).Bound(1 << 20)
				}
			})
		})
	}
}

// An entity that is shut off leaves nothing, which is told.
func TestAForcedStopLosesTheState(t *testing.T) {
	bubble(t, func(c *cluster) {
		k := &keepers{t: t}
		ns := c.nodes("a", "b")
		for _, n := range ns {
			k.start(n, 4, sharding.WithStop(nil, 500*time.Millisecond))
		}
		c.settled(5*time.Second, ns...)
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
