package singleton_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/singleton"
)

// A link that broke is no reason, then or later, not to hand over to a node that lives.
func TestACandidateIsKnownAfterItsLinkBroke(t *testing.T) {
	for _, later := range []time.Duration{0, time.Second, time.Minute, time.Hour} {
		t.Run(later.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
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
		})
	}
}

// A node that could not introduce itself when it came does so once it can.
func TestACandidateIntroducesItselfAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		var log []string
		a, b := c.node("a"), c.node("b")
		ma := a.keeping(&log)
		until(t, time.Second, "hosts", active(ma))
		c.net.Cut("a:1", "b:1")
		mb := b.keeping(&log)
		time.Sleep(time.Minute)
		c.net.Heal("a:1", "b:1")
		time.Sleep(20 * time.Second)
		told := a.events()
		require.NoError(t, ma.Stop(t.Context()))
		until(t, time.Second, "hosts", active(mb))
		require.Len(t, told.of(singleton.HandedOver), 1)
	})
}

// Nodes that died while they waited do not hide one that lives, however many they were.
func TestCandidatesThatDiedAreForgotten(t *testing.T) {
	for _, deaths := range []int{6, 70} {
		t.Run(fmt.Sprint(deaths), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
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
		})
	}
	t.Run("nobody lives", func(t *testing.T) {
		bubble(t, func(t *testing.T, c *cluster) {
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
