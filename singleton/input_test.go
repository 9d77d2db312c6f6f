package singleton_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// A lease that knows no terms has no tokens, and guards all the same.
func TestALeaseWithoutTerms(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		l, err := a.keeper.Lease("my/own")
		require.NoError(t, err)
		m := a.run("scheduler", singleton.WithLease(bare{l}))
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
		others, err := b.keeper.Lease("others")
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
			"backoff order":     {start(a.system, a.keeper, "x", props, singleton.WithBackoff(time.Second, time.Millisecond)), "WithBackoff most: 1ms, must be at least 1s"},
			"buffer":            {start(a.system, a.keeper, "x", props, singleton.WithBuffer(0, 0)), "at least 1"},
			"policy":            {start(a.system, a.keeper, "x", props, singleton.WithBuffer(1, 9)), "DropOldest"},
			"stop":              {start(a.system, a.keeper, "x", props, singleton.WithStop(nil, 0)), "at least 1ms"},
			"settle":            {start(a.system, a.keeper, "x", props, singleton.WithSettle(-1)), "at least 0"},
			"stubborn":          {start(a.system, a.keeper, "x", props, singleton.WithOverdue(9)), "KeepLease or ReleaseAfterTTL"},
			"two who decide": {start(a.system, a.keeper, "x", props, singleton.WithPreferred("a"),
				singleton.WithLeadership(membership.NewStatic(a.keeper.Owner()))), "only one of them can decide"},
			"linger": {start(a.system, a.keeper, "x", props, singleton.WithLinger(-1)), "at least 0"},
			"ttl": {start(a.system, a.keeper, "x", props, singleton.WithLeaseOptions(lease.WithTTL(1))),
				"at least 300ms"},
			"never renewed": {start(a.system, a.keeper, "x", props, singleton.WithLeaseOptions(lease.WithRenewal(lease.RenewNever()))),
				"WithLeaseOptions: lease.WithRenewal: invalid: never"},
			"another's lease":     {start(a.system, a.keeper, "x", props, singleton.WithLease(others)), `"others" of another keeper`},
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
var typedNils = []any{(*lease.Handle)(nil), (*membership.Static)(nil)}

func TestOptionsRefuseBadValues(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, group := c.versioned("a", "1")
		inputtest.Options(t, map[string][]any{
			"WithLease":        {singleton.WithLease, &scriptedLease{}},
			"WithLeaseOptions": {singleton.WithLeaseOptions, lease.WithTTL(time.Second)},
			"WithLeadership":   {singleton.WithLeadership, membership.NewStatic(a.keeper.Owner())},
			"WithSettle":       {singleton.WithSettle, time.Second},
			"WithPreferred":    {singleton.WithPreferred, "a"},
			"WithPreference":   {singleton.WithPreference, group, newest},
			"WithStop":         {singleton.WithStop, func() any { return job{} }, time.Second},
			"WithOverdue":      {singleton.WithOverdue, hosting.KeepLease},
			"WithProxyOnly":    {singleton.WithProxyOnly},
			"WithBackoff":      {singleton.WithBackoff, time.Second, time.Second},
			"WithBuffer":       {singleton.WithBuffer, 1, hosting.DropNewest},
			"WithLinger":       {singleton.WithLinger, time.Second},
			"WithLogger":       {singleton.WithLogger, zap.NewNop()},
			"WithJournal":      {singleton.WithJournal, func(string, lease.Token, time.Duration) {}},
		}, typedNils, map[string]string{
			"WithStop(nil)":   "it is stopped at once",
			"WithLogger(nil)": "the default",
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
			"Drain":   func() error { return singleton.Drain(inputtest.None, a.system) },
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

// pong answers, and nothing else.
var pong = actor.PropsFromFunc(func(c actor.Context) {
	if c.Message() == "ping" {
		c.Respond("pong")
	}
})

// A peer may send a manager what it likes, of all that nodes say to each other:
// nothing panics, and the singleton goes on answering.
func FuzzPeer(f *testing.F) {
	const name = "singleton/s"
	self := &wire.Node{Address: "nonhost", Incarnation: "x"}
	kinds := []proto.Message{
		&wire.Envelope{Name: name, Type: "t", Token: 1 << 63, Hops: 1 << 31, Sender: &wire.Address{Address: "nonhost", Id: "singleton/s"}},
		&wire.Frame{From: self, Link: 1, Number: 1 << 63, What: &wire.Frame_Marker{Marker: &wire.Marker{Name: name, From: self, Token: 1 << 63}}},
		&wire.MarkerWaits{Name: name, From: self, Number: 1 << 63},
		&wire.Marker{Name: name, From: self, Token: 1, Number: 1<<64 - 1},
		&wire.MarkerAck{Name: name, From: self, Number: 1, Token: 1 << 63},
		&wire.Candidate{Name: name, From: self, Id: "x", Leads: true},
		&wire.Invite{Name: name, From: self, Number: 7},
		&wire.Offer{Name: name, From: self, Ttl: -1, Lifetime: -1},
		&wire.HandedOver{Name: name, From: self, States: 1},
		&wire.Order{Type: "g/account", From: self},
		&wire.Nack{Reason: 99, Name: name},
	}
	for i, m := range kinds {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(uint8(i), b)
	}
	core, panicked := observer.New(zap.ErrorLevel)
	log := zap.New(core)
	system := actor.NewActorSystem(remoting.LogTo(nil), actor.WithDeadLetterThrottleCount(0))
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "fuzz"})
	require.NoError(f, err)
	m, err := singleton.Start(system, keeper, "s", pong, singleton.WithLogger(log), singleton.WithPreferred("x", "fuzz"), singleton.WithLinger(0))
	require.NoError(f, err)
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = m.Stop(ctx)
		_ = keeper.Close(ctx)
		system.Shutdown()
	})
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		msg := kinds[int(kind)%len(kinds)].ProtoReflect().New().Interface()
		if proto.Unmarshal(b, msg) != nil {
			return
		}
		if e, ok := msg.(*wire.Envelope); ok && strings.HasPrefix(e.Type, "actor.") {
			return // what stops an actor may be sent, and stops it
		}
		to := m.PID()
		if r, ok := msg.(*wire.Frame); ok {
			if strings.HasPrefix(r.GetEnvelope().GetType(), "actor.") {
				return
			}
			to = actor.NewPID(system.Address(), "holdfast/mail")
			system.Root.Send(to, &wire.Probe{From: &wire.Node{Address: "nowhere", Incarnation: r.GetFrom().GetIncarnation()}, Link: r.Link, Number: 1})
			r.To, r.From = m.PID().Id, &wire.Node{Address: "nowhere", Incarnation: r.GetFrom().GetIncarnation()}
		}
		system.Root.Send(to, msg)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		answer, err := singleton.Ask[string](ctx, m, "ping")
		require.NoError(t, err, "%T %v", msg, msg)
		require.Equal(t, "pong", answer)
		require.Zero(t, panicked.Len(), "%T %v: a panic", msg, msg)
	})
}

// Options are refused, with the name of what is at fault, or a singleton works with
// them: it answers, and ends.
func FuzzOptions(f *testing.F) {
	f.Add("s", 10, uint8(0), int64(1e9), uint8(0), int64(1e6), int64(1e9), int64(0), int64(0), "")
	f.Add("", 0, uint8(9), int64(0), uint8(9), int64(0), int64(-1), int64(-1), int64(-1), "a")
	f.Add("a/b\x00", 1, uint8(1), int64(1e6), uint8(1), int64(1e6), int64(1e6), int64(1<<62), int64(1<<62), "b")
	f.Fuzz(func(t *testing.T, name string, buffer int, policy uint8, within int64, stubborn uint8,
		least, most, linger, settle int64, preferred string) {
		synctest.Test(t, func(t *testing.T) {
			defer func() { time.Sleep(2 * time.Second) }() // protoactor's log of dead letters
			system := actor.NewActorSystem(remoting.LogTo(nil))
			k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
			require.NoError(t, err)
			defer func() { require.NoError(t, k.Close(context.Background())) }()
			opts := []singleton.Option{singleton.WithBuffer(buffer, hosting.DropPolicy(policy)), singleton.WithStop(nil, time.Duration(within)),
				singleton.WithOverdue(hosting.Overdue(stubborn)),
				singleton.WithBackoff(time.Duration(least), time.Duration(most)), singleton.WithLinger(time.Duration(linger)),
				singleton.WithSettle(time.Duration(settle))}
			if preferred != "" {
				opts = append(opts, singleton.WithPreferred(preferred, preferred))
			}
			m, err := singleton.Start(system, k, name, pong, opts...)
			if err != nil {
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.Regexp(t, `With[A-Z]|segment|name`, err.Error())
				require.Less(t, len(err.Error()), 4*store.MaxName+200)
				return
			}
			defer func() { require.NoError(t, m.Stop(context.Background())) }()
			answer, err := singleton.Ask[string](contextFor(time.Hour), m, "ping")
			require.NoError(t, err)
			require.Equal(t, "pong", answer)
		})
	})
}
