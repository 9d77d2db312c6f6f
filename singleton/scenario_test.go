package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestScenario01OneHostsOthersForward(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		ns := c.nodes("a", "b", "c")
		var ms []*singleton.Manager
		for _, n := range ns {
			ms = append(ms, n.run("scheduler"))
			until(t, time.Second, "first", active(ms[0]))
		}
		for i, n := range ns {
			d := n.mustAsk(ms[i].PID(), i)
			require.Equal(t, "a", d.Node, "every node reaches the one host")
		}
		require.Equal(t, 1, c.log.running())

		// The host leaves: the next takes over at once.
		left := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- ms[0].Stop(context.Background()) }()
		synctest.Wait()
		d, err := ns[2].ask(ms[2].PID(), 10, time.Second)
		require.NoError(t, err, "nothing is lost")
		require.NotEqual(t, "a", d.Node)
		require.Less(t, time.Since(left), time.Second)
		require.NoError(t, <-stopped)

		// The host crashes: the other takes over after its TTL, not before.
		host, other, om := ns[1], ns[2], ms[2]
		if d.Node == "c" {
			host, other, om = ns[2], ns[1], ms[1]
		}
		crashed := time.Now()
		host.crash()
		until(t, ttl+2*time.Second, "fail-over", active(om))
		require.GreaterOrEqual(t, time.Since(crashed), ttl-ttl/3-ttl/10)
		require.Equal(t, other.id, other.mustAsk(om.PID(), 20).Node)

		lives := c.log.snapshot()
		require.Len(t, lives, 3)
		c.log.check()
	})
}

func TestScenario02LeaderFlapsWhileTheOldInstanceIsStopping(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		const slow = 3 * time.Second
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Stopping); ok {
				time.Sleep(slow)
			}
			return false
		}
		sa, sb := membership.NewStatic(a.keeper.Owner()), membership.NewStatic(b.keeper.Owner())
		lead := func(n *node) { sa.Set(n.keeper.Owner()); sb.Set(n.keeper.Owner()) }
		ma := a.run("scheduler", singleton.WithLeadership(sa))
		mb := b.run("scheduler", singleton.WithLeadership(sb))
		time.Sleep(time.Second)
		require.Zero(t, c.log.running(), "nobody leads, nobody hosts")
		lead(a)
		until(t, time.Second, "leader hosts", active(ma))
		for i := range 41 { // ends with b
			if i%2 == 0 {
				lead(b)
			} else {
				lead(a)
			}
			time.Sleep(50 * time.Millisecond)
			require.LessOrEqual(t, c.log.running(), 1)
		}
		until(t, 3*slow, "the leader hosts in the end", active(mb))
		require.Equal(t, 1, c.log.most, "never two at once")
		c.log.check()
		require.Equal(t, "b", a.mustAsk(ma.PID(), 1).Node)
	})
}

func TestScenario03FalseIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		h, err := b.keeper.Lease("singleton/scheduler")
		require.NoError(t, err)
		_, err = h.Acquire(t.Context())
		require.NoError(t, err)
		m := a.run("scheduler")
		time.Sleep(30 * time.Second)
		require.Equal(t, singleton.Standby, m.Status().Phase)
		require.Equal(t, b.keeper.Owner(), m.Status().Host)
		require.NoError(t, h.Release(t.Context()))
		until(t, time.Second, "takes over", active(m))
	})
}

func TestScenario03ErrorIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		a.store.Partition()
		m := a.run("scheduler")
		time.Sleep(time.Minute)
		require.Zero(t, c.log.running())
		a.store.Heal()
		until(t, ttl+30*time.Second, "recovers without a restart", active(m))
	})
}

func TestScenario03LossStopsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		var handled, canceled atomic.Int32
		c.log.behave = func(_ *node, ctx actor.Context, l *life) bool {
			if j, ok := ctx.Message().(job); ok {
				if l.ctx.Err() != nil {
					t.Errorf("job %d ran under a context that is done", j.Number)
				}
				if j.Number == 0 { // the first job runs until the loss
					<-l.ctx.Done()
					if !errors.Is(context.Cause(l.ctx), lease.ErrExpired) {
						t.Errorf("cause %v", context.Cause(l.ctx))
					}
					canceled.Add(1)
				}
				handled.Add(1)
				return true
			}
			return false
		}
		m := a.hosts("scheduler", singleton.WithBuffer(5000, hosting.DropNewest))
		a.store.Partition()
		for i := range 1000 {
			a.system.Root.Send(m.PID(), job{Number: i})
		}
		time.Sleep(ttl)
		synctest.Wait()
		require.EqualValues(t, 1, canceled.Load(), "the running handler was told")
		require.EqualValues(t, 1, handled.Load(), "what was queued is not processed under the lost lease")
		require.Equal(t, 999, m.Status().Buffered, "and not lost either")
		require.Zero(t, c.log.running())
		a.store.Heal()
		until(t, ttl+30*time.Second, "hosts again", active(m))
		synctest.Wait()
		require.EqualValues(t, 1000, handled.Load())
		c.log.check()
	})
}

func TestScenario04ReleasedStrictlyAfterTerminated(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		const slow = 25 * time.Second // longer than the TTL
		c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Stopping); ok && n.id == "a" {
				time.Sleep(slow)
			}
			return false
		}
		ma, mb := a.hosts("scheduler"), b.run("scheduler")
		began := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- ma.Stop(context.Background()) }()
		for time.Since(began) < slow-time.Millisecond {
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) < slow-time.Millisecond {
				recs, err := c.store.Get(t.Context(), "singleton/scheduler")
				require.NoError(t, err)
				require.Len(t, recs, 1, "kept and renewed while the child stops")
				require.Equal(t, a.keeper.Owner(), recs[0].Owner)
				require.NotEqual(t, singleton.Active, mb.Status().Phase)
			}
		}
		require.NoError(t, <-stopped)
		until(t, time.Second, "then the other hosts", active(mb))
		lives := c.log.snapshot()
		require.Len(t, lives, 2)
		require.False(t, lives[1].from.Before(lives[0].to))
	})
}

// scriptedLease is a lease.Lease of a user's own, without any more.
type scriptedLease struct {
	acquire func() (bool, error)
	alive   atomic.Bool
	lost    atomic.Pointer[func(lease.Loss)]
	release atomic.Int32
}

func (s *scriptedLease) Acquire(context.Context) (bool, error) { return s.acquire() }
func (s *scriptedLease) Release(context.Context) error {
	s.alive.Store(false)
	s.release.Add(1)
	return nil
}
func (s *scriptedLease) CheckAlive() bool { return s.alive.Load() }
func (s *scriptedLease) OnLost(f func(lease.Loss)) func() bool {
	s.lost.Store(&f)
	return func() bool { return s.lost.Swap(nil) != nil }
}

func TestScenario05LostBeforeTheResultIsProcessed(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		l := &scriptedLease{}
		times := 0
		l.acquire = func() (bool, error) {
			l.alive.Store(true)
			if times++; times == 1 {
				// Won, and lost again before anybody heard of the win.
				l.alive.Store(false)
				(*l.lost.Load())(lease.Loss{Name: "x", Reason: lease.ErrTakenOver})
			}
			return true, nil
		}
		a := c.node("a")
		m := a.run("scheduler", singleton.WithLease(l))
		synctest.Wait()
		require.Zero(t, c.log.running(), "not taken for held")
		require.EqualValues(t, 1, l.release.Load(), "and settled")
		until(t, time.Minute, "the next attempt counts", active(m))
		require.Len(t, c.log.snapshot(), 1)

		// A loss of that custom lease stops the child.
		l.alive.Store(false)
		(*l.lost.Load())(lease.Loss{Name: "x", Reason: lease.ErrTakenOver})
		synctest.Wait()
		lives := c.log.snapshot()
		require.False(t, lives[0].to.IsZero())
		require.ErrorIs(t, context.Cause(lives[0].ctx), lease.ErrTakenOver)
	})
}

func TestScenario08StoppedWhileAcquiring(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"answer late":   {Kind: faultstore.ReplyLate, Delay: time.Second},
		"lands late":    {Kind: faultstore.LandLate, Delay: 3 * time.Second, Hang: true},
		"never arrives": {Kind: faultstore.Drop, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				a.store.SetRule(faultstore.On(f, faultstore.Acquire))
				m := a.run("scheduler")
				time.Sleep(500 * time.Millisecond)
				require.Equal(t, singleton.Acquiring, m.Status().Phase)
				require.NoError(t, m.Stop(t.Context()))
				require.Zero(t, c.log.running())
				a.store.SetRule(nil)
				time.Sleep(5*time.Second + ttl)
				recs, err := c.store.Get(t.Context(), "singleton/scheduler")
				require.NoError(t, err)
				require.Empty(t, recs, "nothing is held for nobody")
				until(t, time.Second, "the name can be used again", active(a.run("scheduler")))
				_ = b
			})
		})
	}
}

func TestScenario14ThousandsAndOddNames(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		names := []string{"a/b", "a%2Fb", " ", "日本語", "x\ty", "%", "singleton/x", "..", "'\"", "A", "a"}
		for i := range tier.Draws(2000, 2000) {
			names = append(names, fmt.Sprint("many-", i))
		}
		var as, bs []*singleton.Manager
		for _, name := range names {
			as = append(as, a.run(name))
		}
		until(t, 5*time.Second, "all active", func() bool {
			for _, m := range as {
				if !active(m)() {
					return false
				}
			}
			return true
		})
		for _, name := range names[:50] {
			bs = append(bs, b.run(name))
		}
		time.Sleep(time.Second)
		for i, m := range bs {
			d := b.mustAsk(m.PID(), i)
			require.Equal(t, "a", d.Node, "%q", names[i])
			require.Equal(t, as[i].Status().Token, d.Token, "%q reaches its own", names[i])
		}
	})
}
