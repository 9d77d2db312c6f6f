package singleton_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/singleton"
)

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
		ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, 5*time.Second))
		mb := b.run("x")
		time.Sleep(time.Second)
		require.NoError(t, ma.Stop(t.Context()))
		require.Equal(t, 3*time.Second, ended.Sub(asked), "it took the time it needed")
		until(t, time.Second, "hosts", active(mb))
	})
}

func TestAChildThatMissesItsDeadlineIsShutOff(t *testing.T) {
	for _, policy := range []hosting.Overdue{hosting.KeepLease, hosting.ReleaseAfterTTL} {
		bubble(t, func(t *testing.T, c *cluster) {
			a, b := c.node("a"), c.node("b")
			release := make(chan struct{})
			c.log.behave = func(n *node, ctx actor.Context, l *life) bool {
				if j, ok := ctx.Message().(job); ok && j.Number == 1 {
					<-release
				}
				return false
			}
			ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, 2*time.Second), singleton.WithOverdue(policy))
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
			if policy == hosting.ReleaseAfterTTL {
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
