// Grains compares, in one run, requests to an actor on another node by three ways:
// its bare PID, an entity of package sharding, and a grain of protoactor's cluster.
// Two nodes in this process, connected over loopback; 64 callers.
//
//	cd test/grains && go run . [-asks 200000] [-rounds 5]
//
// It prints the rates and exits 1 if the entity's is below 0.6 of the bare PID's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
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
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

const callers = 64

func main() {
	asks := flag.Int("asks", 200_000, "requests of each kind in a round")
	rounds := flag.Int("rounds", 5, "rounds, of which the median counts")
	flag.Parse()
	if err := compare(*asks, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "grains:", err)
		os.Exit(1)
	}
}

// echo answers what it is asked.
func echo() *actor.Props {
	return actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*wrapperspb.StringValue); ok {
			c.Respond(m)
		}
	})
}

func compare(asks, rounds int) error {
	if asks < callers || rounds < 1 {
		return fmt.Errorf("-asks must be at least %d, -rounds at least 1", callers)
	}
	ask, err := entity()
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
	}{{name: "bare PID", ask: ask.bare}, {name: "entity", ask: ask.entity}, {name: "grain", ask: grain}}
	for range rounds {
		for i := range kinds {
			rate, err := measure(kinds[i].ask, asks)
			if err != nil {
				return fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			kinds[i].rates = append(kinds[i].rates, rate)
		}
	}
	median := map[string]float64{}
	for _, k := range kinds {
		slices.Sort(k.rates)
		median[k.name] = k.rates[len(k.rates)/2]
		fmt.Printf("%-10s %8.0f asks/s (%.0f to %.0f)\n", k.name, median[k.name], k.rates[0], k.rates[len(k.rates)-1])
	}
	toPID, toGrain := median["entity"]/median["bare PID"], median["entity"]/median["grain"]
	fmt.Printf("entity to bare PID: %.2f, to grain: %.2f; grain to bare PID: %.2f\n", toPID, toGrain, median["grain"]/median["bare PID"])
	if toPID < 0.6 {
		return errors.New("slower than it should be")
	}
	return nil
}

// measure has all callers ask, and returns asks per second.
func measure(ask func() error, asks int) (float64, error) {
	var wg sync.WaitGroup
	failed := make(chan error, callers)
	began := time.Now()
	for range callers {
		wg.Go(func() {
			for range asks / callers {
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
		return float64(asks/callers*callers) / time.Since(began).Seconds(), nil
	}
}

type asker struct{ bare, entity func() error }

// entity starts two nodes, one of which hosts.
func entity() (a asker, err error) {
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
		return a, err
	}
	here, region, err := node("proxy", nil)
	if err != nil {
		return a, err
	}
	plain := there.Root.Spawn(echo())
	pid, msg := actor.NewPID(plain.Address, plain.Id), wrapperspb.String("hello")
	a.bare = func() error {
		_, err := here.Root.RequestFuture(pid, msg, 10*time.Second).Result()
		return err
	}
	a.entity = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := sharding.Ask[*wrapperspb.StringValue](ctx, region, "one", msg)
		return err
	}
	return a, errors.Join(a.bare(), a.entity())
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
