package singleton_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// broken returns the Props of a child that fails before its first message while bad is set.
func (n *node) broken(how string, bad *atomic.Bool) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		if how == "Props panic" && bad.Load() {
			panic("no configuration")
		}
		began := false
		return actor.ReceiveFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				if how == "Started panics" && bad.Load() {
					panic("no database")
				}
				began = true
			}
			if began {
				n.c.log.receive(n, ctx)
			}
		})
	})
}

func TestAChildThatFailsAtOnceIsHandedOn(t *testing.T) {
	for _, how := range []string{"Props panic", "Started panics"} {
		for _, by := range []string{"", "preferred", "leader", "bare"} {
			t.Run(how+" "+by, func(t *testing.T) {
				bubble(t, func(t *testing.T, c *cluster) {
					a, b := c.node("a"), c.node("b")
					var opts [2][]singleton.Option
					for i, n := range []*node{a, b} {
						h, err := n.keeper.Lease("my/own")
						require.NoError(t, err)
						defer func() { _ = h.Close(t.Context()) }()
						switch by {
						case "preferred":
							opts[i] = append(opts[i], singleton.WithPreferred("a"))
						case "bare":
							opts[i] = append(opts[i], singleton.WithLease(bare{h}))
						case "leader":
							leader := membership.NewStatic(n.keeper.Owner())
							leader.Set(a.keeper.Owner())
							opts[i] = append(opts[i], singleton.WithLeadership(leader))
						}
					}
					var bad atomic.Bool
					bad.Store(true)
					ma := a.runProps("x", a.broken(how, &bad), opts[0]...)
					told, health := a.events(), singleton.Health(a.system)
					time.Sleep(2 * time.Second)
					require.ErrorContains(t, health(t.Context()), "in a row before its first message, the last time with")
					mb := b.run("x", opts[1]...)
					until(t, 10*time.Second, "the other node hosts", active(mb))
					require.NoError(t, health(t.Context()))

					gave := func() int { return len(told.of(singleton.HandedOver)) + len(told.of(singleton.Released)) }
					gaveBefore := gave()
					const minutes = 10
					answered := 0
					for i := range minutes * 60 {
						if _, err := b.ask(mb.PID(), i, time.Second); err == nil {
							answered++
						}
						time.Sleep(time.Second - time.Duration(time.Now().Nanosecond()))
					}
					require.Greater(t, answered, minutes*60*95/100)
					moves := gave() - gaveBefore
					if by == "" || by == "bare" {
						require.Zero(t, moves, "one that works stays")
					} else {
						require.Greater(t, moves, minutes, "it is tried again")
						require.Less(t, moves, 6+2*minutes+3, "after pauses")
					}
					bad.Store(false)
					if by == "preferred" || by == "leader" {
						until(t, 2*time.Minute, "where it should be", func() bool { return active(ma)() && a.well() })
						b.mustAsk(mb.PID(), 1)
					}
					c.log.check()
				})
			})
		}
	}
}

// well reports whether Health says nothing.
func (n *node) well() bool { return singleton.Health(n.system)(n.c.t.Context()) == nil }

func TestNoNodeCanMakeTheChild(t *testing.T) {
	for _, ids := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c", "d"}} {
		bubble(t, func(t *testing.T, c *cluster) {
			ns := c.nodes(ids...)
			var bad atomic.Bool
			bad.Store(true)
			var ms []*singleton.Manager
			var told []*events
			for _, n := range ns {
				told = append(told, n.events())
				ms = append(ms, n.runProps("x", n.broken("Started panics", &bad)))
			}
			const minutes = 10
			ill := 0
			for range minutes * 60 {
				time.Sleep(time.Second)
				synctest.Wait()
				for _, n := range ns {
					if !n.well() {
						ill++
					}
				}
			}
			require.Greater(t, ill, minutes*60*9/10, "who hosts says that nothing serves")
			for _, x := range told {
				require.LessOrEqual(t, len(x.of(singleton.HandedOver))+len(x.of(singleton.Released)), 6+2*minutes+3, "one move in a pause")
			}
			bad.Store(false)
			until(t, time.Minute, "served", func() bool { _, err := ns[0].ask(ms[0].PID(), 1, time.Second); return err == nil })
			time.Sleep(time.Second)
			for _, n := range ns {
				require.NoError(t, singleton.Health(n.system)(t.Context()))
			}
			c.log.check()
		})
	}
}

// A child that does its work in Started and stops itself fails in nothing.
func TestAChildThatIsDoneStays(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		told := a.events()
		ma := a.runProps("x", actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); ok {
				ctx.Stop(ctx.Self())
			}
		}))
		time.Sleep(time.Second)
		b.run("x")
		time.Sleep(2 * time.Minute)
		require.Greater(t, len(told.of(singleton.ChildEnded)), 5)
		require.Empty(t, told.of(singleton.HandedOver))
		require.True(t, a.well(), "%v", ma.Status())
	})
}
