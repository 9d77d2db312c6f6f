package singleton_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// pair is two nodes that follow a leader, with children that have a state, take their time to
// stop, and log how they started.
type pair struct {
	*team
	log   []string
	adapt func(*keepsake) // changes what later children do
}

// newPair starts the singleton on n0, where it is given a state, and on n1.
func newPair(c *cluster, takes time.Duration, opts ...singleton.Option) *pair {
	return newPairOf(c, []*node{c.node("n0"), c.node("n1")}, keeperOwner, takes, opts...)
}

func newPairOf(c *cluster, ns []*node, owner func(*node) lease.Owner, takes time.Duration,
	opts ...singleton.Option) *pair {
	p := &pair{adapt: func(*keepsake) {}}
	p.team = newTeamOf(c, ns, owner, func(n *node, leads singleton.Option) *singleton.Manager {
		return n.runProps("x", actor.PropsFromProducer(func() actor.Actor {
			k := &keepsake{n: n, takes: takes, restored: &p.log}
			p.adapt(k)
			return k
		}), append(opts, leads)...)
	})
	p.lead(0)
	p.hosts(0)
	ns[0].system.Root.Send(p.ms[0].PID(), job{Number: 7})
	time.Sleep(time.Second)
	return p
}

// An offer lives for a TTL; a child that takes longer to stop does not outlive it.
func TestAnOfferIsRenewedWhileTheChildStops(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p := newPair(c, 3*ttl, singleton.WithStop(nil, 10*ttl))
		events := p.ns[0].events()
		p.lead(1)
		until(t, 4*ttl, "hosts", active(p.ms[1]))
		time.Sleep(time.Second)
		require.Len(t, events.of(singleton.HandedOver), 1)
		require.Equal(t, []string{"started with 0 on n0", "started with 7 on n1"}, p.log)
	})
}

// State that could not be handed over with its child is not handed over with
// another.
func TestStateThatWasNotHandedOverIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p := newPair(c, 2*ttl, singleton.WithStop(nil, 10*ttl))
		p.adapt = func(k *keepsake) {
			if k.n == p.ns[0] {
				k.takes, k.fail = 0, "leave nothing"
			}
		}
		events := p.ns[0].events()
		p.lead(1)
		until(t, 2*time.Second, "hands over", func() bool { return p.ms[0].Status().Phase == singleton.HandingOver })
		p.ns[1].store.Partition() // its session ends: the transfer is refused
		until(t, 4*ttl, "released", func() bool { return p.ms[0].Status().Phase == singleton.Standby })
		require.Len(t, events.of(singleton.ColdStart), 1)
		p.ns[1].store.Heal()
		until(t, 3*ttl, "hosts", active(p.ms[1]))
		p.lead(0)
		until(t, 4*ttl, "hosts", active(p.ms[0]))
		p.lead(1)
		until(t, 4*ttl, "hosts", active(p.ms[1]))
		time.Sleep(time.Second)
		require.Equal(t, []string{"started with 0 on n0", "started with 0 on n1", "started with 0 on n0", "started with 0 on n1"}, p.log)
	})
}

// What the store tells of a transfer may overtake the old host's word of it, which
// brings the state.
func TestStateArrivesAfterTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p := newPair(c, 0)
		cold := p.ns[1].events()
		// The look at the name that begins with the offer sees it transferred.
		c.net.SetDelay(p.ns[0].system.Address(), p.ns[1].system.Address(), 50*time.Millisecond)
		c.net.SetDelay(p.ns[1].system.Address(), p.ns[0].system.Address(), 50*time.Millisecond)
		p.ns[1].store.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Delay, Delay: 75 * time.Millisecond}, faultstore.Get))
		p.lead(1)
		until(t, time.Second, "hosts", active(p.ms[1]))
		time.Sleep(time.Second)
		require.Equal(t, []string{"started with 0 on n0", "started with 7 on n1"}, p.log)
		require.Empty(t, cold.of(singleton.ColdStart))
	})
}

// A source of leadership may know addresses only, as protoactor's does.
func TestALeaderIsKnownByItsAddress(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		owner := func(n *node) lease.Owner {
			return lease.Owner{ID: n.id, Incarnation: n.system.ID, Address: n.system.Address()}
		}
		p := newPairOf(c, c.nodes("n0", "n1"), owner, 0)
		p.lead(1)
		until(t, time.Second, "hosts", active(p.ms[1]))
		time.Sleep(time.Second)
		require.Equal(t, []string{"started with 0 on n0", "started with 7 on n1"}, p.log, "transferred, with its state")
	})
}

// The new host keeps what it is being handed though its leadership ends and nobody
// else's begins.
func TestTheLeaderGoesDuringAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p := newPair(c, time.Second)
		p.lead(1)
		until(t, 2*time.Second, "offers", func() bool { return p.ms[1].Status().Phase == singleton.Offered })
		for _, l := range p.leaders {
			l.Set(lease.Owner{})
		}
		until(t, 2*time.Second, "hosts", active(p.ms[1]))
		time.Sleep(3 * time.Second)
		require.Equal(t, singleton.Active, p.ms[1].Status().Phase)
		require.Equal(t, []string{"started with 0 on n0", "started with 7 on n1"}, p.log)
	})
}

// A host that was handed a lease with a state, and takes it up only when others
// have hosted since, starts cold.
func TestStateThatIsTakenUpTooLateIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		patient := func(cfg *lease.Config) { cfg.OperationTimeout = 10 * ttl }
		p := newPairOf(c, []*node{c.node("n0"), c.node("n1", patient)}, keeperOwner, 0)
		cold := p.ns[1].events()
		p.ns[1].store.SetRule(func(call faultstore.Call) faultstore.Fault {
			if rec := c.record("singleton/x"); call.Op == faultstore.Acquire && rec != nil && rec.Owner.ID == "n1" {
				return faultstore.Fault{Kind: faultstore.Delay, Delay: 100 * time.Millisecond}
			}
			return faultstore.Fault{}
		})
		p.lead(1)
		until(t, 4*ttl, "takes up", func() bool { return p.ms[1].Status().Phase == singleton.Adopting })
		p.ns[1].store.Partition()
		p.leaders[0].Set(keeperOwner(p.ns[0]))
		until(t, 3*ttl, "hosts again", active(p.ms[0]))
		p.ns[0].system.Root.Send(p.ms[0].PID(), job{Number: 9})
		time.Sleep(time.Second)
		require.NoError(t, p.ms[0].Stop(t.Context()))
		p.ns[1].store.SetRule(nil)
		p.ns[1].store.Heal()
		until(t, 5*ttl, "hosts", active(p.ms[1]))
		time.Sleep(time.Second)
		require.Equal(t, []string{"started with 0 on n0", "started with 0 on n0", "started with 0 on n1"}, p.log)
		require.Len(t, cold.of(singleton.ColdStart), 1)
	})
}

// What a child would have handed over is given up where no node takes over: that is told.
func TestAStateWithoutSuccessorIsReported(t *testing.T) {
	for _, stateful := range []bool{true, false} {
		subtest(t, fmt.Sprint(stateful), func(t *testing.T, c *cluster) {
			var log []string
			a := c.node("a")
			told, want := a.events(), 0
			var m *singleton.Manager
			if stateful {
				m, want = a.keeping(&log), 1
			} else {
				m = a.run("x")
			}
			until(t, time.Second, "hosts", active(m))
			require.NoError(t, m.Stop(t.Context()))
			require.Len(t, told.of(singleton.ColdStart), want)
			require.Len(t, told.of(singleton.Released), 1)
		})
	}
}

// moved is a pair with a state at n0 that moves to n1; prepare is called before, begun
// when the child, which takes a second, has been told to stop.
func moved(t *testing.T, c *cluster, prepare, begun func(p *pair), opts ...singleton.Option) (p *pair, cold func() int) {
	p = newPair(c, time.Second, opts...)
	e0, e1 := p.ns[0].events(), p.ns[1].events()
	prepare(p)
	p.lead(1)
	until(t, 5*time.Second, "hands over", func() bool { return p.ms[0].Status().Phase == singleton.HandingOver })
	begun(p)
	return p, func() int { return len(e0.of(singleton.ColdStart)) + len(e1.of(singleton.ColdStart)) }
}

func nothing(*pair) {}

const warmly, coldly = "started with 7 on n1", "started with 0 on n1"

// A state that comes when the next host has gone on is told once; so is one whose link
// breaks, or whose host dies.
func TestALateStateIsReported(t *testing.T) {
	for what, x := range map[string]struct {
		begun func(c *cluster, p *pair)
		want  int
	}{
		"too late": {func(c *cluster, _ *pair) { c.net.SetDelay("n0:1", "n1:1", 12*time.Second) }, 1},
		"link broken": {func(c *cluster, _ *pair) {
			c.net.SetDelay("n0:1", "n1:1", 2*time.Second)
			time.Sleep(2 * time.Second)
			c.net.Cut("n0:1", "n1:1")
			time.Sleep(10 * time.Second)
			c.net.Heal("n0:1", "n1:1")
			c.net.SetDelay("n0:1", "n1:1", 0)
		}, 1},
		"link broken for good": {func(c *cluster, _ *pair) {
			c.net.SetDelay("n0:1", "n1:1", 2*time.Second)
			time.Sleep(2 * time.Second)
			c.net.Cut("n0:1", "n1:1")
		}, 1},
		"giving node dies": {func(c *cluster, p *pair) {
			c.net.SetDelay("n0:1", "n1:1", 2*time.Second)
			time.Sleep(2 * time.Second)
			p.ns[0].crash()
		}, 1},
	} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			p, cold := moved(t, c, nothing, func(p *pair) { x.begun(c, p) })
			until(t, ttl, "hosts", active(p.ms[1]))
			time.Sleep(3 * time.Minute)
			require.Equal(t, coldly, p.log[1])
			require.Equal(t, x.want, cold())
			for _, n := range p.ns {
				require.Zero(t, handover.Of(n.system).Left.Used())
				require.Zero(t, handover.Of(n.system).Taken.Used())
			}
		})
	}
}

// A state that is sent when the next host's offer is over is told: the transfer took longer
// than that.
func TestAStateAfterTheOfferIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p, cold := moved(t, c, nothing, func(p *pair) {
			over := time.Now().Add(ttl + 50*time.Millisecond)
			p.ns[0].store.SetRule(func(call faultstore.Call) faultstore.Fault {
				if call.Op == faultstore.Transfer && time.Now().Before(over) {
					return faultstore.Fault{Kind: faultstore.Drop}
				}
				return faultstore.Fault{}
			})
		})
		until(t, 3*ttl, "hosts", active(p.ms[1]))
		time.Sleep(3 * time.Minute)
		require.Equal(t, coldly, p.log[1])
		require.Equal(t, 1, cold())
	})
}

// The next host dies before it has the state: the old one tells.
func TestTheNextHostDiesBeforeItHasTheState(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p, cold := moved(t, c, nothing, func(p *pair) {
			c.net.SetDelay("n0:1", "n1:1", 2*time.Second)
			time.Sleep(2 * time.Second)
			p.ns[1].crash()
			c.atEnd(func() { p.ns[1].clock.Thaw(); p.ns[1].store.Heal() })
			p.leaders[0].Set(keeperOwner(p.ns[0]))
		})
		until(t, 4*ttl, "hosts again", active(p.ms[0]))
		time.Sleep(3 * time.Minute)
		require.Equal(t, "started with 0 on n0", p.log[len(p.log)-1])
		require.Equal(t, 1, cold())
		require.Zero(t, handover.Of(p.ns[0].system).Left.Used())
	})
}

// A child that is shut off leaves nothing, and a state beyond the budget is not sent:
// both are told.
func TestAMissingStateIsReported(t *testing.T) {
	for what, opts := range map[string][]singleton.Option{
		"overdue": {singleton.WithStop(nil, 500*time.Millisecond)},
		"budget":  nil,
	} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			p, cold := moved(t, c, nothing, func(p *pair) {
				if what == "budget" {
					handover.Of(p.ns[0].system).Left.Bound(10)
				}
			}, opts...)
			until(t, ttl, "hosts", active(p.ms[1]))
			time.Sleep(time.Second)
			require.Equal(t, coldly, p.log[1])
			require.Equal(t, 1, cold())
		})
	}
}
