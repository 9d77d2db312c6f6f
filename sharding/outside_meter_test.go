package sharding_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/sharding"
)

// begun is a MeterProvider that does what ask does when it is asked for a Meter, and what
// end does when a callback is taken back.
type begun struct {
	noop.MeterProvider
	ask, end func()
}

type begunMeter struct {
	noop.Meter
	end func()
}

type begunCallback struct {
	noop.Registration
	end func()
}

func (b begun) Meter(string, ...metric.MeterOption) metric.Meter {
	b.ask()
	return begunMeter{end: b.end}
}

func (m begunMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return begunCallback{end: m.end}, nil
}

func (c begunCallback) Unregister() error { c.end(); return nil }

// A MeterProvider that panics fails the Start that asked it: an error, and the next one
// succeeds.
func TestAMeterProviderThatPanics(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4},
			sharding.WithMeterProvider(begun{ask: func() { panic("no exporter") }}))
		require.ErrorContains(t, err, "no exporter")
		n.start(4)
		c.settled(5*time.Second, n)
	})
}

// What is registered with it is taken back aside: a Region ends all the same.
func TestARegionEndsThoughItsMeterFails(t *testing.T) {
	for name, end := range map[string]func(release chan struct{}){
		"hang":   func(release chan struct{}) { <-release },
		"panic":  func(chan struct{}) { panic("a meter's bug") },
		"goexit": func(chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				n := c.node("a")
				release := make(chan struct{})
				c.atEnd(func() { close(release) })
				r := n.start(4, sharding.WithMeterProvider(begun{ask: func() {}, end: func() { end(release) }}))
				c.settled(5*time.Second, n)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				require.NoError(t, r.Stop(ctx))
				n.start(4)
				c.settled(5*time.Second, n)
			})
		})
	}
}
