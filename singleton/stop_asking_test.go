package singleton_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// invites waits until a manager asks another node to take over.
func invites(t *testing.T, m *singleton.Manager) {
	t.Helper()
	until(t, 10*time.Second, "asks", func() bool { return m.Status().Phase == singleton.Inviting })
}

// A manager that is stopped while it asks a node that it prefers, which says no or nothing,
// asks the other candidates after that.
func TestAManagerStoppedWhileItAsksAPreferredNodeAsksTheOthers(t *testing.T) {
	for name, answers := range map[string]bool{"it declines": true, "it is silent": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b, p := c.node("a"), c.node("b"), c.node("p")
				preferred := singleton.WithPreferred("p")
				ma := a.hosts("x", preferred)
				b.run("x", preferred)
				time.Sleep(time.Second)
				p.pretend("x", func() bool { return answers }, 300*time.Millisecond)
				p.introduce(ma, "x")
				invites(t, ma)
				told := a.events()
				require.NoError(t, ma.Stop(t.Context()))
				require.Len(t, told.of(singleton.HandedOver), 1, "b was a candidate, and was not asked")
			})
		})
	}
}

// The same while it asks a leader that does not answer; the link to it may break, too.
func TestAManagerStoppedWhileItAsksALeaderAsksTheCandidates(t *testing.T) {
	for name, breaks := range map[string]bool{"it is silent": false, "its link breaks": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
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
