//go:build linux

package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/cluster/clusterproviders/test"
	"github.com/asynkron/protoactor-go/cluster/identitylookup/disthash"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
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
func grainsScenario(_ context.Context, r *scene.Run) error {
	asks, rounds := 200_000, 5 // the median of the rounds counts
	if r.Short {
		asks, rounds = 5000, 3
	}
	pid, entity, err := entities()
	if err != nil {
		return err
	}
	grain, err := grains()
	if err != nil {
		return err
	}
	kinds := []struct {
		name  string
		ask   func() error
		rates []float64
	}{{name: "bare PID", ask: pid}, {name: "entity", ask: entity}, {name: "grain", ask: grain}}
	for range rounds {
		for i := range kinds {
			rate, err := measure(kinds[i].ask, asks)
			if err != nil {
				return fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			kinds[i].rates = append(kinds[i].rates, rate)
		}
	}
	var median []float64
	for _, k := range kinds {
		slices.Sort(k.rates)
		median = append(median, k.rates[len(k.rates)/2])
		r.Figure("asks a second, "+k.name, "%.0f (%.0f to %.0f)", k.rates[len(k.rates)/2], k.rates[0], k.rates[len(k.rates)-1])
	}
	r.Figure("entity to grain; grain to bare PID", "%.2f; %.2f", median[1]/median[2], median[2]/median[0])
	most := 1 / 0.6
	if r.Short {
		most = 4 // few asks, beside whatever else the machine does
	}
	r.AtMost("bare PID to entity", median[0]/median[1], most, "")
	return nil
}

// measure has all grainCallers ask, and returns asks per second.
func measure(ask func() error, asks int) (float64, error) {
	var wg sync.WaitGroup
	failed := make(chan error, grainCallers)
	began := time.Now()
	for range grainCallers {
		wg.Go(func() {
			for range asks / grainCallers {
				if err := ask(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(asks/grainCallers*grainCallers) / time.Since(began).Seconds(), nil
	}
}

// entities starts two nodes, one of which hosts.
func entities() (bare, entity func() error, err error) {
	store := memory.New()
	node := func(id string, props *actor.Props) (*actor.ActorSystem, *sharding.Region, error) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		config, err := remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext())
		if err != nil {
			return nil, nil, err
		}
		n, err := remoting.Start(system, config)
		if err != nil {
			return nil, nil, err
		}
		keeper, err := lease.NewKeeper(store, lease.Config{ID: id, Address: n.Address()})
		if err != nil {
			return nil, nil, err
		}
		group, err := membership.Join(context.Background(), keeper, "grains")
		if err != nil {
			return nil, nil, err
		}
		r, err := sharding.Start(system, group, sharding.Type{Name: "echo", Props: props, Shards: 16})
		return system, r, err
	}
	there, _, err := node("host", echo())
	if err != nil {
		return nil, nil, err
	}
	here, region, err := node("proxy", nil)
	if err != nil {
		return nil, nil, err
	}
	plain := there.Root.Spawn(echo())
	pid, msg := actor.NewPID(plain.Address, plain.Id), wrapperspb.String("hello")
	bare = func() error {
		_, err := here.Root.RequestFuture(pid, msg, 10*time.Second).Result()
		return err
	}
	entity = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := sharding.Ask[*wrapperspb.StringValue](ctx, region, "one", msg)
		return err
	}
	return bare, entity, errors.Join(bare(), entity())
}

// grains starts two members of a cluster of protoactor, of which one has the kind.
func grains() (ask func() error, err error) {
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
		if err = ask(); err == nil {
			return ask, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}
