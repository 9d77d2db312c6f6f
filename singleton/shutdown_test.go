package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

// slowly makes children take d to stop.
func (c *cluster) slowly(d time.Duration) {
	when(c, nil, func(*actor.Stopping) { time.Sleep(d) })
}

// ended asserts that m has ended.
func (c *cluster) ended(m *singleton.Manager) {
	c.t.Helper()
	synctest.Wait()
	select {
	case <-m.Done():
	default:
		c.t.Fatalf("%s has not ended: %+v", m.Name(), m.Status())
	}
}

func TestStopAllStopsSideBySide(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		c.slowly(2 * time.Second)
		var mine []*singleton.Manager
		for i := range 50 {
			m := a.hosts(fmt.Sprintf("job/%d", i))
			mine = append(mine, m)
		}
		proxy := a.run("elsewhere", singleton.WithProxyOnly())
		theirs := b.hosts("elsewhere")

		began := time.Now()
		require.NoError(t, singleton.StopAll(t.Context(), a.system))
		require.Less(t, time.Since(began), 3*time.Second)
		for _, m := range append(mine, proxy) {
			c.ended(m)
			if m != proxy {
				require.Nil(t, c.record("singleton/"+strings.ReplaceAll(m.Name(), "/", "%2F")), "released")
			}
		}
		require.True(t, active(theirs)(), "another system's goes on")
		require.NoError(t, singleton.StopAll(t.Context(), a.system), "once more")
		require.Zero(t, c.log.snapshot()[50].to, "elsewhere's child")
	})
}

func TestStopAllNamesLeasesNotReleasedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		release := make(chan struct{})
		c.log.behave = func(_ *node, ctx actor.Context, l *life) bool {
			if _, ok := ctx.Message().(*actor.Stopping); ok && strings.Contains(ctx.Self().Id, "stuck") {
				<-release
			}
			return false
		}
		var stuck []*singleton.Manager
		for i := range 25 {
			m := a.hosts(fmt.Sprintf("stuck-%02d", i))
			stuck = append(stuck, m)
		}
		good := a.hosts("good")

		ctx := contextFor(5 * time.Second)
		began := time.Now()
		err := singleton.StopAll(ctx, a.system)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, 21, "bounded")
		require.Equal(t, `singleton "stuck-00" is still handing over: context deadline exceeded`, lines[0])
		require.Equal(t, `singleton "stuck-19" is still handing over: context deadline exceeded`, lines[19])
		require.Equal(t, "and 5 more singletons", lines[20])
		c.ended(good)

		reason := errors.New("no more time")
		ctx2, cancel2 := context.WithCancelCause(t.Context())
		cancel2(reason)
		began = time.Now()
		require.ErrorIs(t, singleton.StopAll(ctx2, a.system), reason, "the cause")
		require.Zero(t, time.Since(began))

		close(release)
		require.NoError(t, singleton.StopAll(t.Context(), a.system), "they went on stopping")
		for _, m := range stuck {
			c.ended(m)
		}
	})
}

func TestStopAllWithADoneContextTells(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		c.slowly(time.Second)
		m := a.hosts("scheduler")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, singleton.StopAll(ctx, a.system), context.Canceled)
		time.Sleep(2 * time.Second)
		c.ended(m)
	})
}

func TestStopAllStopsManagersStartedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		release := make(chan struct{})
		var once sync.Once
		var late []*singleton.Manager
		c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Stopping); !ok {
				return false
			}
			once.Do(func() {
				m, err := singleton.Start(n.system, n.keeper, "by a child", n.worker())
				require.NoError(t, err)
				late = append(late, m)
			})
			if strings.Contains(ctx.Self().Id, "stuck") {
				<-release
			}
			return false
		}
		a.hosts("stuck")
		stopped := make(chan error, 1)
		go func() { stopped <- singleton.StopAll(contextFor(time.Hour), a.system) }()
		time.Sleep(1050 * time.Millisecond)
		late = append(late, a.run("meanwhile"))
		time.Sleep(time.Second)
		synctest.Wait()
		for _, m := range late {
			c.ended(m) // though another is stuck
		}
		late = append(late, a.run("again"))
		close(release)
		require.NoError(t, <-stopped)
		for _, m := range late {
			c.ended(m)
		}
		after := a.run("after")
		until(t, time.Second, "not refused", active(after))
	})
}

func TestStopAllRefusesNoSystem(t *testing.T) {
	err := singleton.StopAll(t.Context(), nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "system")
	require.NoError(t, singleton.StopAll(t.Context(), actor.NewActorSystem(remoting.LogTo(nil))), "without any")
}

// The last node has nobody to forward to, and need not wait for who might come.
func TestTheLastNodeToStopDoesNotLinger(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		c.slowly(time.Second)
		ma, mb := a.hosts("x"), b.run("x")
		time.Sleep(time.Second)
		require.NoError(t, mb.Stop(t.Context()), "it says that it would not take over any more")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for i := 0; ctx.Err() == nil; i++ {
				a.system.Root.Send(ma.PID(), job{"a", i})
				time.Sleep(10 * time.Millisecond)
			}
		}()
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, singleton.StopAll(t.Context(), a.system))
		require.LessOrEqual(t, time.Since(began), 2100*time.Millisecond, "its child takes one")
		require.NotZero(t, ma.Status().Dropped, "what was sent meanwhile is counted")
	})
}

// A lease that is not known to be released is in the error, though the manager has ended.
func TestStopAllNamesLeasesThatWereNotReleased(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.hosts("x")
		free := a.run("y", singleton.WithProxyOnly())
		a.store.Partition()
		ctx := contextFor(time.Minute)
		err := singleton.StopAll(ctx, a.system)
		require.ErrorContains(t, err, `singleton "x" has ended, but its lease singleton/x is not known to be released: `)
		require.NotContains(t, err.Error(), `"y"`)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NoError(t, ctx.Err())
		c.ended(m)
		c.ended(free)
		require.Equal(t, err.Error(), m.Stop(ctx).Error(), "for every caller")
	})
}

// The coordinator of shards ends with them.
func TestStopAllLeavesCoordinatorsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		l, err := a.keeper.Lease("coordinator/g/part")
		require.NoError(t, err)
		part := a.hosts("sharding/g/part", singleton.WithLease(l))
		other, err := a.keeper.Lease("coordinator/of/users")
		require.NoError(t, err)
		whole := a.run("whole", singleton.WithLease(other))
		until(t, time.Second, "hosts", active(whole))
		require.NoError(t, singleton.StopAll(t.Context(), a.system))
		c.ended(whole)
		require.True(t, active(part)())
		require.NoError(t, part.Stop(t.Context()))
	})
}

// ActorSystem.Shutdown leaves no lease held, without package node too.
func TestSingletonsEndWithTheirActorSystem(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma, mb := a.hosts("x"), b.run("x")
		time.Sleep(time.Second)
		a.system.Shutdown()
		until(t, 5*time.Second, "the next hosts", active(mb))
		c.ended(ma)
		b.system.Shutdown()
		time.Sleep(5 * time.Second)
		c.ended(mb)
		require.Nil(t, c.record("singleton/x"))
		c.log.check()
	})
}
