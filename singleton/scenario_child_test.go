package singleton_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/singleton"
)

func TestScenario06AChildThatIgnoresStop(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		hang := make(chan struct{})
		c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
			if j, ok := ctx.Message().(job); ok && j.Number < 0 && n.id == "a" {
				<-hang // deaf to its context
			}
			return false
		}
		var reports []singleton.Event
		a.system.EventStream.Subscribe(func(e any) {
			if ev, ok := e.(singleton.Event); ok && ev.Kind == singleton.NotStopping {
				reports = append(reports, ev)
			}
		})
		ma := a.hosts("scheduler")
		a.system.Root.Send(ma.PID(), job{Number: -1})
		synctest.Wait()
		a.store.Partition()
		time.Sleep(ttl)
		require.Equal(t, singleton.Stopping, ma.Status().Phase)
		a.store.Heal()
		time.Sleep(5 * time.Minute)
		require.Equal(t, singleton.Stopping, ma.Status().Phase, "never a second one on this node")
		require.Len(t, c.log.snapshot(), 1)
		require.GreaterOrEqual(t, len(reports), 4, "reported")
		require.LessOrEqual(t, len(reports), 8, "at growing intervals")
		// Another node may have it: the TTL covered the lost lease.
		mb := b.run("scheduler")
		until(t, time.Minute, "another hosts", active(mb))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := ma.Stop(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "stopping")

		close(hang)
		require.NoError(t, ma.Stop(t.Context()))
		require.True(t, active(mb)(), "the late release harms nobody")
	})
}

func TestScenario06HoldWhilePlanned(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		hang := make(chan struct{})
		c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Stopping); ok && n.id == "a" {
				<-hang
			}
			return false
		}
		ma, mb := a.run("scheduler"), (*singleton.Manager)(nil)
		until(t, time.Second, "hosts", active(ma))
		mb = b.run("scheduler")
		ctx, cancel := context.WithTimeout(t.Context(), 10*ttl)
		defer cancel()
		require.ErrorIs(t, ma.Stop(ctx), context.DeadlineExceeded)
		require.NotEqual(t, singleton.Active, mb.Status().Phase, "the lease is kept and renewed while work runs")
		close(hang)
		require.NoError(t, ma.Stop(t.Context()))
		until(t, time.Second, "the other hosts", active(mb))
		require.Equal(t, 1, c.log.most)
	})
}

func TestScenario07ACrashedChildIsRespawnedWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if j, ok := ctx.Message().(job); ok {
				switch {
				case j.Number == -1:
					panic("boom")
				case j.Number == -2:
					ctx.Stop(ctx.Self())
				}
			}
			return false
		}
		m := a.hosts("scheduler", singleton.WithBackoff(time.Second, 8*time.Second))
		token := m.Status().Token
		for i, kind := range []int{-1, -2, -1, -2, -1} {
			a.system.Root.Send(m.PID(), job{Number: kind})
			// What is queued behind the crash waits for the next child, in order.
			for k := range 100 {
				a.system.Root.Send(m.PID(), job{Number: k + 1})
			}
			ended := time.Now()
			synctest.Wait()
			require.Equal(t, singleton.Backoff, m.Status().Phase)
			until(t, 9*time.Second, "respawned", active(m))
			least := min(time.Second<<i, 8*time.Second) / 2
			require.GreaterOrEqual(t, time.Since(ended), least, "pause %d", i)
			require.Equal(t, token, m.Status().Token, "under the same lease")
			lives := c.log.snapshot()
			require.Len(t, lives, i+2)
			got := lives[i+1].jobs
			require.Len(t, got, 100)
			for k, j := range got {
				require.Equal(t, k+1, j.Number, "in order")
			}
		}
		c.log.check()
	})
}
