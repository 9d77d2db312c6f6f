package singleton_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// team is some nodes that follow leaders a test names.
type team struct {
	*cluster
	ns      []*node
	ms      []*singleton.Manager
	leaders []*membership.Static
	events  []*events
	sent    map[string]int
}

// newTeam starts the singleton x on n nodes.
func newTeam(c *cluster, n int, opts ...singleton.Option) *team {
	t := &team{cluster: c, sent: map[string]int{}}
	for i := range n {
		t.ns = append(t.ns, c.node(fmt.Sprint("n", i)))
	}
	for _, x := range t.ns {
		l := membership.NewStatic(x.keeper.Owner())
		t.leaders = append(t.leaders, l)
		t.events = append(t.events, x.events())
		t.ms = append(t.ms, x.run("x", append([]singleton.Option{singleton.WithLeadership(l)}, opts...)...))
	}
	return t
}

// lead makes node i the leader, as all nodes see it.
func (t *team) lead(i int) {
	for _, l := range t.leaders {
		l.Set(t.ns[i].keeper.Owner())
	}
}

// hosts waits until node i hosts.
func (t *team) hosts(i int) {
	t.t.Helper()
	until(t.t, 30*time.Second, fmt.Sprintf("n%d hosts", i), active(t.ms[i]))
}

// send has every node send one job.
func (t *team) send() {
	for i, n := range t.ns {
		t.sent[n.id]++
		n.system.Root.Send(t.ms[i].PID(), job{Sender: n.id, Number: t.sent[n.id]})
	}
}

// all asserts that every job was done, once, in the order of its sender, and that
// nobody had to doubt it.
func (t *team) all() {
	t.t.Helper()
	t.done()
	for _, m := range t.ms {
		require.Zero(t.t, m.Status().Unordered)
	}
}

// done asserts that every job was done, once, in the order of its sender.
func (t *team) done() {
	t.t.Helper()
	done := map[string]int{}
	for _, l := range t.log.snapshot() {
		for _, j := range l.jobs {
			done[j.Sender]++
			require.Equal(t.t, done[j.Sender], j.Number, "jobs of %s, in order; %s", j.Sender, t.statuses())
		}
	}
	require.Equal(t.t, t.sent, done, "%s", t.statuses())
	for _, m := range t.ms {
		require.Zero(t.t, m.Status().Dropped)
	}
}

// events collects what a node publishes of its singletons.
type events struct {
	mu  sync.Mutex
	all []singleton.Event
}

func (n *node) events() *events {
	e := &events{}
	n.system.EventStream.Subscribe(func(evt any) {
		if x, ok := evt.(singleton.Event); ok {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.all = append(e.all, x)
		}
	})
	return e
}

func (e *events) of(k singleton.EventKind) (found []singleton.Event) {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.all {
		if x.Kind == k {
			found = append(found, x)
		}
	}
	return found
}

func TestScenario09HandOverLosesNothingAndKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 3)
		for i, a := range x.ns { // links take time, each its own
			for j, b := range x.ns {
				c.net.SetDelay(a.system.Address(), b.system.Address(), time.Duration(200+100*i+50*j)*time.Microsecond)
			}
		}
		c.log.behave = func(*node, actor.Context, *life) bool { time.Sleep(30 * time.Microsecond); return false }
		x.lead(0)
		x.hosts(0)
		for round := 1; round <= 20; round++ {
			for i := range 700 {
				x.send()
				time.Sleep(time.Millisecond)
				if i == 100 {
					x.lead(round % 3)
				}
			}
			x.hosts(round % 3)
			require.Len(t, x.events[(round-1)%3].of(singleton.HandedOver), (round+2)/3, "round %d: transferred, not released", round)
		}
		time.Sleep(5 * time.Second)
		x.all()
		c.log.check()
	})
}

// A host that ends hands over to any other.
func TestScenario09AHostThatEndsHandsOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.run("x")
		until(t, time.Second, "hosts", active(ma))
		mb := b.run("x")
		time.Sleep(time.Second)
		ea := a.events()
		require.NoError(t, ma.Stop(t.Context()))
		require.Len(t, ea.of(singleton.HandedOver), 1)
		require.Equal(t, "b", ea.of(singleton.HandedOver)[0].Peer.ID)
		require.True(t, active(mb)())
	})
}

// keepsake is a child with a state: the number of the last job.
type keepsake struct {
	n        *node
	last     int
	big      int
	fail     string
	restored *[]string
}

func (m *keepsake) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		*m.restored = append(*m.restored, fmt.Sprintf("started with %d on %s", m.last, m.n.id))
	case job:
		m.last = msg.Number
	}
}

func (m *keepsake) HandOverState() ([]byte, error) {
	switch m.fail {
	case "hand over":
		return nil, errors.New("not today")
	case "panic":
		panic("not today")
	}
	return append([]byte(fmt.Sprint(m.last)), make([]byte, m.big)...), nil
}

func (m *keepsake) RestoreState(state []byte) error {
	if m.fail == "restore" {
		return errors.New("not mine")
	}
	_, err := fmt.Sscan(string(state), &m.last)
	return err
}

func TestScenario10StateIsHandedOver(t *testing.T) {
	for what, x := range map[string]struct {
		child keepsake
		want  []string
		cold  string
	}{
		"well":               {keepsake{}, []string{"started with 0 on a", "started with 7 on b"}, ""},
		"too large":          {keepsake{big: 1 << 20}, []string{"started with 0 on a", "started with 0 on b"}, "at most 1048576"},
		"failing to hand it": {keepsake{fail: "hand over"}, []string{"started with 0 on a", "started with 0 on b"}, "not today"},
		"panicking":          {keepsake{fail: "panic"}, []string{"started with 0 on a", "started with 0 on b"}, "HandOverState panicked"},
		"failing to restore": {keepsake{fail: "restore"}, []string{"started with 0 on a", "started with 0 on b"}, "not mine"},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				var log []string
				run := func(id string) (*node, *singleton.Manager, *events) {
					n := c.node(id)
					var lives int
					props := actor.PropsFromProducer(func() actor.Actor {
						m := x.child
						m.n, m.restored = n, &log
						if lives++; lives > 1 && m.fail == "restore" {
							m.fail = ""
						}
						return &m
					})
					m, err := singleton.Start(n.system, n.keeper, "x", props)
					require.NoError(t, err)
					c.atEnd(func() { _ = m.Stop(t.Context()) })
					return n, m, n.events()
				}
				a, ma, ea := run("a")
				until(t, time.Second, "hosts", active(ma))
				_, mb, eb := run("b")
				a.system.Root.Send(ma.PID(), job{Number: 7})
				time.Sleep(time.Second)
				require.NoError(t, ma.Stop(t.Context()))
				until(t, 5*time.Second, "hosts", active(mb))
				time.Sleep(time.Second)
				require.Equal(t, x.want, log)
				cold := append(ea.of(singleton.ColdStart), eb.of(singleton.ColdStart)...)
				if x.cold == "" {
					require.Empty(t, cold)
					return
				}
				require.Len(t, cold, 1)
				require.ErrorContains(t, cold[0].Reason, x.cold)
				require.NoError(t, mb.Stop(t.Context()))
			})
		})
	}
}

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

func TestScenario11SeveralLeaveTogether(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		var ms []*singleton.Manager
		for i := range 5 {
			ms = append(ms, c.node(fmt.Sprint("n", i)).run("x"))
		}
		time.Sleep(2 * time.Second)
		var all sync.WaitGroup
		for _, m := range ms[:4] {
			all.Go(func() { _ = m.Stop(t.Context()) })
		}
		all.Wait()
		until(t, 5*time.Second, "the last hosts", active(ms[4]))
		c.log.check()
		require.Equal(t, 1, c.log.running())
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

// bye asks a child to end itself.
type bye struct{}

func TestStopMessageWithADeadline(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		var asked, ended time.Time
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			switch ctx.Message().(type) {
			case bye:
				asked = time.Now()
				self := ctx.Self()
				time.AfterFunc(3*time.Second, func() { a.system.Root.Stop(self) })
			case *actor.Stopped:
				ended = time.Now()
			}
			return false
		}
		ma := a.run("x", singleton.WithStop(func() any { return bye{} }, 5*time.Second))
		until(t, time.Second, "hosts", active(ma))
		mb := b.run("x")
		time.Sleep(time.Second)
		require.NoError(t, ma.Stop(t.Context()))
		require.Equal(t, 3*time.Second, ended.Sub(asked), "it took the time it needed")
		until(t, time.Second, "hosts", active(mb))
	})
}

func TestAChildThatMissesItsDeadlineIsShutOff(t *testing.T) {
	for _, policy := range []singleton.Stubborn{singleton.Hold, singleton.Yield} {
		bubble(t, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			release := make(chan struct{})
			c.log.behave = func(n *node, ctx actor.Context, l *life) bool {
				if j, ok := ctx.Message().(job); ok && j.Number == 1 {
					<-release
				}
				return false
			}
			ma := a.run("x", singleton.WithStop(func() any { return bye{} }, 2*time.Second), singleton.OnStubborn(policy))
			until(t, time.Second, "hosts", active(ma))
			ea := a.events()
			mb := b.run("x")
			time.Sleep(time.Second)
			a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 1})
			a.system.Root.Send(ma.PID(), job{Sender: "a", Number: 2})
			time.Sleep(time.Second)
			began := time.Now()
			go func() { _ = ma.Stop(t.Context()) }()
			time.Sleep(2*time.Second + 10*time.Millisecond)
			first := c.log.snapshot()[0]
			require.ErrorIs(t, contextCause(first), singleton.ErrOverdue, "its context is done at the deadline")
			time.Sleep(ttl - time.Second)
			require.False(t, active(mb)())
			time.Sleep(2 * time.Second)
			if policy == singleton.Yield {
				until(t, time.Second, "hosts", active(mb))
				require.InDelta(t, (2*time.Second + ttl).Seconds(), ea.of(singleton.Yielded)[0].After.Seconds()+time.Since(began).Seconds(), 3)
			} else {
				time.Sleep(10 * ttl)
				require.False(t, active(mb)(), "the lease is held while it runs")
				require.Empty(t, ea.of(singleton.Yielded))
			}
			require.NotEmpty(t, ea.of(singleton.NotStopping))
			close(release)
			until(t, 5*time.Second, "hosts", active(mb))
			<-ma.Done()
			var jobs []int
			for _, l := range c.log.snapshot() {
				for _, j := range l.jobs {
					jobs = append(jobs, j.Number)
				}
			}
			require.Equal(t, []int{1, 2}, jobs, "what it had not taken reached the next host")
		})
	}
}

func contextCause(l life) error { return causeOf(l.ctx) }

func TestTheRestartBudget(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(job); ok {
				panic("a bad job")
			}
			return false
		}
		ea := a.events()
		m := a.run("x", singleton.WithRestartBudget(2, time.Minute), singleton.WithBackoff(10*time.Millisecond, 20*time.Millisecond))
		until(t, time.Second, "hosts", active(m))
		for i := range 3 {
			require.False(t, m.Status().Down, "crash %d", i)
			a.system.Root.Send(m.PID(), job{Number: i})
			time.Sleep(time.Second)
		}
		require.True(t, m.Status().Down)
		require.Len(t, ea.of(singleton.GaveUp), 1)
		recs, err := c.store.Get(t.Context(), "singleton/x")
		require.NoError(t, err)
		require.Empty(t, recs, "the lease is given up")
		m.Resume()
		until(t, 5*time.Second, "hosts again", active(m))
	})
}

func TestPreferredNodesHost(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		prefer := singleton.WithPreferred("best", "good")
		other, good, best := c.node("other"), c.node("good"), c.node("best")
		mo := other.run("x", prefer)
		until(t, 2*time.Second, "hosts", active(mo))
		mg := good.run("x", prefer)
		until(t, 5*time.Second, "the better one hosts", active(mg))
		mb := best.run("x", prefer)
		until(t, 5*time.Second, "the best hosts", active(mb))
		time.Sleep(10 * time.Second)
		require.True(t, active(mb)())
		require.NoError(t, mb.Stop(t.Context()))
		until(t, 5*time.Second, "then the next", active(mg))
		c.log.check()
	})
}

func TestRolesMakeProxies(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.run("x", singleton.WithRoles([]string{"frontend"}, "backend"))
		time.Sleep(2 * time.Second)
		require.False(t, active(ma)())
		mb := b.run("x", singleton.WithRoles([]string{"backend", "frontend"}, "backend"))
		until(t, 2*time.Second, "hosts", active(mb))
		require.Equal(t, "b", a.mustAsk(ma.PID(), 1).Node)
	})
}
