package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/singleton"
)

// asked is a MeterProvider that does what f does when it is asked for a Meter.
type asked struct {
	noop.MeterProvider
	f func()
}

func (a asked) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	a.f()
	return a.MeterProvider.Meter(name, opts...)
}

// A MeterProvider that hangs holds up the Start that asks it, and nothing else of the
// actor system's singletons.
func TestAMeterProviderThatHangsHoldsUpItsOwnStartAlone(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		release, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			m, err := singleton.Start(a.system, a.keeper, "hung", a.worker(), singleton.WithMeterProvider(asked{f: func() { <-release }}))
			if err == nil {
				err = m.Stop(context.Background())
			}
			require.NoError(t, err)
		}()
		time.Sleep(time.Second)
		began := time.Now()
		m := a.run("x")
		until(t, time.Second, "hosts", active(m))
		a.mustAsk(m.PID(), 1)
		require.NoError(t, singleton.Health(a.system)(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, singleton.StopAll(ctx, a.system))
		require.Less(t, time.Since(began), 10*time.Second)
		close(release)
		<-over
	})
}

// One that panics is an error, and what was begun is undone.
func TestAMeterProviderThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		_, err := singleton.Start(a.system, a.keeper, "x", a.worker(), singleton.WithMeterProvider(asked{f: func() { panic("no exporter") }}))
		require.ErrorContains(t, err, "no exporter")
		m := a.run("x")
		until(t, time.Second, "hosts", active(m))
		a.mustAsk(m.PID(), 1)
	})
}
