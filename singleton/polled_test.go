package singleton_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// unwatched is a store that can't watch.
type unwatched struct {
	store.Store
	store.Transferrer
}

// Where nodes learn of a move by looking now and then, the former host forwards until all have
// looked: nothing that is sent meanwhile is lost.
func TestAFormerHostForwardsUntilOthersHaveLooked(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.front = unwatched{c.store, c.store}
		ns := c.nodes("a", "b", "d")
		asker := ns[2].run("x", singleton.WithProxyOnly())
		host := ns[0].run("x")
		until(t, 10*time.Second, "hosts", active(host))
		number := 0
		for i := range 20 {
			next := ns[(i+1)%2].run("x")
			time.Sleep(5 * time.Second) // all know who hosts, and who may
			began := time.Now()
			ended := stops(host)
			for time.Since(began) < 5*time.Second {
				number++
				ns[2].system.Root.Send(asker.PID(), job{Sender: "d", Number: number})
				time.Sleep(20 * time.Millisecond)
			}
			require.NoError(t, <-ended)
			synctest.Wait()
			require.Equal(t, singleton.Active, next.Status().Phase)
			host = next
		}
		require.Equal(t, map[string]int{"d": number}, c.log.ordered())
	})
}

// The first mail of another node may come when the lease has moved already.
func TestAHostThatGotNoMailForwards(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.front = unwatched{c.store, c.store}
		ns := c.nodes("a", "b")
		host := ns[0].run("x")
		until(t, 10*time.Second, "hosts", active(host))
		next := ns[1].run("x")
		time.Sleep(5 * time.Second)
		look := ns[0].keeper.LookEvery()
		require.Equal(t, 1500*time.Millisecond, look)
		began := time.Now()
		require.NoError(t, host.Stop(t.Context()))
		require.Equal(t, singleton.Active, next.Status().Phase)
		took := time.Since(began)
		require.GreaterOrEqual(t, took, look+handover.QuietPeriod)
		require.Less(t, took, look+2*handover.QuietPeriod)

		began = time.Now()
		require.NoError(t, next.Stop(t.Context()))
		require.Less(t, time.Since(began), handover.QuietPeriod, "there is nobody else")
	})
}

// A host that hands the lease back at once has known the next host since before it hosted itself. The
// other nodes have still to look; the next host answers for mail before the former one has read its
// record.
func TestAHostOfAMomentForwards(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T, c *cluster) {
			c.front = unwatched{c.store, c.store}
			x := newTeam(c, 2)
			d := c.node("d")
			d.run("x", singleton.WithProxyOnly())
			join(t, c, append(x.ns, d)...)
			x.lead(0)
			x.hosts(0)
			time.Sleep(10 * time.Second)
			x.lead(1)
			x.hosts(1)
			x.ns[1].store.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 600 * time.Millisecond}, faultstore.Get, faultstore.List))
			began := time.Now()
			ended := stops(x.ms[1])
			for i := range 80 {
				x.ns[1].system.Root.Send(x.ms[1].PID(), job{Sender: "b", Number: i + 1})
				time.Sleep(5 * time.Millisecond)
			}
			require.NoError(t, <-ended)
			require.GreaterOrEqual(t, time.Since(began), x.ns[1].keeper.LookEvery()+handover.QuietPeriod)
		})
	}
}

// What a former host found when it looked for the next one counts for nothing once it has heard
// of a later one.
func TestAHostThatIsFoundLateIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.front = unwatched{c.store, c.store}
		x := newTeam(c, 3)
		x.lead(0)
		x.hosts(0)
		x.ns[0].store.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 900 * time.Millisecond}, faultstore.Get))
		for range 10 {
			for _, i := range []int{1, 2} {
				x.lead(i)
				x.hosts(i)
			}
			time.Sleep(5 * time.Second)
			require.Equal(t, x.ns[2].id, x.ms[0].Status().Host.ID)
			x.lead(0)
			x.hosts(0)
			time.Sleep(5 * time.Second)
		}
	})
}

// It forwards, too, if it gave the lease up before it was stopped, and has not looked since.
func TestAHostThatReleasedBeforeItWasStoppedForwards(t *testing.T) {
	for after := time.Duration(0); after < 1500*time.Millisecond; after += 300 * time.Millisecond {
		bubble(t, func(t *testing.T, c *cluster) {
			c.front = struct{ store.Store }{c.store} // it can't transfer, nor watch
			x := newTeam(c, 2)
			d := c.node("d")
			asker := d.run("x", singleton.WithProxyOnly())
			x.lead(0)
			x.hosts(0)
			time.Sleep(5 * time.Second)
			x.lead(1)
			until(t, 10*time.Second, "released", func() bool { return x.ms[0].Status().Phase == singleton.Standby })
			time.Sleep(after)
			ended := stops(x.ms[0])
			time.Sleep(10 * time.Millisecond)
			d.system.Root.Send(asker.PID(), job{Sender: "d", Number: 1})
			require.NoError(t, <-ended)
			x.hosts(1)
			time.Sleep(15 * time.Second)
			require.Len(t, c.log.snapshot()[1].jobs, 1, "stopped %v after", after)
		})
	}
}

// join makes nodes members of a group, whose list they ask for the next host.
func join(t *testing.T, c *cluster, ns ...*node) {
	for _, n := range ns {
		g, err := membership.Join(t.Context(), n.keeper, "shop")
		require.NoError(t, err)
		c.leaves(g)
		transport.Of(n.system).Join(g)
	}
}

// leaves has a node leave its group at the end.
func (c *cluster) leaves(g *membership.Group) {
	c.atEnd(func() { _ = g.Leave(contextFor(time.Second)) })
}

// members makes nodes of a group, of which the first hosts x, and the second, or all others, would.
func members(t *testing.T, c *cluster, opts ...singleton.Option) *team {
	ns := c.nodes("a", "b", "c")
	join(t, c, ns...)
	all := &team{cluster: c, ns: ns, sent: map[string]int{}}
	all.ms = append(all.ms, ns[0].hosts("x"), ns[1].run("x"), ns[2].run("x", opts...))
	return all
}

// An answer that takes longer than the pause between two questions counts.
func TestAHostThatIsCutOffBehindSlowLinks(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		all := members(t, c, singleton.WithProxyOnly())
		for _, x := range all.ns {
			for _, y := range all.ns {
				if x != y {
					c.net.SetDelay(x.id+":1", y.id+":1", 150*time.Millisecond)
				}
			}
		}
		all.send()
		time.Sleep(time.Second)
		all.ns[0].store.Partition()
		for range 20 * ttl / time.Second {
			all.send()
			time.Sleep(time.Second)
		}
		require.Zero(t, all.ms[0].Status().Buffered)
	})
}

// A host that is cut off from the store loses the singleton, and does not learn of the next host by the
// record. What waits there, and what its node sends, goes to that by the word of other members. A node
// that is no member gets none of it, whatever it answers.
func TestAHostThatIsCutOffFromTheStoreHandsItsMailOn(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		all := members(t, c, singleton.WithProxyOnly())
		a, x := all.ns[0], c.node("x")
		self := &wire.Node{Address: "x:1", Incarnation: x.keeper.Owner().Incarnation}
		say := func(d time.Duration) {
			for range d / (50 * time.Millisecond) {
				all.send()
				for guess := range uint64(4) {
					x.system.Root.Send(all.ms[0].PID(), &wire.MarkerAck{Name: "singleton/x", From: self, Number: guess<<32 | guess, Token: 1 << 40})
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		say(time.Second)
		a.store.Partition()
		say(2 * ttl)
		require.True(t, active(all.ms[1])())
		time.Sleep(time.Second)
		require.Zero(t, all.ms[0].Status().Buffered)
		all.all()
		got, _ := c.net.Wire("a:1", "x:1")
		require.Zero(t, got, "messages for a node that is no member")
		a.store.Heal()
		until(t, time.Minute, "its member again", func() bool { return len(transport.Of(a.system).Members()) == 2 })
		c.log.check()
	})
}
