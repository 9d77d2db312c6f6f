package singleton_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

func TestProxyOverACustomLease(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		la, err := a.keeper.Lease("my/own")
		require.NoError(t, err)
		lb, err := b.keeper.Lease("my/own")
		require.NoError(t, err)
		// Found by looking the holder up.
		ma, err := singleton.Start(a.system, nil, "scheduler", a.worker(), singleton.WithLease(la))
		require.NoError(t, err)
		until(t, time.Second, "hosts", active(ma))
		mb, err := singleton.Start(b.system, nil, "scheduler", b.worker(), singleton.WithLease(lb))
		require.NoError(t, err)
		require.Equal(t, "a", b.mustAsk(mb.PID(), 1).Node)
		require.NoError(t, ma.Stop(t.Context()))
		require.Equal(t, "b", b.mustAsk(mb.PID(), 2).Node)
		require.NoError(t, mb.Stop(t.Context()))
		require.False(t, lb.CheckAlive())
	})
}

// A lease that knows no terms has no tokens, and guards all the same.
func TestALeaseWithoutTerms(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		l, err := a.keeper.Lease("my/own")
		require.NoError(t, err)
		m := a.run("scheduler", singleton.WithLease(plain{l}))
		a.system.Root.Send(m.PID(), job{Number: 1})
		until(t, time.Second, "hosts", active(m))
		require.Equal(t, 2, a.mustAsk(m.PID(), 2).Number)
		require.Len(t, c.log.snapshot()[0].jobs, 2, "what came before it was there, too")
		require.Zero(t, m.Status().Buffered)
	})
}

func TestBadInput(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		b := c.node("b")
		props := a.worker()
		alone := actor.NewActorSystem()
		idle, err := a.keeper.Lease("idle", lease.WithRenewal(lease.RenewOnActivity()))
		require.NoError(t, err)
		start := func(s *actor.ActorSystem, k *lease.Keeper, name string, p *actor.Props, opts ...singleton.Option) error {
			m, err := singleton.Start(s, k, name, p, opts...)
			require.Nil(t, m)
			return err
		}
		for what, check := range map[string]struct {
			err  error
			text string
		}{
			"nil system":        {start(nil, a.keeper, "x", props), "system"},
			"nil keeper":        {start(a.system, nil, "x", props), "keeper"},
			"nil props":         {start(a.system, a.keeper, "x", nil), "props"},
			"empty name":        {start(a.system, a.keeper, "", props), "empty"},
			"10 KiB name":       {start(a.system, a.keeper, strings.Repeat("x", 10<<10), props), "at most 512"},
			"not UTF-8":         {start(a.system, a.keeper, "\xff", props), "UTF-8"},
			"before remote":     {start(alone, a.keeper, "x", props), "start remote"},
			"another's address": {start(a.system, b.keeper, "x", props), "lease.Config.Address"},
			"nil option":        {start(a.system, a.keeper, "x", props, nil), "Option"},
			"backoff":           {start(a.system, a.keeper, "x", props, singleton.WithBackoff(0, 1)), "at least 1ms"},
			"retries":           {start(a.system, a.keeper, "x", props, singleton.WithRetries(0, time.Second)), "WithRetries failing"},
			"retries, taken":    {start(a.system, a.keeper, "x", props, singleton.WithRetries(time.Second, -1)), "WithRetries taken"},
			"backoff order":     {start(a.system, a.keeper, "x", props, singleton.WithBackoff(time.Second, time.Millisecond)), "at least least"},
			"buffer":            {start(a.system, a.keeper, "x", props, singleton.WithBuffer(0, 0)), "at least 1"},
			"policy":            {start(a.system, a.keeper, "x", props, singleton.WithBuffer(1, 9)), "DropOldest"},
			"stop":              {start(a.system, a.keeper, "x", props, singleton.WithStop(nil, 0)), "at least 1ms"},
			"settle":            {start(a.system, a.keeper, "x", props, singleton.WithSettle(-1)), "at least 0"},
			"stubborn":          {start(a.system, a.keeper, "x", props, singleton.WithOverdue(9)), "KeepLease or ReleaseAfterTTL"},
			"two who decide": {start(a.system, a.keeper, "x", props, singleton.WithPreferred("a"),
				singleton.WithLeadership(membership.NewStatic(a.keeper.Owner()))), "without WithLeadership"},
			"linger": {start(a.system, a.keeper, "x", props, singleton.WithLinger(-1)), "at least 0"},
			"ttl": {start(a.system, a.keeper, "x", props, singleton.WithLeaseOptions(lease.WithTTL(1))),
				"at least 300ms"},
			"never renewed": {start(a.system, a.keeper, "x", props, singleton.WithLeaseOptions(lease.WithRenewal(lease.RenewNever()))),
				"WithLeaseOptions: lease.WithRenewal: invalid: never"},
			"renewed on activity": {start(a.system, a.keeper, "x", props, singleton.WithLease(idle)), "WithLease: lease.WithRenewal: invalid: activity"},
		} {
			require.ErrorIs(t, check.err, lease.ErrInvalid, what)
			require.ErrorContains(t, check.err, check.text, what)
		}
		m := a.run("x")
		err = start(a.system, a.keeper, "x", actor.PropsFromFunc(func(actor.Context) {}))
		require.ErrorIs(t, err, singleton.ErrNameInUse, "two different singletons of one name")
		require.NoError(t, m.Stop(t.Context()))
		a.run("x")
		h, err := a.keeper.Lease("singleton/y")
		require.NoError(t, err)
		require.ErrorIs(t, start(a.system, a.keeper, "y", props), lease.ErrNameInUse)
		require.NoError(t, h.Close(t.Context()))
		a.run("y")
	})
}

// typedNils are interfaces that are not nil, and that panic when they are called.
var typedNils = []any{(*lease.Handle)(nil), (*membership.Static)(nil), (*noop.MeterProvider)(nil)}

func TestOptionsRefuseBadValues(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		inputtest.Options(t, map[string][]any{
			"WithLease":         {singleton.WithLease, ownLease(t)},
			"WithLeaseOptions":  {singleton.WithLeaseOptions, lease.WithTTL(time.Second)},
			"WithLeadership":    {singleton.WithLeadership, membership.NewStatic(a.keeper.Owner())},
			"WithSettle":        {singleton.WithSettle, time.Second},
			"WithPreferred":     {singleton.WithPreferred, "a"},
			"WithStop":          {singleton.WithStop, func() any { return job{} }, time.Second},
			"WithOverdue":       {singleton.WithOverdue, hosting.KeepLease},
			"WithProxyOnly":     {singleton.WithProxyOnly},
			"WithBackoff":       {singleton.WithBackoff, time.Second, time.Second},
			"WithRetries":       {singleton.WithRetries, time.Second, time.Second},
			"WithBuffer":        {singleton.WithBuffer, 1, hosting.DropNewest},
			"WithLinger":        {singleton.WithLinger, time.Second},
			"WithLogger":        {singleton.WithLogger, zap.NewNop()},
			"WithMeterProvider": {singleton.WithMeterProvider, noop.NewMeterProvider()},
			"WithJournal":       {singleton.WithJournal, func(string, lease.Token, time.Duration) {}},
		}, typedNils, map[string]string{
			"WithStop(nil)":          "it is stopped at once",
			"WithLogger(nil)":        "the default",
			"WithMeterProvider(nil)": "the default",
		}, func(o singleton.Option) error {
			m, err := singleton.Start(a.system, a.keeper, "x", a.worker(), o)
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
			return m.Stop(context.Background())
		})
	})
}

func TestNoContextIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.run("x")
		until(t, time.Second, "hosts", active(m))
		inputtest.Functions(t, map[string]func() error{
			"Ask":     func() error { _, err := singleton.Ask[done](inputtest.None, m, job{}); return err },
			"StopAll": func() error { return singleton.StopAll(inputtest.None, a.system) },
		})
		inputtest.Contexts(t, m)
		require.True(t, active(m)(), "what is refused has changed nothing")
		require.Equal(t, "a", a.mustAsk(m.PID(), 1).Node)
	})
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, nil, new(singleton.Manager), new(singleton.Guarded), new(singleton.EventKind), new(singleton.Phase))
	require.ErrorIs(t, new(singleton.Manager).Stop(t.Context()), lease.ErrInvalid)
	_, err := singleton.Ask[done](t.Context(), new(singleton.Manager), job{})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "singleton.Start")

	none, ok := singleton.Of(nil)
	require.False(t, ok)
	require.False(t, none.CheckAlive())
	require.ErrorIs(t, context.Cause(none.Context()), lease.ErrNotHeld)
	system := actor.NewActorSystem(remoting.LogTo(nil))
	worked := make(chan any, 1)
	props := none.Guard(actor.PropsFromFunc(func(ctx actor.Context) { worked <- ctx.Message() }))
	require.NoError(t, system.Root.StopFuture(system.Root.Spawn(props)).Wait())
	require.Empty(t, worked, "under no lease nothing works")
}

func TestPropsThatPanicAreContained(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		tries := 0
		m, err := singleton.Start(a.system, a.keeper, "x", actor.PropsFromProducer(func() actor.Actor {
			if tries++; tries < 3 {
				panic("no actor today")
			}
			return actor.ReceiveFunc(func(actor.Context) {})
		}))
		require.NoError(t, err)
		until(t, time.Minute, "active in the end", active(m))
		require.Equal(t, 3, tries)
		require.NoError(t, m.Stop(t.Context()))
	})
}
