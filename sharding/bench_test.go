package sharding_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/compared"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// counting answers requests, and counts the other messages.
type counting struct {
	wg   *sync.WaitGroup
	work time.Duration
}

func (c *counting) Receive(ctx actor.Context) {
	m, ok := ctx.Message().(*wrapperspb.StringValue)
	switch {
	case !ok:
	case ctx.Sender() != nil:
		ctx.Respond(m)
	default:
		if c.work > 0 {
			for began := time.Now(); time.Since(began) < c.work; {
			}
		}
		c.wg.Done()
	}
}

// bench starts a type on a node of its own, whose address is on a port of loopback if it is one
// of several.
func bench(b *testing.B, store store.Store, id string, several bool,
	props *actor.Props) (*actor.ActorSystem, *sharding.Region) {
	system, address := actor.NewActorSystem(remoting.LogTo(nil)), ""
	if several {
		config, err := remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext())
		require.NoError(b, err)
		n, err := remoting.Start(system, config)
		require.NoError(b, err)
		b.Cleanup(func() { n.Shutdown(false) })
		address = n.Address()
	}
	keeper, err := lease.NewKeeper(store, lease.Config{ID: id, Address: address})
	require.NoError(b, err)
	group, err := membership.Join(context.Background(), keeper, "g")
	require.NoError(b, err)
	r, err := sharding.Start(system, group, sharding.Type{Name: "bench", Props: props, Shards: 16},
		sharding.WithSettle(10*time.Millisecond), sharding.WithBuffer(1<<20, 1<<24, hosting.DropNewest))
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(b, r.Stop(ctx))
		require.NoError(b, group.Leave(ctx))
		require.NoError(b, keeper.Close(ctx))
	})
	for props != nil && r.Info().Held < 16 {
		time.Sleep(10 * time.Millisecond)
	}
	return system, r
}

// BenchmarkTell compares a message to an active entity of this node with one to a
// plain actor, sending and handling included.
func BenchmarkTell(b *testing.B) {
	for _, work := range []time.Duration{0, time.Microsecond} {
		b.Run(fmt.Sprint("handler=", work), func(b *testing.B) {
			var wg sync.WaitGroup
			props := actor.PropsFromProducer(func() actor.Actor { return &counting{&wg, work} })
			system, r := bench(b, memory.New(), "bench", false, props)
			plain := system.Root.Spawn(props)
			msg := wrapperspb.String("hello")
			wg.Add(1)
			require.NoError(b, r.Tell("one", msg))
			wg.Wait()
			run := func(send func()) func(n int) {
				return func(n int) {
					wg.Add(n)
					for range n {
						send()
					}
					wg.Wait()
				}
			}
			compared.WithPlain(b, run(func() { _ = r.Tell("one", msg) }), run(func() { system.Root.Send(plain, msg) }))
		})
	}
}

// BenchmarkAsk compares an ask of an active entity of this node with a request to a plain
// actor.
func BenchmarkAsk(b *testing.B) {
	props := actor.PropsFromProducer(func() actor.Actor { return &counting{} })
	system, r := bench(b, memory.New(), "bench", false, props)
	plain := system.Root.Spawn(props)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	msg := wrapperspb.String("hello")
	run := func(ask func() error) func(n int) {
		return func(n int) {
			for range n {
				if err := ask(); err != nil {
					b.Error(err)
					return
				}
			}
		}
	}
	compared.WithPlain(b, run(func() error { _, err := sharding.Ask[*wrapperspb.StringValue](ctx, r, "one", msg); return err }),
		run(func() error { return system.Root.RequestFuture(plain, msg, time.Hour).Wait() }))
}

var entities = flag.Int("sharding.entities", 20_000, "entities of BenchmarkIdleEntities, over its four nodes")

// BenchmarkIdleEntities says what an entity takes that has handled a message and
// does nothing: heap and stacks, its actor included. Four nodes in this process,
// 1024 shards; -sharding.entities=1000000 makes it a million.
func BenchmarkIdleEntities(b *testing.B) {
	var wg sync.WaitGroup
	props := actor.PropsFromProducer(func() actor.Actor { return &counting{&wg, 0} })
	c := &cluster{t: b, store: memory.New(), net: memnet.New()}
	defer c.cleanUp()
	ns := c.nodes("a", "b", "c", "d")
	for _, n := range ns {
		n.startType(sharding.Type{Name: "bench", Props: props, Shards: 1024}, sharding.WithSettle(100*time.Millisecond),
			sharding.WithBuffer(1<<20, 1<<24, hosting.DropNewest))
	}
	c.settled(time.Minute, ns...)
	where, msg := owners(ns[0]), wrapperspb.String("hello")
	for b.Loop() {
		before := heap()
		began := time.Now()
		wg.Add(*entities)
		for i := range *entities {
			id := fmt.Sprint(b.N, "/", i)
			for _, n := range ns { // told where it is, as this is not about the way there
				if n.id == where[sharding.ShardOf(id, 1024)] {
					_ = n.region.Tell(id, msg)
				}
			}
		}
		wg.Wait()
		took := time.Since(began)
		b.ReportMetric(float64(heap()-before)/float64(*entities), "B/entity")
		b.ReportMetric(float64(*entities)/took.Seconds(), "started/s")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// BenchmarkRemote compares an entity on another node, over loopback, with an actor
// that was spawned there, reached by its PID: both ends in this process.
func BenchmarkRemote(b *testing.B) {
	var wg sync.WaitGroup
	props := actor.PropsFromProducer(func() actor.Actor { return &counting{wg: &wg} })
	store := memory.New()
	there, _ := bench(b, store, "host", true, props)
	here, proxy := bench(b, store, "proxy", true, nil)
	msg := wrapperspb.String("hello")
	plain := there.Root.Spawn(props)
	bare := actor.NewPID(plain.Address, plain.Id)
	ctx := context.Background()
	_, err := sharding.Ask[*wrapperspb.StringValue](ctx, proxy, "one", msg)
	require.NoError(b, err)
	b.Run("tell", func(b *testing.B) {
		send := func(tell func()) func(int) { return compared.Flood(tell, wg.Add, wg.Wait) }
		compared.WithPlain(b, send(func() { _ = proxy.Tell("one", msg) }), send(func() { here.Root.Send(bare, msg) }))
	})
	b.Run("ask", func(b *testing.B) {
		compared.WithPlain(b, compared.Callers(b, func() error {
			_, err := sharding.Ask[*wrapperspb.StringValue](ctx, proxy, "one", msg)
			return err
		}), compared.Callers(b, func() error {
			_, err := here.Root.RequestFuture(bare, msg, 10*time.Second).Result()
			return err
		}))
	})
}

var manyShards = flag.Int("sharding.shards", 5000, "shards of BenchmarkJoinAndLeave, on three nodes and then four")

// BenchmarkJoinAndLeave says how long a fourth node takes to have its part of very many
// shards, and to hand it over: in seconds, and in microseconds for each shard that moved.
// -sharding.shards=20000 makes it twenty thousand.
func BenchmarkJoinAndLeave(b *testing.B) {
	b.ReportAllocs()
	shards := *manyShards
	var joins, leaves time.Duration
	for range b.N {
		c := &cluster{t: b, store: memory.New(), net: memnet.New()}
		c.log.t = b
		part := func(n *node, least int) {
			for began := time.Now(); n.region.Info().Held < least; time.Sleep(10 * time.Millisecond) {
				require.Less(b, time.Since(began), 5*time.Minute)
			}
		}
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			n.start(shards, sharding.WithSettle(100*time.Millisecond))
		}
		for _, n := range ns {
			part(n, shards/3)
		}
		late := c.node("d")
		b.StartTimer()
		began := time.Now()
		late.start(shards, sharding.WithSettle(100*time.Millisecond))
		part(late, shards/4)
		joins += time.Since(began)
		began = time.Now()
		require.NoError(b, late.region.Drain(context.Background()))
		leaves += time.Since(began)
		b.StopTimer()
		c.cleanUp()
	}
	moved := float64(shards/4) * float64(b.N)
	b.ReportMetric(joins.Seconds()/float64(b.N), "s/join")
	b.ReportMetric(leaves.Seconds()/float64(b.N), "s/leave")
	b.ReportMetric(float64(joins.Microseconds())/moved, "µs/joined")
	b.ReportMetric(float64(leaves.Microseconds())/moved, "µs/left")
}
