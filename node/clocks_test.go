package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
)

// compared is a node as far as its clock is compared, on fake time.
type compared struct {
	*testkit.Node
	*sdkmetric.ManualReader
	node  *Node
	asked atomic.Int64 // questions that came to it
}

func newCompared(t *testing.T, net *memnet.Net, s store.Store, id string) *compared {
	c := &compared{ManualReader: sdkmetric.NewManualReader()}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.ManualReader))
	c.Node = testkit.NewNode(t, net, s, id, id+":1", func(cfg *lease.Config) { cfg.MeterProvider = provider })
	c.node = &Node{cfg: Config{ID: id}, begun: make(chan struct{}), system: c.System, keeper: c.Keeper,
		joining: joining{joined: make(chan struct{})}}
	c.node.life, c.node.end = context.WithCancelCause(t.Context())
	desk := inquiry.Of(c.System)
	desk.Keep(c.Keeper)
	desk.Tell(t, func(context.Context, inquiry.Request, *inquiry.Report) { c.asked.Add(1) })
	require.NoError(t, (&clocks{node: c.node}).observe())
	return c
}

func (c *compared) join(t *testing.T) {
	var err error
	c.node.group, err = membership.Join(t.Context(), c.Keeper, "g")
	require.NoError(t, err)
	close(c.node.joined)
}

// offset is what a reader of metrics gets.
func (c *compared) offset(t *testing.T) any {
	var all metricdata.ResourceMetrics
	require.NoError(t, c.Collect(t.Context(), &all))
	for _, s := range all.ScopeMetrics {
		for _, x := range s.Metrics {
			if x.Name != "holdfast.node.clock.offset" {
				continue
			}
			require.Equal(t, "github.com/holdfast-go/holdfast/node", s.Scope.Name)
			require.Equal(t, "s", x.Unit)
			points := x.Data.(metricdata.Gauge[float64]).DataPoints
			require.Len(t, points, 1)
			require.Equal(t, attribute.NewSet(attribute.String("holdfast.node", c.ID)), points[0].Attributes)
			return points[0].Value
		}
	}
	return nil
}

func TestClocksAreCompared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		net, s := memnet.New(), memory.New()
		a, b, c := newCompared(t, net, s, "a"), newCompared(t, net, s, "b"), newCompared(t, net, s, "c")
		all := []*compared{a, b, c}
		read := func() (offsets [3]any) {
			for i, x := range all {
				offsets[i] = x.offset(t)
			}
			synctest.Wait()
			return offsets
		}
		for _, x := range all {
			defer x.Close()
			require.Nil(t, x.offset(t), "it has no group")
			x.join(t)
		}
		c.Clock.StepWall(5 * time.Second)
		time.Sleep(time.Second) // all know each other

		require.Equal(t, [3]any{}, read(), "a reader does not wait for the answers")
		for range 590 {
			require.Equal(t, [3]any{0.0, 0.0, 5.0}, read())
			time.Sleep(100 * time.Millisecond)
		}
		require.EqualValues(t, 3, b.asked.Load(), "once by each, in a minute")
		time.Sleep(time.Second)
		read()
		require.EqualValues(t, 6, b.asked.Load())

		net.Cut("a:1", "b:1")
		net.SetDelay("c:1", "b:1", 1900*time.Millisecond)
		time.Sleep(time.Minute)
		require.Equal(t, [3]any{0.0, 0.0, 5.0}, read())
		time.Sleep(10 * time.Second)
		require.Equal(t, [3]any{-2.5, -2.025, 4.05}, read(),
			"of two each has half of the difference; what takes 1.9 s one way is 0.95 s wrong")

		net.Cut("a:1", "c:1")
		net.Cut("b:1", "c:1")
		time.Sleep(time.Minute)
		for range 2 {
			require.Equal(t, [3]any{-2.5, -2.025, 4.05}, read(), "until it is known that none answers")
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, [3]any{}, read(), "none answers")

		for _, x := range []string{"a:1", "b:1"} {
			net.Heal(x, "c:1")
		}
		net.Heal("a:1", "b:1")
		net.SetDelay("c:1", "b:1", 0)
		time.Sleep(time.Minute)
		read()
		require.Equal(t, [3]any{0.0, 0.0, 5.0}, read())
		time.Sleep(time.Hour)
		require.Equal(t, [3]any{}, read(), "what was an hour ago is not shown")
		require.Equal(t, [3]any{0.0, 0.0, 5.0}, read())

		a.node.end(ErrStopped)
		synctest.Wait()
		require.Nil(t, a.offset(t))
		time.Sleep(time.Minute)
		before := b.asked.Load()
		a.offset(t)
		synctest.Wait()
		require.Equal(t, before, b.asked.Load())
	})
}

// However large the group is, a node asks sixteen members, itself among them perhaps.
func TestOfManyClocksSomeAreCompared(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		net, s := memnet.New(), memory.New()
		var all []*compared
		for i := range 20 {
			x := newCompared(t, net, s, fmt.Sprint("n", i))
			defer x.Close()
			x.join(t)
			all = append(all, x)
		}
		time.Sleep(time.Second)
		require.Len(t, all[0].node.group.Members().Members, 20)
		all[0].offset(t)
		synctest.Wait()
		asked := int64(0)
		for _, x := range all {
			asked += x.asked.Load()
		}
		require.EqualValues(t, 16, asked)
		require.Equal(t, 0.0, all[0].offset(t))
	})
}
