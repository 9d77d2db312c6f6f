package singleton_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
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
		each := tier.Draws(700, 700)
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
			for i := range each {
				x.send()
				time.Sleep(700 * time.Millisecond / time.Duration(each))
				if i == each/7 {
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
		ma, mb := a.hosts("x"), b.run("x")
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
		m.last = max(m.last, msg.Number) // of one sender alone they come in order
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
	switch m.fail {
	case "restore":
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
		"panicking":          {keepsake{fail: "panic"}, []string{"started with 0 on a", "started with 0 on b"}, "HandOverState: it panicked"},
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
						if lives++; lives > 1 && strings.HasPrefix(m.fail, "restore") {
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

// A leader may change more often than the child takes to stop. A host that has begun works for a
// while before it hands over again, so the backlog gets done and does not only travel.
func TestAHostWorksThoughTheLeaderChangesFasterThanItStops(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		ns := c.nodes("a", "b", "c")
		for _, from := range ns {
			for _, to := range ns {
				c.net.SetDelay(from.system.Address(), to.system.Address(), 5*time.Millisecond)
			}
		}
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Stopping); ok {
				time.Sleep(3 * time.Second)
			}
			return false
		}
		var leaders []*membership.Static
		lead := func(n *node) {
			for _, l := range leaders {
				l.Set(n.keeper.Owner())
			}
		}
		s := &speaker{n: ns[0], name: "s"}
		for i, n := range ns {
			leaders = append(leaders, membership.NewStatic(n.keeper.Owner()))
			if m := n.run("x", singleton.WithLeadership(leaders[i])); i == 0 {
				s.m = m
			}
		}
		lead(ns[0])
		until(t, time.Second, "hosts", active(s.m))
		for i := range 60 {
			lead(ns[i%3])
			for range 200 {
				s.say()
				time.Sleep(10 * time.Millisecond)
			}
		}
		require.Greater(t, len(s.handled()), s.sent*9/10)
		until(t, 20*time.Second, "all is handled", func() bool { return len(s.handled()) == s.sent })
		s.inOrder()
		require.Greater(t, len(c.log.snapshot()), 10, "and it moves")
		c.log.check()
	})
}
