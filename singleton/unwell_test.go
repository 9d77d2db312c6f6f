package singleton_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestScenario11ASilentPeerIsWaitedForBounded(t *testing.T) {
	for what, x := range map[string]func(c *cluster, to *node){
		"frozen":  func(c *cluster, to *node) { c.net.Freeze(to.system.Address()) },
		"cut off": func(c *cluster, to *node) { c.net.Cut("n0:1", to.system.Address()) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				x0 := newTeam(c, 3)
				x0.lead(0)
				x0.hosts(0)
				time.Sleep(time.Second)
				x(c, x0.ns[1])
				x0.lead(1)
				// The new leader can't be asked: by the lease alone.
				until(t, 20*time.Second, "given up", func() bool { return x0.ms[0].Status().Phase != singleton.Active })
				until(t, 20*time.Second, "released", func() bool {
					p := x0.ms[0].Status().Phase
					return p == singleton.Standby || p == singleton.Active
				})
				c.net.Thaw("n1:1")
				c.net.Heal("n0:1", "n1:1")
				x0.ns[1].store.Heal()
				x0.hosts(1)
				c.log.check()
			})
		})
	}
}

// A leader that says no is not handed to; better here than nowhere.
func TestALeaderThatCannotTakeOverIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 3)
		x.lead(0)
		x.hosts(0)
		x.ns[1].store.Partition()
		x.lead(1)
		for range 300 {
			x.send()
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 1, c.log.running(), "it is somewhere all the time")
		}
		require.Len(t, c.log.snapshot(), 1, "it stayed where it was")
		x.ns[1].store.Heal()
		x.hosts(1)
		time.Sleep(3 * time.Second)
		x.done()
		for _, m := range c.managers { // though the new host's watch may be behind
			require.Zero(t, m.Status().Unordered, "no order in doubt")
		}
	})
}

// The new host dies when the lease has been handed to it.
func TestTheNewHostDiesMidway(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 3)
		x.lead(0)
		x.hosts(0)
		c.net.SetDelay("n0:1", "n1:1", 5*time.Millisecond)
		x.lead(1)
		var moved bool
		until(t, time.Minute, "moved", func() bool {
			rec, err := c.store.Get(t.Context(), "singleton/x")
			require.NoError(t, err)
			moved = len(rec) == 1 && rec[0].Owner.ID == "n1"
			return moved || x.ms[0].Status().Phase == singleton.Transferring
		})
		c.log.crashed(x.ns[1])
		x.ns[1].crash()
		time.Sleep(time.Millisecond) // what is sent until the link is known to be broken is lost
		for range 10 {
			x.sent["n0"]++
			x.ns[0].system.Root.Send(x.ms[0].PID(), job{Sender: "n0", Number: x.sent["n0"]})
		}
		for i, l := range x.leaders {
			if i != 1 {
				l.Set(x.ns[2].keeper.Owner())
			}
		}
		x.hosts(2)
		time.Sleep(ttl)
		c.log.check()
		got := 0
		for _, l := range c.log.snapshot() {
			got += len(l.jobs)
		}
		require.Equal(t, 10, got, "what waited for the dead host reached the next")
	})
}

// Whatever becomes of the transfer, one hosts in the end.
func TestTransfersThatFail(t *testing.T) {
	for what, f := range map[string]faultstore.Fault{
		"refused":            {Kind: faultstore.Drop},
		"applied, no answer": {Kind: faultstore.ApplyThenFail},
		"lands late":         {Kind: faultstore.LandLate, Delay: 3 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				x := newTeam(c, 3)
				x.lead(0)
				x.hosts(0)
				times := 1
				x.ns[0].store.SetRule(func(call faultstore.Call) faultstore.Fault {
					if call.Op == faultstore.Transfer && times > 0 {
						times--
						return f
					}
					return faultstore.Fault{}
				})
				for range 1000 {
					x.send()
					time.Sleep(time.Millisecond)
				}
				x.lead(1)
				for range 4000 {
					x.send()
					time.Sleep(time.Millisecond)
				}
				x.hosts(1)
				time.Sleep(2 * time.Second)
				c.log.check()
				require.Zero(t, times)
			})
		})
	}
}

func TestALeaderThatFlapsMovesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 3)
		x.lead(0)
		x.hosts(0)
		for i := range 200 {
			x.lead(i % 3)
			x.send()
			time.Sleep(50 * time.Millisecond)
		}
		x.lead(0)
		time.Sleep(time.Second)
		require.Len(t, c.log.snapshot(), 1, "it stayed where it was")
		x.all()
	})
}

func TestALeaderThatFlapsWithoutSettlingIsFollowedSafely(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 3, singleton.WithSettle(0))
		x.lead(0)
		x.hosts(0)
		for i := range 200 {
			x.lead(i % 3)
			x.send()
			time.Sleep(50 * time.Millisecond)
		}
		x.lead(2)
		x.hosts(2)
		time.Sleep(5 * time.Second)
		x.all()
		c.log.check()
	})
}
