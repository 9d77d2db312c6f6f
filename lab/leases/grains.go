//go:build linux

package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/cluster/clusterproviders/test"
	"github.com/asynkron/protoactor-go/cluster/identitylookup/disthash"
	"github.com/asynkron/protoactor-go/remote"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lab/scene"
	whole "github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
)

const grainCallers = 64

// echo answers what it is asked.
func echo() *actor.Props {
	return actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*wrapperspb.StringValue); ok {
			c.Respond(m)
		}
	})
}

// grainsScenario compares requests to an actor on another node: by its bare PID, as an entity of
// package sharding, and as a grain of protoactor's cluster.
func grainsScenario(ctx context.Context, r *scene.Run) {
	asks, rounds := 200_000, 5 // the median of the rounds counts
	if r.Short {
		asks, rounds = 5000, 3
	}
	pid, entity := entities(ctx)
	grain := grains()
	var rates [3][]float64
	var median [3]float64
	names := [3]string{"bare PID", "entity", "grain"}
	for range rounds {
		for i, ask := range []func() error{pid, entity, grain} {
			rates[i] = append(rates[i], float64(asks)/forAll(asks, grainCallers, func(int) error { return ask() }).Seconds())
		}
	}
	for i, all := range rates {
		slices.Sort(all)
		median[i] = all[rounds/2]
		r.Figure("asks a second, "+names[i], "%.0f (%.0f to %.0f)", median[i], all[0], all[rounds-1])
	}
	r.Figure("entity to grain; grain to bare PID", "%.2f; %.2f", median[1]/median[2], median[2]/median[0])
	most := 1 / 0.6
	if r.Short {
		most = 4 // few asks, beside whatever else the machine does
	}
	r.AtMost("bare PID to entity", median[0]/median[1], most, "")
}

// entities starts two nodes, one of which hosts.
func entities(ctx context.Context) (bare, entity func() error) {
	store := memory.New()
	begin := func(id string, props *actor.Props) (*whole.Node, *sharding.Region) {
		n := scene.Must(whole.Start(ctx, whole.Config{ID: id, Store: store, Listen: "127.0.0.1:0", Plaintext: true, Group: "grains", Logger: zap.NewNop()}))
		return n, scene.Must(n.ShardedType(sharding.Type{Name: "echo", Props: props, Shards: 16}))
	}
	there, _ := begin("host", echo())
	here, region := begin("proxy", nil)
	plain := there.System().Root.Spawn(echo())
	pid, msg := actor.NewPID(plain.Address, plain.Id), wrapperspb.String("hello")
	bare = func() error {
		_, err := here.System().Root.RequestFuture(pid, msg, 10*time.Second).Result()
		return err
	}
	entity = func() error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := sharding.Ask[*wrapperspb.StringValue](ctx, region, "one", msg)
		return err
	}
	scene.Check(errors.Join(bare(), entity()))
	return bare, entity
}

// grains starts two members of a cluster of protoactor, of which one has the kind.
func grains() (ask func() error) {
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) })
	agent := test.NewInMemAgent()
	member := func(kinds ...*cluster.Kind) *cluster.Cluster {
		system := actor.NewActorSystem(quiet)
		c := cluster.New(system, cluster.Configure("grains", test.NewTestProvider(agent), disthash.New(),
			remote.Configure("127.0.0.1", 0), cluster.WithKinds(kinds...)))
		c.StartMember()
		return c
	}
	member(cluster.NewKind("echo", echo()))
	here := member()
	msg := wrapperspb.String("hello")
	ask = func() error {
		res, err := here.Request("one", "echo", msg)
		if err == nil {
			if _, ok := res.(*wrapperspb.StringValue); !ok {
				err = fmt.Errorf("answered with %T", res)
			}
		}
		return err
	}
	for range 50 { // until the members know each other
		if ask() == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ask
}
