package sharding_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// counting handles messages until it has seen the last.
type counting struct {
	wg   *sync.WaitGroup
	work time.Duration
}

func (c *counting) Receive(ctx actor.Context) {
	if _, ok := ctx.Message().(*benchMessage); ok {
		if c.work > 0 {
			for began := time.Now(); time.Since(began) < c.work; {
			}
		}
		c.wg.Done()
	}
}

type benchMessage struct{}

// single starts a type on one node and waits until its shards are there.
func single(b *testing.B, props *actor.Props, shards int, opts ...sharding.Option) (*actor.ActorSystem, *sharding.Region) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "bench"})
	require.NoError(b, err)
	group, err := membership.Join(context.Background(), keeper, "g")
	require.NoError(b, err)
	r, err := sharding.Start(system, group, sharding.Type{Name: "bench", Props: props, Shards: shards},
		append([]sharding.Option{sharding.WithSettle(10 * time.Millisecond)}, opts...)...)
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(b, r.Stop(ctx))
		require.NoError(b, group.Leave(ctx))
		require.NoError(b, keeper.Close(ctx))
	})
	for r.Info().Held < shards {
		time.Sleep(10 * time.Millisecond)
	}
	return system, r
}

// BenchmarkTell compares a message to an active entity of this node with one to a
// plain actor, sending and handling included. "ratio" is how many times as many
// messages the plain actor's rate is of ours, inverted: ours to plain.
func BenchmarkTell(b *testing.B) {
	for _, work := range []time.Duration{0, time.Microsecond} {
		b.Run(fmt.Sprint("handler=", work), func(b *testing.B) {
			var wg sync.WaitGroup
			props := actor.PropsFromProducer(func() actor.Actor { return &counting{&wg, work} })
			system, r := single(b, props, 16)
			plain := system.Root.Spawn(props)
			msg := &benchMessage{}
			wg.Add(1)
			require.NoError(b, r.Tell("one", msg))
			wg.Wait()
			run := func(send func()) time.Duration {
				wg.Add(b.N)
				began := time.Now()
				for range b.N {
					send()
				}
				wg.Wait()
				return time.Since(began)
			}
			b.ReportAllocs()
			// Twice each, in turn, so that neither has the warmer machine.
			var ours, theirs time.Duration
			b.ResetTimer()
			ours += run(func() { _ = r.Tell("one", msg) })
			b.StopTimer()
			theirs += run(func() { system.Root.Send(plain, msg) })
			theirs += run(func() { system.Root.Send(plain, msg) })
			ours += run(func() { _ = r.Tell("one", msg) })
			b.ReportMetric(float64(theirs)/float64(ours), "of-plain")
		})
	}
}

// BenchmarkIdleEntity says what an entity takes that has handled a message and
// does nothing: heap, its actor and its own few bytes included.
func BenchmarkIdleEntity(b *testing.B) {
	var wg sync.WaitGroup
	props := actor.PropsFromProducer(func() actor.Actor { return &counting{&wg, 0} })
	_, r := single(b, props, 256)
	for b.Loop() {
		const n = 50_000
		before := heap()
		wg.Add(n)
		for i := range n {
			_ = r.Tell(fmt.Sprint(b.N, "/", i), &benchMessage{})
		}
		wg.Wait()
		b.ReportMetric(float64(heap()-before)/n, "B/entity")
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
