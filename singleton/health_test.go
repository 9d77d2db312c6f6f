package singleton_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// every calls check each second for d, and returns when it failed first, and how.
func every(d time.Duration, check func(context.Context) error) (after time.Duration, err error) {
	for began := time.Now(); time.Since(began) <= d; time.Sleep(time.Second) {
		synctest.Wait()
		if err := check(context.Background()); err != nil {
			return time.Since(began), err
		}
	}
	return 0, nil
}

func TestHealthFailsWhileAChildDoesNotStop(t *testing.T) {
	for name, end := range map[string]func(a *node, m *singleton.Manager){
		"planned": func(a *node, m *singleton.Manager) { go func() { _ = m.Stop(context.Background()) }() },
		"lost":    func(a *node, m *singleton.Manager) { a.store.Partition(); time.Sleep(ttl) },
	} {
		subtest(t, name, func(t *testing.T, c *cluster) {
			a := c.node("a")
			release := make(chan struct{})
			when(c, nil, func(*actor.Stopping) { <-release })
			m := a.hosts("scheduler")
			health := singleton.Health(a.system)
			end(a, m)
			synctest.Wait()
			after, err := every(5*time.Minute, health)
			require.ErrorContains(t, err, `singleton "scheduler" is `)
			require.Regexp(t, `for 3[01](\.\d+)?s its child was told to stop and has not`, err.Error())
			require.InDelta(t, 31*time.Second, after, float64(time.Second), "longer than the bound")
			require.Error(t, health(t.Context()), "for as long as that lasts")
			close(release)
			a.store.Heal()
			time.Sleep(2 * ttl)
			require.NoError(t, health(t.Context()))
		})
	}
}

func TestHealthFailsWithoutAHost(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.run("scheduler", singleton.WithProxyOnly())
		health := singleton.Health(a.system)
		a.system.Root.Send(m.PID(), job{})
		after, err := every(time.Hour, health)
		require.EqualError(t, err, `singleton "scheduler" has had no host for 31s, 1 messages wait`)
		require.Equal(t, 31*time.Second, after)

		b := c.node("b")
		mb := b.hosts("scheduler")
		require.NoError(t, health(t.Context()))

		// Several gaps, each shorter than the bound, are not one long one.
		for range 3 {
			require.NoError(t, mb.Stop(t.Context()))
			_, err = every(20*time.Second, health)
			require.NoError(t, err)
			mb = b.run("scheduler")
			until(t, time.Second, "hosts", active(mb))
			_, err = every(time.Second, health)
			require.NoError(t, err)
		}

		// A crash is got over within the bound.
		d := c.node("d")
		d.run("scheduler")
		b.crash()
		_, err = every(10*time.Minute, health)
		require.NoError(t, err)

		// What was timed before is over.
		d.crash()
		until(t, 2*ttl, "is gone", func() bool { return m.Status().Host == lease.Owner{} })
		after, err = every(time.Hour, health)
		require.Error(t, err)
		require.InDelta(t, 31*time.Second, after, float64(time.Second))
	})
}

func TestHealthWhereTheHostIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		theirs, err := b.keeper.Lease("mine")
		require.NoError(t, err)
		_, err = theirs.Acquire(t.Context())
		require.NoError(t, err)
		mine, err := a.keeper.Lease("mine")
		require.NoError(t, err)
		m := a.run("scheduler", singleton.WithLease(bare{mine}))
		health := singleton.Health(a.system)
		_, err = every(10*time.Minute, health)
		require.NoError(t, err, "it can't be known whether another hosts")
		a.system.Root.Send(m.PID(), job{})
		after, err := every(10*time.Minute, health)
		require.ErrorContains(t, err, "has had no host for 31s, 1 messages wait")
		require.Equal(t, 31*time.Second, after)
		require.NoError(t, theirs.Release(t.Context()))
		until(t, time.Minute, "hosts", active(m))
		_, err = every(10*time.Minute, health)
		require.NoError(t, err)
	})
}

func TestHealthCountsARestartingChildAsHosted(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Started); ok {
				ctx.Stop(ctx.Self())
			}
			return false
		}
		l, err := a.keeper.Lease("mine")
		require.NoError(t, err)
		m := a.run("scheduler", singleton.WithLease(bare{l}), singleton.WithBackoff(10*time.Minute, 20*time.Minute))
		until(t, time.Second, "its child ended", func() bool { return m.Status().Phase == singleton.Backoff })
		a.system.Root.Send(m.PID(), job{})
		synctest.Wait()
		require.Positive(t, m.Status().Buffered)
		_, err = every(4*time.Minute, singleton.Health(a.system))
		require.NoError(t, err, "the lease is held here")
	})
}

func TestHealthNamesSomeOfMany(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		for i := range 25 {
			a.run(fmt.Sprintf("job-%02d", i), singleton.WithProxyOnly())
		}
		_, err := every(time.Hour, singleton.Health(a.system))
		lines := strings.Split(err.Error(), "\n")
		require.Len(t, lines, 21)
		require.Contains(t, lines[0], `singleton "job-00" has had no host`)
		require.Contains(t, lines[19], `singleton "job-19" has had no host`)
		require.Equal(t, "and 5 more singletons", lines[20])
	})
}

func TestHealthWhileSingletonsComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		health := singleton.Health(a.system)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := range 20 {
					m, err := singleton.Start(a.system, a.keeper, fmt.Sprintf("job-%d-%d", i, j), a.worker())
					if err == nil {
						time.Sleep(time.Duration(i+j) * time.Millisecond)
						err = m.Stop(context.Background())
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				for range 100 {
					if err := health(context.Background()); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
	})
}

func TestHealthRefusesNoSystem(t *testing.T) {
	err := singleton.Health(nil)(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "system")
}

func TestEveryKindOfEventHasAName(t *testing.T) {
	names := map[string]bool{}
	for k := singleton.BecameHost; k <= singleton.NotStarting; k++ {
		names[k.String()] = true
	}
	require.Len(t, names, int(singleton.NotStarting))
	require.NotContains(t, names, "unknown")
	require.Equal(t, "became host", singleton.BecameHost.String())
	require.Equal(t, "not starting", singleton.NotStarting.String())
	require.Equal(t, "unknown", (singleton.NotStarting + 1).String())
	require.Equal(t, "unknown", singleton.EventKind(0).String())
}

// read returns what was counted, by instrument; of a histogram the number and
// the sum in milliseconds.
func read(t *testing.T, r *sdkmetric.ManualReader) (counts map[string]int64, sums map[string]time.Duration) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(t.Context(), &all))
	counts, sums = map[string]int64{}, map[string]time.Duration{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.NotEmpty(t, m.Description)
			name, ours := strings.CutPrefix(m.Name, "holdfast.singleton.")
			if !ours {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					counts[name] += p.Value
				}
			case metricdata.Histogram[float64]:
				require.Equal(t, "s", m.Unit)
				for _, p := range data.DataPoints {
					counts[name] += int64(p.Count)
					sums[name] += time.Duration(p.Sum * float64(time.Second))
				}
			}
		}
	}
	return counts, sums
}

func TestMetricsCountWhatTheySay(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		ra, rb := sdkmetric.NewManualReader(), sdkmetric.NewManualReader()
		metered := func(r *sdkmetric.ManualReader) func(*lease.Config) {
			p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))
			c.atEnd(func() { _ = p.Shutdown(t.Context()) })
			return func(cfg *lease.Config) { cfg.MeterProvider = p }
		}
		when(c, nil, func(j job) {
			if j.Number == 13 {
				panic("a bad job")
			}
		})
		a, b := c.node("a", metered(ra)), c.node("b", metered(rb))
		ma := a.hosts("x", singleton.WithStop(func() any { return bye{} }, time.Second))
		mb := b.run("x", singleton.WithBuffer(2, hosting.DropNewest))
		a.system.Root.Send(ma.PID(), job{Number: 13})
		time.Sleep(5 * time.Second)
		counts, _ := read(t, ra)
		require.EqualValues(t, 1, counts["hosted"])
		require.EqualValues(t, 1, counts["restarts"])
		require.NoError(t, ma.Stop(t.Context()))
		until(t, time.Second, "hosts", active(mb))
		counts, sums := read(t, ra)
		require.Zero(t, counts["hosted"])
		require.EqualValues(t, 1, counts["handover"])
		require.Equal(t, time.Second, sums["handover"], "the child took until its deadline")

		b.crash()
		rd := sdkmetric.NewManualReader()
		d := c.node("d", metered(rd))
		md := d.run("x", singleton.WithBuffer(2, hosting.DropNewest))
		time.Sleep(time.Second)
		for i := range 5 {
			d.system.Root.Send(md.PID(), job{Number: i})
		}
		time.Sleep(time.Second)
		counts, _ = read(t, rd)
		until(t, 2*ttl, "hosts", active(md))
		after, sums := read(t, rd)
		require.LessOrEqual(t, counts["buffered"], int64(2))
		require.Zero(t, after["buffered"])
		require.EqualValues(t, 1, after["hosted"])
		require.Positive(t, sums["hostless"])
	})
}

// Status says since when, why not, and what is wrong.
func TestStatusSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		began := time.Now()
		m := a.runProps("x", actor.PropsFromProducer(func() actor.Actor {
			return &keepsake{n: a, restored: new([]string), takes: 3 * time.Second}
		}))
		until(t, time.Second, "hosts", active(m))
		require.WithinDuration(t, began, m.Status().Started, 100*time.Millisecond)
		require.Empty(t, m.Status().WhyNot+m.Status().Trouble)
		proxy := b.run("x", singleton.WithProxyOnly())
		led := b.run("led", singleton.WithLeadership(membership.NewStatic(b.keeper.Owner())))
		time.Sleep(time.Second)
		require.Equal(t, "it only forwards", proxy.Status().WhyNot)
		require.Contains(t, led.Status().WhyNot, "source of leadership")
		require.Contains(t, led.Status().Trouble, "has had no host for 1")
		told := time.Now()
		stopped := stops(m)
		time.Sleep(2 * time.Second)
		s := m.Status()
		require.WithinDuration(t, told, s.StoppingSince, 100*time.Millisecond)
		require.Contains(t, s.Trouble, "is handing over: for 2s its child was told to stop and has not")
		require.NoError(t, <-stopped)
		require.True(t, m.Status().Started.IsZero())
		require.True(t, m.Status().StoppingSince.IsZero())
		require.Equal(t, "it is being stopped", m.Status().WhyNot)

		fails := a.runProps("fails", actor.PropsFromFunc(func(ctx actor.Context) { panic("not today") }), singleton.WithBackoff(time.Millisecond, time.Second))
		time.Sleep(5 * time.Second)
		require.Contains(t, fails.Status().Trouble, "times in a row before its first message, the last time with not today")
		require.True(t, time.Since(fails.Status().Started) < 2*time.Second || fails.Status().Started.IsZero())
	})
}
