package singleton_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// What code of users does at every place where it is called breaks off nothing: the
// singleton is reached, moves, ends, and its mail is counted.

// subscribe has f called for the first events that is says yes to.
func subscribe(n *node, times int32, is func(any) bool, f func()) (called *atomic.Int32) {
	called = &atomic.Int32{}
	n.system.EventStream.Subscribe(func(e any) {
		if is(e) && called.Add(1) <= times {
			f()
		}
	})
	return called
}

// goesOn checks that the singleton of a and b works, moves from a to b, and ends.
func goesOn(t *testing.T, c *cluster, a, b *node, ma, mb *singleton.Manager) {
	t.Helper()
	a.mustAsk(ma.PID(), 1)
	b.mustAsk(mb.PID(), 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, ma.Stop(ctx), "%+v", ma.Status())
	b.mustAsk(mb.PID(), 3)
	require.NoError(t, mb.Stop(ctx), "%+v", mb.Status())
	require.Zero(t, c.log.running())
}

// protoactor tells of a child's failure before it stops the child.
func TestASubscriberOfFailuresThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		called := subscribe(a, 1, func(e any) bool { _, ok := e.(*actor.SupervisorEvent); return ok }, func() { panic("a subscriber's bug") })
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if j, ok := ctx.Message().(job); ok && j.Number == 100 {
				panic("a child's bug")
			}
			return false
		}
		ma, mb := a.hosts("x"), b.run("x")
		a.system.Root.Send(ma.PID(), job{"a", 100})
		time.Sleep(time.Second)
		require.NotZero(t, called.Load())
		goesOn(t, c, a, b, ma, mb)
	})
}

// A flush that is broken off would lose what waits behind, uncounted.
func TestASubscriberOfDeadLettersThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		p, a := c.node("p"), c.node("a")
		called := subscribe(p, 1000, func(e any) bool { _, ok := e.(*actor.DeadLetterEvent); return ok }, func() { panic("a subscriber's bug") })
		mp := p.run("x", singleton.WithProxyOnly(), singleton.WithBuffer(11, hosting.DropNewest))
		time.Sleep(time.Second)
		p.system.Root.Send(mp.PID(), make(chan int)) // can't travel
		for i := range 15 {
			p.system.Root.Send(mp.PID(), job{"p", i + 1})
		}
		time.Sleep(time.Second)
		require.Equal(t, 11, mp.Status().Buffered)
		require.Equal(t, 5, mp.Status().Dropped)
		ma := a.run("x")
		until(t, 5*time.Second, "delivered", func() bool { return mp.Status().Buffered == 0 })
		time.Sleep(time.Second)
		got := 0
		for _, l := range c.log.snapshot() {
			got += len(l.jobs)
		}
		require.Equal(t, 10, got)
		require.Equal(t, 1, mp.Status().Undeliverable)
		require.EqualValues(t, 6, called.Load())
		p.mustAsk(mp.PID(), 1)
		_ = ma
	})
}

// rude is a lease of a user's that panics at one method, the first time.
type rude struct {
	lease.Lease
	at    string
	calls atomic.Int32
}

func (r *rude) boom(at string) {
	if at == r.at && r.calls.Add(1) == 1 {
		panic("a bug of " + at)
	}
}

func (r *rude) Acquire(ctx context.Context) (bool, error) {
	r.boom("Acquire")
	return r.Lease.Acquire(ctx)
}
func (r *rude) Release(ctx context.Context) error     { r.boom("Release"); return r.Lease.Release(ctx) }
func (r *rude) OnLost(f func(lease.Loss)) func() bool { r.boom("OnLost"); return r.Lease.OnLost(f) }
func (r *rude) OnFree(f func()) func() bool {
	r.boom("OnFree")
	w, _ := lease.As[lease.Waiter](r.Lease)
	return w.OnFree(f)
}
func (r *rude) Wait(ctx context.Context) error {
	w, _ := lease.As[lease.Waiter](r.Lease)
	return w.Wait(ctx)
}
func (r *rude) Term() (lease.Term, bool) {
	r.boom("Term")
	t, _ := lease.As[lease.Termed](r.Lease)
	return t.Term()
}
func (r *rude) Holder(ctx context.Context) (lease.Record, bool, error) {
	r.boom("Holder")
	h, _ := lease.As[lease.HolderFinder](r.Lease)
	return h.Holder(ctx)
}

func TestLeasesThatPanic(t *testing.T) {
	for _, at := range []string{"Acquire", "Release", "OnLost", "OnFree", "Term", "Holder"} {
		t.Run(at, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				rudely := func(n *node) (*rude, *singleton.Manager) {
					h, err := n.keeper.Lease("singleton/x")
					require.NoError(t, err)
					r := &rude{Lease: h, at: at}
					return r, n.run("x", singleton.WithLease(r), singleton.WithBackoff(100*time.Millisecond, time.Second))
				}
				ra, ma := rudely(a)
				until(t, 10*time.Second, "hosts", active(ma))
				rb, mb := rudely(b)
				time.Sleep(time.Second) // it waits for the name
				b.mustAsk(mb.PID(), 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, ma.Stop(ctx), "%+v", ma.Status())
				until(t, ttl+10*time.Second, "takes over", active(mb))
				b.mustAsk(mb.PID(), 2)
				require.NoError(t, mb.Stop(ctx), "%+v", mb.Status())
				require.NotZero(t, ra.calls.Load()+rb.calls.Load())
			})
		})
	}
}

// Who tells a manager that has ended something is not hit by a subscriber of the dead
// letter.
func TestASubscriberThatPanicsWhenAManagerHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.run("x")
		a.mustAsk(m.PID(), 1)
		require.NoError(t, m.Stop(t.Context()))
		called := subscribe(a, 10, func(e any) bool { _, ok := e.(*actor.DeadLetterEvent); return ok }, func() { panic("a subscriber's bug") })
		require.NoError(t, m.Stop(t.Context()))
		require.NoError(t, singleton.StopAll(t.Context(), a.system))
		synctest.Wait()
		require.NotZero(t, called.Load())
	})
}
