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

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// team is some nodes that follow leaders a test names.
type team struct {
	*cluster
	ns      []*node
	ms      []*singleton.Manager
	leaders []*membership.Static
	owner   func(*node) lease.Owner // how leaders are named
	events  []*events
	sent    map[string]int
}

// newTeam starts the singleton x on n nodes.
func newTeam(c *cluster, n int, opts ...singleton.Option) *team {
	var ns []*node
	for i := range n {
		ns = append(ns, c.node(fmt.Sprint("n", i)))
	}
	return newTeamOf(c, ns, keeperOwner, func(x *node, leads singleton.Option) *singleton.Manager {
		return x.run("x", append([]singleton.Option{leads}, opts...)...)
	})
}

// newTeamOf starts the singleton on nodes by a function, which gets the source of leadership.
func newTeamOf(c *cluster, ns []*node, owner func(*node) lease.Owner,
	run func(*node, singleton.Option) *singleton.Manager) *team {
	t := &team{cluster: c, ns: ns, owner: owner, sent: map[string]int{}}
	for _, x := range ns {
		l := membership.NewStatic(owner(x))
		t.leaders = append(t.leaders, l)
		t.events = append(t.events, x.events())
		t.ms = append(t.ms, run(x, singleton.WithLeadership(l)))
	}
	return t
}

func keeperOwner(n *node) lease.Owner { return n.keeper.Owner() }

// lead makes node i the leader, as all nodes see it.
func (t *team) lead(i int) {
	for _, l := range t.leaders {
		l.Set(t.owner(t.ns[i]))
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
	require.Equal(t.t, t.sent, t.log.ordered(), "%s", t.statuses())
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

// keepsake is a child with a state: the number of the last job.
type keepsake struct {
	n        *node
	last     int
	takes    time.Duration // to stop
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
	case *actor.Stopping:
		time.Sleep(m.takes)
	}
}

func (m *keepsake) HandOverState() ([]byte, error) {
	switch m.fail {
	case "hand over":
		return nil, errors.New("not today")
	case "panic":
		panic("not today")
	case "leave nothing":
		return nil, nil
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
		subtest(t, what, func(t *testing.T, c *cluster) {
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
				return n, n.runProps("x", props), n.events()
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
				require.Equal(t, "b", ea.of(singleton.HandedOver)[0].Peer.ID)
				return
			}
			require.Len(t, cold, 1)
			require.ErrorContains(t, cold[0].Reason, x.cold)
			require.NoError(t, mb.Stop(t.Context()))
		})
	}
}

// A leader may change more often than the child takes to stop. A host that has begun works for a
// while before it hands over again, so the backlog gets done and does not only travel.
func TestAHostWorksThoughTheLeaderChangesFasterThanItStops(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newTeam(c, 3)
		x.shape(memnet.Link{Delay: 5 * time.Millisecond})
		when(c, nil, func(*actor.Stopping) { time.Sleep(3 * time.Second) })
		x.lead(0)
		x.hosts(0)
		s := x.speakers(0)[0]
		for i := range 60 {
			x.lead(i % 3)
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

// A child that has lived for long is started anew without a long pause, whatever
// was before.
func TestTheBackoffStartsOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		when(c, nil, func(job) { panic("a bad job") })
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
		best.crash()
		until(t, 2*ttl, "hosts", active(mg))
		lives := c.log.snapshot()
		require.Len(t, lives, 2)
		require.Equal(t, "good", lives[1].node)
	})
}

func TestScenario11ASilentPeerIsWaitedForBounded(t *testing.T) {
	for what, x := range map[string]func(c *cluster, to *node){
		"frozen":  func(c *cluster, to *node) { c.net.Freeze(to.system.Address()) },
		"cut off": func(c *cluster, to *node) { c.net.Cut("n0:1", to.system.Address()) },
	} {
		subtest(t, what, func(t *testing.T, c *cluster) {
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
			rec := c.record("singleton/x")
			moved = rec != nil && rec.Owner.ID == "n1"
			return moved || x.ms[0].Status().Phase == singleton.Transferring
		})
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
		require.Len(t, c.log.jobs(""), 10, "what waited for the dead host reached the next")
	})
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
