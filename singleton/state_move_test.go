package singleton_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// moved is a pair with a state at n0 that moves to n1; prepare is called before, begun
// when the child, which takes a second, has been told to stop.
func moved(t *testing.T, c *cluster, prepare, begun func(p *pair), opts ...singleton.Option) (p *pair, cold func() int) {
	p = newPair(c, func(_ *node, _ int, k *keepsake) actor.Actor { return &slow{k, time.Second} }, keeperOwner, opts...)
	p.lead(0, keeperOwner)
	until(t, time.Second, "hosts", active(p.ms[0]))
	p.ns[0].system.Root.Send(p.ms[0].PID(), job{Number: 7})
	time.Sleep(time.Second)
	e0, e1 := p.ns[0].events(), p.ns[1].events()
	prepare(p)
	p.lead(1, keeperOwner)
	until(t, 5*time.Second, "hands over", func() bool { return p.ms[0].Status().Phase == singleton.HandingOver })
	begun(p)
	return p, func() int { return len(e0.of(singleton.ColdStart)) + len(e1.of(singleton.ColdStart)) }
}

func nothing(*pair) {}

const warmly, coldly = "started with 7 on n1", "started with 0 on n1"

// A planned move over links that are slow starts warm.
func TestPlannedMovesOverSlowLinksStartWarm(t *testing.T) {
	for i := range 28 {
		d := 50*time.Millisecond + time.Duration(i)*250*time.Millisecond/27
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				p, cold := moved(t, c, func(*pair) {
					c.net.SetDelay("n0:1", "n1:1", d)
					c.net.SetDelay("n1:1", "n0:1", d)
				}, nothing)
				until(t, 4*time.Second, "hosts", active(p.ms[1]))
				time.Sleep(time.Second)
				require.Equal(t, warmly, p.log[1])
				require.Zero(t, cold())
			})
		})
	}
}

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
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
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
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
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
		})
	}
}
