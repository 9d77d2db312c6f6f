package singleton_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// A link that broke is no reason, then or later, not to hand over to a node that lives.
func TestACandidateIsKnownAfterItsLinkBroke(t *testing.T) {
	for _, later := range []time.Duration{0, time.Second, time.Minute, time.Hour} {
		subtest(t, later.String(), func(t *testing.T, c *cluster) {
			var log []string
			a, b := c.node("a"), c.node("b")
			ma := a.keeping(&log)
			until(t, time.Second, "hosts", active(ma))
			mb := b.keeping(&log)
			time.Sleep(time.Second)
			b.system.Root.Send(mb.PID(), job{Number: 7}) // both use the link
			time.Sleep(time.Second)
			c.net.Cut("a:1", "b:1")
			time.Sleep(100 * time.Millisecond)
			c.net.Heal("a:1", "b:1")
			time.Sleep(later)
			told := a.events()
			require.NoError(t, ma.Stop(t.Context()))
			until(t, time.Second, "hosts", active(mb))
			require.Len(t, told.of(singleton.HandedOver), 1)
			require.Empty(t, told.of(singleton.ColdStart))
			require.Equal(t, "started with 7 on b", log[1])
		})
	}
}

// Nodes that died while they waited do not hide one that lives, however many they were.
func TestCandidatesThatDiedAreForgotten(t *testing.T) {
	for _, deaths := range []int{6, 70} {
		subtest(t, fmt.Sprint(deaths), func(t *testing.T, c *cluster) {
			var log []string
			a := c.node("a")
			ma := a.keeping(&log)
			until(t, time.Second, "hosts", active(ma))
			for i := range deaths {
				b := c.node(fmt.Sprint("b", i))
				b.keeping(&log)
				time.Sleep(100 * time.Millisecond)
				b.crash()
			}
			z := c.node("z")
			mz := z.keeping(&log)
			time.Sleep(20 * time.Second)
			told, began := a.events(), time.Now()
			require.NoError(t, ma.Stop(t.Context()))
			require.Less(t, time.Since(began), time.Second)
			require.Len(t, told.of(singleton.HandedOver), 1)
			require.Equal(t, "z", told.of(singleton.HandedOver)[0].Peer.ID)
			until(t, time.Second, "hosts", active(mz))
		})
	}
	subtest(t, "nobody lives", func(t *testing.T, c *cluster) {
		var log []string
		a := c.node("a")
		ma := a.keeping(&log)
		until(t, time.Second, "hosts", active(ma))
		for i := range 3 {
			b := c.node(fmt.Sprint("b", i))
			b.keeping(&log)
			time.Sleep(time.Second)
			b.crash()
		}
		time.Sleep(2 * time.Minute)
		began := time.Now()
		require.NoError(t, ma.Stop(t.Context()))
		require.Less(t, time.Since(began), time.Second, "nobody is asked")
	})
}

// A node of a version that introduces itself once is not forgotten.
func TestACandidateThatSpeaksOnceIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.hosts("x")
		invited := make(chan struct{}, 1)
		_, err := b.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(*wire.Invite); ok {
				invited <- struct{}{}
				b.system.Root.Send(ma.PID(), &wire.Offer{Name: m.Name, Number: m.Number, Declined: "as a test",
					From: &wire.Node{Address: "b:1", Incarnation: "old"}})
			}
		}), "holdfast/singleton/x")
		require.NoError(t, err)
		b.system.Root.Send(ma.PID(), &wire.Candidate{Name: "singleton/x", Id: "b", From: &wire.Node{Address: "b:1", Incarnation: "old"}})
		time.Sleep(time.Second)
		a.system.Root.Send(actor.NewPID("b:1", "nobody"), &wire.Nack{})
		c.net.Cut("a:1", "b:1")
		c.net.Heal("a:1", "b:1")
		time.Sleep(time.Hour)
		require.NoError(t, ma.Stop(t.Context()))
		require.Len(t, invited, 1)
	})
}

// However many singletons a node has, it introduces itself at a bounded rate.
func TestIntroductionsAreFew(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		const names = 1000
		a, b := c.node("a"), c.node("b")
		for i := range names {
			a.hosts(fmt.Sprint("s", i))
			b.run(fmt.Sprint("s", i))
		}
		time.Sleep(40 * time.Second)
		const kind = "holdfast.wire.v1.Candidate"
		before := c.net.Kinds()[kind].Messages
		time.Sleep(time.Minute)
		sent := c.net.Kinds()[kind].Messages - before
		require.InDelta(t, 60*50, sent, 300)
	})
}

// A candidate that did not answer in time is told that nothing comes of it: it can be
// invited by others, or acquire, and does not wait until its offer is over.
func TestACandidateHearsThatItIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		ma := a.hosts("x")
		mb, md := b.run("x"), d.run("x")
		time.Sleep(time.Second)
		c.net.SetDelay("b:1", "a:1", 30*time.Second)
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, time.Second, "offers", func() bool { return mb.Status().Phase == singleton.Offered })
		until(t, 1500*time.Millisecond, "the other hosts", active(md))
		require.Equal(t, singleton.Standby, mb.Status().Phase)
		c.net.SetDelay("b:1", "a:1", 0)
	})
}

// A lease that is lost while its child is shut off, and waited for, is told as any other.
func TestALossWhileYieldingIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		release := make(chan struct{})
		when(c, nil, func(job) { <-release })
		ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, time.Second), singleton.WithOverdue(hosting.ReleaseAfterTTL))
		ea := a.events()
		mb := b.run("x")
		time.Sleep(time.Second)
		a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 1})
		synctest.Wait() // the child has taken it
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, 2*time.Second, "yields", func() bool { return ma.Status().Phase == singleton.Yielding })
		a.store.Partition()
		until(t, 2*ttl, "the other hosts", active(mb))
		require.Len(t, ea.of(singleton.Lost), 1)
		require.Empty(t, ea.of(singleton.Yielded))
		a.store.Heal()
		close(release)
		<-ma.Done()
	})
}

// A candidate whose invitation was called off while its offer was being made takes the name
// as soon as that is free.
func TestACandidateCalledOffEarlyTakesAFreeLease(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		when(c, nil, func(job) { panic("the child fails") })
		ma, mb := a.hosts("x"), b.run("x")
		time.Sleep(time.Second)
		rule := func(f faultstore.Fault, ops ...faultstore.Op) {
			b.store.SetRule(faultstore.On(f, ops...))
		}
		rule(faultstore.Fault{Kind: faultstore.Drop}, faultstore.Renew, faultstore.OpenSession)
		time.Sleep(2 * ttl)
		rule(faultstore.Fault{Kind: faultstore.Delay, Delay: 300 * time.Millisecond}, faultstore.OpenSession)
		go func() { _ = ma.Stop(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, singleton.Offering, mb.Status().Phase)
		a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 1})
		until(t, 2*time.Second, "the other hosts", active(mb))
	})
}

// Nothing is handed over to a node whose link broke and that is not heard from since.
func TestNothingIsHandedOverToANodeThatDiedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		when(c, a, func(*actor.Stopping) { time.Sleep(2 * time.Second) })
		ma := a.hosts("x")
		mb, md := b.run("x"), d.run("x")
		time.Sleep(time.Second)
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, time.Second, "offers", func() bool { return mb.Status().Phase == singleton.Offered })
		time.Sleep(time.Second)
		b.crash()
		until(t, 4*time.Second, "the third hosts", active(md))
	})
}

// invites waits until a manager asks another node to take over.
func invites(t *testing.T, m *singleton.Manager) {
	t.Helper()
	until(t, 10*time.Second, "asks", func() bool { return m.Status().Phase == singleton.Inviting })
}

// The same while it asks a leader that does not answer; the link to it may break, too.
func TestAManagerStoppedWhileItAsksALeaderAsksTheCandidates(t *testing.T) {
	for name, breaks := range map[string]bool{"it is silent": false, "its link breaks": true} {
		subtest(t, name, func(t *testing.T, c *cluster) {
			a, b, p := c.node("a"), c.node("b"), c.node("p")
			la, lb := membership.NewStatic(a.keeper.Owner()), membership.NewStatic(b.keeper.Owner())
			la.Set(a.keeper.Owner())
			lb.Set(a.keeper.Owner())
			ma := a.hosts("x", singleton.WithLeadership(la))
			b.run("x", singleton.WithLeadership(lb))
			time.Sleep(time.Second)
			la.Set(p.keeper.Owner()) // it has no manager of that name
			invites(t, ma)
			told := a.events()
			if breaks {
				time.AfterFunc(100*time.Millisecond, func() { c.net.Kill(p.system.Address()) })
			}
			require.NoError(t, ma.Stop(t.Context()))
			require.Len(t, told.of(singleton.HandedOver), 1, "b was a candidate, and was not asked")
		})
	}
}

// pretend has an actor in the place of a manager, which declines invitations after a while, if
// it answers them at all.
func (n *node) pretend(name string, answers func() bool, after time.Duration) {
	n.c.t.Helper()
	_, err := n.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
		m, ok := ctx.Message().(*wire.Invite)
		if !ok || !answers() {
			return
		}
		host := actor.NewPID(m.From.Address, "holdfast/singleton/"+name)
		time.AfterFunc(after, func() {
			n.system.Root.Send(host, &wire.Offer{Name: m.Name, Number: m.Number, Declined: "as a test", From: wire.NodeOf(n.keeper.Owner())})
		})
	}), "holdfast/singleton/"+name)
	require.NoError(n.c.t, err)
}

// introduce tells a host that a node would take over, as its manager does.
func (n *node) introduce(host *singleton.Manager, name string) {
	to := actor.NewPID(host.PID().Address, host.PID().Id) // a PID remembers of whose system it was used
	n.system.Root.Send(to, &wire.Candidate{Name: "singleton/" + name, Id: n.id, From: wire.NodeOf(n.keeper.Owner())})
}

// A preferred node goes on introducing itself to a host that could not reach it.
func TestAPreferredNodeThatCouldNotBeAskedIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		prefer := singleton.WithPreferred("best")
		other, best := c.node("other"), c.node("best")
		mo := other.run("x", prefer)
		until(t, 2*time.Second, "hosts", active(mo))
		c.net.CutOneWay("other:1", "best:1")
		mb := best.run("x", prefer)
		time.Sleep(30 * time.Second)
		require.True(t, active(mo)())
		c.net.Heal("other:1", "best:1")
		until(t, 10*time.Second, "the best hosts", active(mb))
		c.log.check()
	})
}

// Of two preferred nodes the first is handed to.
func TestTheBestOfTwoPreferredNodesIsChosen(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		prefer := singleton.WithPreferred("best", "second")
		other, second, best := c.node("other"), c.node("second"), c.node("best")
		mo := other.run("x", prefer, singleton.WithSettle(6*time.Second)) // both have introduced themselves then
		until(t, 2*time.Second, "hosts", active(mo))
		c.net.Cut("other:1", "best:1")
		c.net.Cut("other:1", "second:1")
		ms, mb := second.run("x", prefer), best.run("x", prefer)
		time.Sleep(5 * time.Second)
		c.net.Heal("other:1", "best:1")
		c.net.Heal("other:1", "second:1")
		until(t, 20*time.Second, "the best hosts", func() bool {
			require.False(t, active(ms)())
			return active(mb)()
		})
		c.log.check()
	})
}

// That nobody leads moves nothing, however long it lasts.
func TestAHostStaysWithoutALeader(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 2)
		x.lead(0)
		x.hosts(0)
		for _, l := range x.leaders {
			l.Set(lease.Owner{})
		}
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 1, c.log.running())
		}
		require.Len(t, c.log.snapshot(), 1)
	})
}

// A leader goes on saying so to a host that could not hear it.
func TestALeaderThatWasNotHeardSaysSoAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 2)
		x.lead(0)
		x.hosts(0)
		x.leaders[0].Set(x.ns[1].keeper.Owner()) // and n1 goes on believing in n0
		x.hosts(1)
		c.net.CutOneWay("n0:1", "n1:1")
		x.leaders[0].Set(x.ns[0].keeper.Owner())
		time.Sleep(30 * time.Second)
		require.True(t, active(x.ms[1])())
		c.net.Heal("n0:1", "n1:1")
		x.hosts(0)
		c.log.check()
	})
}

// A candidate that has to go while the host's child still stops takes its offer
// back; the lease is free at once, for any node.
func TestACandidateThatHasToGoTakesItsOfferBack(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		when(c, a, func(*actor.Stopping) { time.Sleep(2 * time.Second) })
		ma := a.hosts("x")
		mb, md := b.run("x"), d.run("x")
		time.Sleep(time.Second)
		seen := a.events()
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, time.Second, "offered", func() bool { return mb.Status().Phase == singleton.Offered })
		began := time.Now()
		require.NoError(t, mb.Stop(t.Context()))
		require.Less(t, time.Since(began), time.Second)
		until(t, 3*time.Second, "the third hosts", active(md))
		require.Empty(t, seen.of(singleton.HandedOver))
		c.log.check()
	})
}
