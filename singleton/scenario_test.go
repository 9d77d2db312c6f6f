package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

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
		when(c, a, func(*actor.Stopping) { time.Sleep(slow) })
		ma, mb := a.hosts("scheduler"), b.run("scheduler")
		began := time.Now()
		stopped := stops(ma)
		for time.Since(began) < slow-time.Millisecond {
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) < slow-time.Millisecond {
				require.Equal(t, a.keeper.Owner(), c.record("singleton/scheduler").Owner, "kept and renewed while the child stops")
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
		subtest(t, name, func(t *testing.T, c *cluster) {
			a := c.node("a")
			a.store.SetRule(faultstore.On(f, faultstore.Acquire))
			m := a.run("scheduler")
			time.Sleep(500 * time.Millisecond)
			require.Equal(t, singleton.Acquiring, m.Status().Phase)
			require.NoError(t, m.Stop(t.Context()))
			require.Zero(t, c.log.running())
			a.store.SetRule(nil)
			time.Sleep(5*time.Second + ttl)
			require.Nil(t, c.record("singleton/scheduler"), "nothing is held for nobody")
			until(t, time.Second, "the name can be used again", active(a.run("scheduler")))
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

// These are the scenarios of mail, by number, where a singleton differs from a shard.

// speaker sends numbered jobs from a node.
type speaker struct {
	n    *node
	m    *singleton.Manager
	name string
	sent int
}

func (s *speaker) say() {
	s.sent++
	s.n.system.Root.Send(s.m.PID(), formOf(job{s.name, s.sent}))
}

// speakers returns one for each node of a team.
func (t *team) speakers(padding int) (all []*speaker) {
	for i, n := range t.ns {
		all = append(all, &speaker{n: n, m: t.ms[i], name: n.id + strings.Repeat("x", padding)})
	}
	return all
}

// handled returns the numbers of its jobs, in the order in which they were handled.
func (s *speaker) handled() (numbers []int) {
	for _, j := range s.n.c.log.jobs(s.name) {
		numbers = append(numbers, j.Number)
	}
	return numbers
}

// inOrder checks that everything that was sent was handled once, in order.
func (s *speaker) inOrder() { s.are(s.handled()) }

func (s *speaker) are(got []int) {
	s.n.c.t.Helper()
	for i, number := range got {
		if number != i+1 {
			require.Equal(s.n.c.t, i+1, number, "%.20s: place %d of %d, %d sent; %s", s.name, i+1, len(got), s.sent, s.n.c.statuses())
		}
	}
	require.Equal(s.n.c.t, s.sent, len(got), "%.20s: %s", s.name, s.n.c.statuses())
}

// shape gives all links between the nodes of a team a shape.
func (t *team) shape(l memnet.Link) {
	for _, from := range t.ns {
		for _, to := range t.ns {
			t.net.Shape(from.id+":1", to.id+":1", l)
		}
	}
}

// 2 and 3: a host that does not read takes up a window; who asks is told so at once; and
// what is lost when it dies is counted.
func TestScenarioMail3AHostThatDoesNotRead(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		a.hosts("x")
		mb := b.run("x", singleton.WithBuffer(200, hosting.DropNewest))
		var dead atomic.Int64
		deadJobs(b.system, &dead)
		s := &speaker{n: b, m: mb, name: "s" + strings.Repeat("x", 1000)}
		for range 100 {
			s.say()
		}
		time.Sleep(time.Second)
		c.net.Freeze("a:1")
		for range 8000 {
			s.say()
		}
		time.Sleep(time.Second)
		require.Equal(t, 200, mb.Status().Buffered)
		require.NotZero(t, mb.Status().Dropped)
		began := time.Now()
		_, err := singleton.Ask[done](t.Context(), mb, job{"asks", 1})
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		require.ErrorContains(t, err, "congested")
		require.Zero(t, time.Since(began))
		messages, _ := c.net.Wire("b:1", "a:1")
		for range 60 {
			s.say()
			time.Sleep(time.Second)
		}
		more, _ := c.net.Wire("b:1", "a:1")
		require.LessOrEqual(t, more-messages, uint64(60), "probes")
		peak, bytes := c.net.Peak("b:1", "a:1")
		require.LessOrEqual(t, peak, transport.MaxMessages+100)
		require.LessOrEqual(t, bytes, transport.MaxBytes+64<<10)
		require.Greater(t, bytes, transport.MaxBytes/2)

		a.crash()
		until(t, 3*ttl, "hosts", active(mb))
		time.Sleep(5 * time.Second)
		st, handled := mb.Status(), len(s.handled())
		t.Logf("sent %d, handled %d, dropped %d, unconfirmed %d", s.sent, handled, st.Dropped, st.Unconfirmed)
		require.EqualValues(t, st.Dropped+st.Undeliverable, dead.Load())
		require.GreaterOrEqual(t, st.Unconfirmed, s.sent+1-handled-st.Dropped)
		require.Zero(t, st.Buffered)
		_, err = singleton.Ask[done](t.Context(), mb, job{"asks", 2})
		require.NoError(t, err)
	})
}

// 4: mail that waits for room on a slow link is not given up while what is before it
// arrives, though for longer than WithLinger there is no room for more.
func TestScenarioMail4AManagerThatStopsBehindASlowLink(t *testing.T) {
	const linger = 3 * time.Second
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 2, singleton.WithLinger(linger), singleton.WithBuffer(20_000, hosting.DropNewest))
		x.lead(0)
		x.hosts(0)
		time.Sleep(time.Second)
		s := x.speakers(4000)[1]
		x.shape(memnet.Link{Delay: 5 * time.Millisecond, Bandwidth: 100_000})
		for range 2000 {
			s.say()
		}
		began := time.Now()
		require.NoError(t, x.ms[1].Stop(context.Background()))
		require.Greater(t, time.Since(began), 10*linger)
		time.Sleep(time.Minute)
		require.Zero(t, x.ms[1].Status().Dropped)
		s.inOrder()
	})
}

// What its asker has given up is not delivered later, from a buffer of this node or of
// another one.
func TestMessagesOfAskersThatGaveUpAreNotDelivered(t *testing.T) {
	giveUp := func(t *testing.T, m *singleton.Manager, number int) {
		t.Helper()
		ctx := contextFor(time.Second)
		_, err := singleton.Ask[done](ctx, m, job{"asks", number})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	subtest(t, "here", func(t *testing.T, c *cluster) {
		x := newTeam(c, 2)
		giveUp(t, x.ms[0], 1)
		x.ns[0].system.Root.Send(x.ms[0].PID(), job{"tells", 1})
		x.lead(1)
		x.hosts(1)
		time.Sleep(5 * time.Second)
		require.Len(t, c.log.jobs("tells"), 1)
		require.Empty(t, c.log.jobs("asks"))
		require.Equal(t, 1, x.ms[0].Status().Undeliverable)
	})
	subtest(t, "at the former host", func(t *testing.T, c *cluster) {
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			switch m := ctx.Message().(type) {
			case job:
				if m.Sender == "first" {
					time.Sleep(5 * time.Second)
				}
			case bye:
				ctx.Stop(ctx.Self())
				return true
			}
			return false
		}
		x := newTeam(c, 3, singleton.WithStop(func() any { return bye{} }, time.Minute))
		x.lead(0)
		x.hosts(0)
		time.Sleep(time.Second)
		x.ns[0].system.Root.Send(x.ms[0].PID(), job{"first", 1})
		x.lead(1)
		time.Sleep(time.Second)
		giveUp(t, x.ms[2], 1) // in the buffer of n0, while its child ends
		x.ns[2].system.Root.Send(x.ms[2].PID(), job{"tells", 1})
		x.hosts(1)
		time.Sleep(5 * time.Second)
		require.Len(t, c.log.jobs("tells"), 1)
		require.Empty(t, c.log.jobs("asks"))
		require.Equal(t, 1, x.ms[0].Status().Undeliverable)
	})
}

// TestScenarioSetbackSeenByAProxyAlone: the store's history goes back: whichever node held the
// name is away, and who holds it next knows nothing of before. Only the proxy that has
// followed the name can tell, whatever it hears of first.
func TestScenarioSetbackSeenByAProxyAlone(t *testing.T) {
	for name, how := range map[string]struct {
		cut   bool        // the proxy is cut off meanwhile: it never sees that the name is free
		below lease.Token // how much lower the token is
	}{
		"lower, after the name was free": {cut: false, below: 5},
		"lower, in one step":             {cut: true, below: 5},
		"the same, in one step":          {cut: true, below: 0},
		"the same, after it was free":    {cut: false, below: 0},
	} {
		subtest(t, name, func(t *testing.T, c *cluster) {
			sw := faultstore.NewSwitch(c.store)
			require.NoError(t, faultstore.Restore(t.Context(), c.store, nil, 9))
			c.front = sw
			a, p := c.node("a"), c.node("p")
			ma := a.run("x")
			until(t, ttl, "hosts", active(ma))
			door := p.run("x", singleton.WithProxyOnly())
			token := p.mustAsk(door.PID(), 1).Token

			a.store.Partition()
			if how.cut {
				p.store.Partition()
			}
			c.store = memory.New()
			sw.To(c.store)
			time.Sleep(2 * ttl)
			next := lease.Record{Name: "singleton/x", Session: 7, Token: token - how.below, Nonce: 9, TTL: time.Hour,
				Owner: lease.Owner{ID: "b", Incarnation: "b", Address: "b:1"}}
			require.NoError(t, faultstore.Restore(t.Context(), c.store, []lease.Record{next}, 0))
			p.store.Heal()
			time.Sleep(3 * ttl)
			for range 5 {
				require.ErrorIs(t, p.keeper.Setback(), lease.ErrSetback)
				require.ErrorIs(t, singleton.Health(p.system)(context.Background()), lease.ErrSetback)
				time.Sleep(ttl + time.Second)
			}
			require.NoError(t, p.keeper.AcceptHistory(t.Context()))
			until(t, ttl, "the present host is known", func() bool { return door.Status().Host.ID == "b" })
			a.store.Heal()
		})
	}
}
