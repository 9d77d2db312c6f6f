package singleton_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/singleton"
)

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
	for _, l := range s.n.c.log.snapshot() {
		for _, j := range l.jobs {
			if j.Sender == s.name {
				numbers = append(numbers, j.Number)
			}
		}
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

// slowAt has children take d for each job of a number.
func (c *cluster) slowAt(number int, d time.Duration) {
	c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
		if j, ok := jobOf(ctx.Message()); ok && j.Number == number {
			time.Sleep(d)
		}
		return false
	}
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
		var dead atomic.Int32
		b.system.EventStream.Subscribe(func(e any) {
			if d, ok := e.(*actor.DeadLetterEvent); ok {
				if _, ok := jobOf(d.Message); ok {
					dead.Add(1)
				}
			}
		})
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

// 4: thousands of messages in the child's mailbox at a planned stop are the next host's,
// once and in order; the manager ends when they are, with an effort that grows as their
// number does.
func TestScenarioMail4ALongMailboxOfAChild(t *testing.T) {
	const linger = 3 * time.Second
	effort := func(n int) (messages uint64, took time.Duration) {
		bubble(t, func(t *testing.T, c *cluster) {
			c.slowAt(1, time.Second)
			x := newTeam(c, 2, singleton.WithLinger(linger))
			x.lead(0)
			x.hosts(0)
			all := x.speakers(100)
			for i := range n / 2 {
				for _, s := range all {
					s.say()
				}
				if i%500 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(100 * time.Millisecond)
			before, _ := c.net.Wire("n0:1", "n1:1")
			x.shape(memnet.Link{Delay: 5 * time.Millisecond, Bandwidth: tier.Draws(600_000, 600_000)})
			x.lead(1)
			began := time.Now()
			require.NoError(t, x.ms[0].Stop(context.Background()))
			took = time.Since(began)
			for _, s := range all {
				s.inOrder()
			}
			require.Zero(t, x.ms[0].Status().Dropped+x.ms[0].Status().Unordered)
			after, _ := c.net.Wire("n0:1", "n1:1")
			messages = after - before
		})
		return messages, took
	}
	n := tier.Draws(7_500, 7_500)
	few, _ := effort(n)
	many, took := effort(4 * n)
	t.Logf("messages on the link: %d for %d, %d for %d", few, n, many, 4*n)
	require.Greater(t, took, 2*linger)
	require.Greater(t, many, uint64(4*n-100))
	require.Less(t, many, 4*few+200)
	require.Less(t, many, uint64(4*n*11/10))
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
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := singleton.Ask[done](ctx, m, job{"asks", number})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	jobs := func(c *cluster, sender string) (n int) {
		for _, l := range c.log.snapshot() {
			for _, j := range l.jobs {
				if j.Sender == sender {
					n++
				}
			}
		}
		return n
	}
	t.Run("here", func(t *testing.T) {
		bubble(t, func(t *testing.T, c *cluster) {
			x := newTeam(c, 2)
			giveUp(t, x.ms[0], 1)
			x.ns[0].system.Root.Send(x.ms[0].PID(), job{"tells", 1})
			x.lead(1)
			x.hosts(1)
			time.Sleep(5 * time.Second)
			require.Equal(t, 1, jobs(c, "tells"))
			require.Zero(t, jobs(c, "asks"))
			require.Equal(t, 1, x.ms[0].Status().Undeliverable)
		})
	})
	t.Run("at the former host", func(t *testing.T) {
		bubble(t, func(t *testing.T, c *cluster) {
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
			require.Equal(t, 1, jobs(c, "tells"))
			require.Zero(t, jobs(c, "asks"))
			require.Equal(t, 1, x.ms[0].Status().Undeliverable)
		})
	})
}
