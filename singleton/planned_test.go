package singleton_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// A stop message of the user's choice does not wait for the mail that was sent
// before it: what the child has not begun is the next host's.
func TestAStopMessageComesBeforeTheBacklog(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			switch ctx.Message().(type) {
			case job:
				time.Sleep(time.Second)
			case bye:
				ctx.Stop(ctx.Self())
				return true
			}
			return false
		}
		ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, 20*time.Second))
		mb := b.run("x")
		time.Sleep(time.Second)
		for i := range 10 {
			b.system.Root.Send(mb.PID(), job{Sender: "b", Number: i})
		}
		time.Sleep(1500 * time.Millisecond) // the second is being done
		require.NoError(t, ma.Stop(t.Context()))
		until(t, time.Second, "hosts", active(mb))
		time.Sleep(20 * time.Second)
		lives := c.log.snapshot()
		require.Len(t, lives, 2)
		require.Len(t, lives[0].jobs, 2, "what it had begun")
		require.Len(t, lives[1].jobs, 8)
		for i, j := range append(lives[0].jobs, lives[1].jobs...) {
			require.Equal(t, i, j.Number)
		}
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

// A candidate whose link breaks is not waited for.
func TestACandidateThatIsGoneIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		ma := a.hosts("x")
		mb, md := b.run("x"), d.run("x")
		time.Sleep(time.Second)
		c.net.SetDelay("a:1", "b:1", 5*time.Second) // b is asked first, and does not hear it
		began := time.Now()
		go func() { _ = ma.Stop(t.Context()) }()
		until(t, time.Second, "asks", func() bool { return ma.Status().Phase == singleton.Inviting })
		b.crash()
		until(t, 500*time.Millisecond, "hosts", active(md))
		require.Less(t, time.Since(began), 900*time.Millisecond)
		_ = mb
	})
}

// A lease of the user's that can be transferred is, whatever it is called.
func TestALeaseOfAnotherNameIsTransferred(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		var ms []*singleton.Manager
		var told []*events
		ns := c.nodes("a", "b")
		for _, n := range ns {
			h, err := n.keeper.Lease("of/another/name")
			require.NoError(t, err)
			told = append(told, n.events())
			ms = append(ms, n.run("x", singleton.WithLease(h)))
			until(t, 5*time.Second, "hosts", active(ms[0]))
		}
		ns[1].system.Root.Send(ms[1].PID(), job{Sender: "b", Number: 1}) // which makes it look for the host
		time.Sleep(time.Second)
		require.NoError(t, ms[0].Stop(t.Context()))
		until(t, time.Second, "hosts", active(ms[1]))
		require.Len(t, told[0].of(singleton.HandedOver), 1)
		require.Empty(t, told[0].of(singleton.Released))
	})
}

// However many claim to be candidates, a planned end takes a few seconds; and none
// by a name that is too long is remembered.
func TestCandidatesThatDoNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		ma := a.hosts("x")
		dead := a.deadLetters()
		forged := func(i int, id string) *wire.Candidate {
			who := fmt.Sprintf("made-up-%d", i)
			return &wire.Candidate{Name: "singleton/x", Id: id, From: &wire.Node{Address: who + ":1", Incarnation: who}}
		}
		for i := range 64 {
			a.system.Root.Send(ma.PID(), forged(i, "z"))
		}
		a.system.Root.Send(ma.PID(), forged(64, strings.Repeat("z", store.MaxName+1)))
		time.Sleep(time.Second)
		require.Equal(t, int32(1), dead.Load())
		began := time.Now()
		require.NoError(t, ma.Stop(t.Context()))
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

// The word of the old host is lost on its way: the record tells as much, but for
// the state.
func TestTheWordOfTheOldHostIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p := newPair(c, func(_ *node, _ int, k *keepsake) actor.Actor { return &slow{k, time.Second} }, keeperOwner)
		p.lead(0, keeperOwner)
		until(t, time.Second, "hosts", active(p.ms[0]))
		p.ns[0].system.Root.Send(p.ms[0].PID(), job{Number: 7})
		time.Sleep(time.Second)
		events := p.ns[1].events()
		p.lead(1, keeperOwner)
		until(t, 2*time.Second, "hands over", func() bool { return p.ms[0].Status().Phase == singleton.HandingOver })
		c.net.SetLoss(func(from, to string) bool { return from == "n0:1" && to == "n1:1" })
		until(t, 2*time.Second, "handed over", func() bool { return p.ms[0].Status().Phase == singleton.Standby })
		until(t, ttl, "hosts", active(p.ms[1]))
		c.net.SetLoss(nil)
		require.Equal(t, []string{"started with 0 on n0", "started with 0 on n1"}, p.log)
		require.Len(t, events.of(singleton.ColdStart), 1)
	})
}

// A child that has lived for long is started anew without a long pause, whatever
// was before.
func TestTheBackoffStartsOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok {
				panic("a bad job")
			}
			return false
		}
		m := a.run("x", singleton.WithBackoff(10*time.Millisecond, 10*time.Second))
		crash := func() time.Duration {
			until(t, 20*time.Second, "hosts", active(m))
			began := time.Now()
			lives := m.Status().Lives
			a.system.Root.Send(m.PID(), job{})
			until(t, 20*time.Second, "starts anew", func() bool { return m.Status().Lives > lives })
			return time.Since(began)
		}
		var last time.Duration
		for range 12 {
			last = crash()
		}
		require.GreaterOrEqual(t, last, 5*time.Second)
		time.Sleep(11 * time.Second)
		require.LessOrEqual(t, crash(), 20*time.Millisecond)
	})
}

// State that came with a lease that did not is no state to begin a later one with.
func TestStateIsNotKeptForALaterLease(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p := newPair(c, func(_ *node, _ int, k *keepsake) actor.Actor { return k }, keeperOwner)
		p.lead(0, keeperOwner)
		until(t, time.Second, "hosts", active(p.ms[0]))
		p.ns[0].system.Root.Send(p.ms[0].PID(), job{Number: 7})
		time.Sleep(time.Second)
		events := p.ns[1].events()
		c.net.SetDelay("n0:1", "n1:1", 100*time.Millisecond)
		p.lead(1, keeperOwner)
		until(t, time.Second, "handed over", func() bool { return p.ms[0].Status().Phase == singleton.Standby })
		p.ns[1].store.Partition() // before the word has come
		time.Sleep(3 * ttl)
		require.False(t, active(p.ms[1])())
		p.ns[1].store.Heal()
		until(t, 3*ttl, "hosts", active(p.ms[1]))
		require.Equal(t, []string{"started with 0 on n0", "started with 0 on n1"}, p.log)
		require.Len(t, events.of(singleton.ColdStart), 1)
	})
}

// When a host has died, the preferred one of the waiting nodes gets the name, and
// not after a detour.
func TestThePreferredOfWaitingNodesIsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		prefer := singleton.WithPreferred("best", "good")
		best := c.node("best")
		best.hosts("x", prefer)
		for _, id := range []string{"o1", "o2", "o3", "o4", "o5"} {
			c.node(id).run("x", prefer)
		}
		mg := c.node("good").run("x", prefer)
		time.Sleep(time.Second)
		c.log.crashed(best)
		best.crash()
		until(t, 2*ttl, "hosts", active(mg))
		lives := c.log.snapshot()
		require.Len(t, lives, 2)
		require.Equal(t, "good", lives[1].node)
	})
}
