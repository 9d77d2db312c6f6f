package sharding_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
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
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

func TestBadInput(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		props := actor.PropsFromFunc(func(actor.Context) {})
		good := sharding.Type{Name: "x", Props: props, Shards: 4}
		for _, x := range []struct {
			why  string
			typ  sharding.Type
			opts []sharding.Option
		}{
			{"x name", sharding.Type{}, nil},
			{"shards: -1, must be 1 to 65536", sharding.Type{Name: "x", Shards: -1}, nil},
			{"shards: 65537", sharding.Type{Name: "x", Shards: 65537}, nil},
			{"nil Option", good, []sharding.Option{nil}},
			{"WithStrategy: nil", good, []sharding.Option{sharding.WithStrategy(nil)}},
			{"Limits.Moves: -1", good, []sharding.Option{sharding.WithMoveLimits(placement.MoveLimits{Moves: -1})}},
			{"bound of a shard: 0, must be at least 1", good, []sharding.Option{sharding.WithBuffer(0, 1, hosting.DropNewest)}},
			{"bound in all: 0", good, []sharding.Option{sharding.WithBuffer(1, 0, hosting.DropNewest)}},
			{"WithBuffer: 9, must be DropNewest or DropOldest", good, []sharding.Option{sharding.WithBuffer(1, 1, 9)}},
			{"WithStop: 0", good, []sharding.Option{sharding.WithStop(nil, 0)}},
			{"WithOverdue: 9, must be KeepLease or ReleaseAfterTTL", good, []sharding.Option{sharding.WithOverdue(9)}},
			{"WithPassivation: -1", good, []sharding.Option{sharding.WithPassivation(-1)}},
			{"WithPassivation: 1ms, must be 0 or at least 10ms", good,
				[]sharding.Option{sharding.WithPassivation(time.Millisecond)}},
			{"WithMaxActive: -1", good, []sharding.Option{sharding.WithMaxActive(-1)}},
			{"entities a second: -1", good, []sharding.Option{sharding.WithRemember(sharding.NewMemoryEntities(), -1)}},
			{"WithStateLimit: -1", good, []sharding.Option{sharding.WithStateLimit(-1)}},
			{"least: 0", good, []sharding.Option{sharding.WithBackoff(0, 1)}},
			{"most: 1ms, must be at least 2ms", good,
				[]sharding.Option{sharding.WithBackoff(2*time.Millisecond, time.Millisecond)}},
			{"WithLinger: -1", good, []sharding.Option{sharding.WithLinger(-1)}},
			{"WithSettle: -1", good, []sharding.Option{sharding.WithSettle(-1)}},
			{"WithLeaseOptions: lease.WithRenewal: invalid: manual", good,
				[]sharding.Option{sharding.WithLeaseOptions(lease.WithRenewal(lease.RenewByHand()))}},
		} {
			_, err := sharding.Start(n.system, n.group, x.typ, x.opts...)
			require.ErrorIs(t, err, lease.ErrInvalid, x.why)
			if x.why != "x name" {
				require.ErrorContains(t, err, x.why)
			}
		}
		_, err := sharding.Start(nil, n.group, good)
		require.ErrorContains(t, err, "system")
		_, err = sharding.Start(n.system, nil, good)
		require.ErrorContains(t, err, "group")
		alone := actor.NewActorSystem(remoting.LogTo(nil))
		_, err = sharding.Start(alone, n.group, good)
		require.ErrorContains(t, err, "start remote before")

		r := n.startType(good)
		_, err = sharding.Start(n.system, n.group, good)
		require.ErrorIs(t, err, sharding.ErrNameInUse)
		for _, id := range []string{"", strings.Repeat("x", sharding.MaxEntityID+1), "\xff"} {
			require.ErrorIs(t, r.Tell(id, job{}), lease.ErrInvalid)
			_, err := r.Ref(id)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		require.ErrorIs(t, r.Tell("x", nil), lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), nil, "x", job{})
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), r, "x", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.NoError(t, r.Stop(context.Background()))
		require.ErrorIs(t, r.Tell("x", job{}), sharding.ErrClosed)
		require.NoError(t, r.Stop(context.Background()), "twice")
		synctest.Wait()
	})
}

// typedNils are interfaces that are not nil, and that panic when they are called.
var typedNils = []any{(*lease.Handle)(nil), (*membership.Static)(nil), (*noop.MeterProvider)(nil),
	(*placement.Balanced)(nil), placement.StrategyFunc(nil), (*noEntities)(nil)}

type noEntities struct{ sharding.EntityStore }

func TestOptionsRefuseBadValues(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		inputtest.Options(t, map[string][]any{
			"WithProxyOnly":     {sharding.WithProxyOnly},
			"WithStrategy":      {sharding.WithStrategy, placement.Balanced{}},
			"WithMoveLimits":    {sharding.WithMoveLimits, placement.MoveLimits{Moves: 1, PerHost: 1}},
			"WithSettle":        {sharding.WithSettle, time.Second},
			"WithBuffer":        {sharding.WithBuffer, 1, 1, hosting.DropOldest},
			"WithStop":          {sharding.WithStop, func() any { return job{} }, time.Second},
			"WithOverdue":       {sharding.WithOverdue, hosting.ReleaseAfterTTL},
			"WithPassivation":   {sharding.WithPassivation, time.Second},
			"WithMaxActive":     {sharding.WithMaxActive, 1},
			"WithRemember":      {sharding.WithRemember, sharding.NewMemoryEntities(), 1},
			"WithStateLimit":    {sharding.WithStateLimit, 1},
			"WithBackoff":       {sharding.WithBackoff, time.Second, time.Second},
			"WithLinger":        {sharding.WithLinger, time.Second},
			"WithLeadership":    {sharding.WithLeadership, membership.NewStatic(n.keeper.Owner())},
			"WithLeaseOptions":  {sharding.WithLeaseOptions, lease.WithTTL(time.Second)},
			"WithLogger":        {sharding.WithLogger, zap.NewNop()},
			"WithMeterProvider": {sharding.WithMeterProvider, noop.NewMeterProvider()},
			"WithJournal":       {sharding.WithJournal, func(string, lease.Token, time.Duration) {}},
		}, typedNils, map[string]string{
			"WithStop(nil)":          "they are stopped at once",
			"WithLogger(nil)":        "the default",
			"WithMeterProvider(nil)": "the default",
		}, func(o sharding.Option) error {
			r, err := sharding.Start(n.system, n.group, sharding.Type{Name: "x", Props: n.props(), Shards: 4}, o)
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
			return r.Stop(context.Background())
		})
		_, err := sharding.Start(n.system, &membership.Group{}, sharding.Type{Name: "x"})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "membership.Join")
	})
}

func TestNoContextIsAnError(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		r := n.start(4)
		c.settled(30*time.Second, n)
		inputtest.Functions(t, map[string]func() error{
			"Ask": func() error { _, err := sharding.Ask[int](inputtest.None, r, "x", job{}); return err },
		})
		inputtest.Contexts(t, r)
		inputtest.Contexts(t, sharding.NewMemoryEntities())
		c.settled(30*time.Second, n)
	})
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, map[string]string{
		"Entity": "made by Of alone, which returns nil where there is none",
	}, new(sharding.Region), new(sharding.EventKind))
	var r sharding.Region
	for _, err := range []error{r.Tell("x", job{}), r.Stop(t.Context()), r.Request("x", job{}, nil)} {
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "sharding.Start")
	}

	for _, shards := range []int{0, -1, math.MinInt} {
		require.Zero(t, sharding.ShardOf("x", shards))
	}
}
