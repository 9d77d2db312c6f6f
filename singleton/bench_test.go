package singleton_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/compared"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// counting handles messages until it has seen the last, and answers requests.
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

// runs starts a manager of the benchmarks' singleton, which ends with them.
func runs(b *testing.B, system *actor.ActorSystem, store store.Store, id, address string, props *actor.Props) *singleton.Manager {
	keeper, err := lease.NewKeeper(store, lease.Config{ID: id, Address: address, TTL: time.Minute})
	require.NoError(b, err)
	m, err := singleton.Start(system, keeper, "bench", props, singleton.WithBuffer(1<<20, hosting.DropNewest))
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(b, m.Stop(ctx))
		require.NoError(b, keeper.Close(ctx))
	})
	return m
}

// BenchmarkTell compares a message to the singleton's PID, on the node that hosts it, with
// one to a plain actor, sending and handling included.
func BenchmarkTell(b *testing.B) {
	for _, work := range []time.Duration{0, time.Microsecond} {
		b.Run(fmt.Sprint("handler=", work), func(b *testing.B) {
			var wg sync.WaitGroup
			props := actor.PropsFromProducer(func() actor.Actor { return &counting{&wg, work} })
			system := actor.NewActorSystem(remoting.LogTo(nil))
			m := runs(b, system, memory.New(), "bench", "", props)
			plain := system.Root.Spawn(props)
			msg := wrapperspb.String("hello")
			wg.Add(1)
			system.Root.Send(m.PID(), msg)
			wg.Wait()
			run := func(to *actor.PID) func(n int) {
				return func(n int) {
					wg.Add(n)
					for range n {
						system.Root.Send(to, msg)
					}
					wg.Wait()
				}
			}
			compared.WithPlain(b, run(m.PID()), run(plain))
		})
	}
}

// BenchmarkRemote compares a singleton on another node, over loopback, with an actor that
// was spawned there, reached by its PID: both ends in this process.
func BenchmarkRemote(b *testing.B) {
	var wg sync.WaitGroup
	props := actor.PropsFromProducer(func() actor.Actor { return &counting{wg: &wg} })
	store := memory.New()
	node := func() *actor.ActorSystem {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		config, err := remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext())
		require.NoError(b, err)
		n, err := remoting.Start(system, config)
		require.NoError(b, err)
		b.Cleanup(func() { n.Shutdown(false) })
		return system
	}
	there, here := node(), node()
	host := runs(b, there, store, "host", there.Address(), props)
	for host.Status().Phase != singleton.Active {
		time.Sleep(time.Millisecond)
	}
	m := runs(b, here, store, "other", here.Address(), props)
	msg := wrapperspb.String("hello")
	plain := there.Root.Spawn(props)
	bare := actor.NewPID(plain.Address, plain.Id)
	ctx := context.Background()
	_, err := singleton.Ask[*wrapperspb.StringValue](ctx, m, msg)
	require.NoError(b, err)
	b.Run("tell", func(b *testing.B) {
		send := func(to *actor.PID) func(int) {
			return compared.Flood(func() { here.Root.Send(to, msg) }, wg.Add, wg.Wait)
		}
		compared.WithPlain(b, send(m.PID()), send(bare))
	})
	b.Run("ask", func(b *testing.B) {
		compared.WithPlain(b, compared.Callers(b, func() error {
			_, err := singleton.Ask[*wrapperspb.StringValue](ctx, m, msg)
			return err
		}), compared.Callers(b, func() error {
			_, err := here.Root.RequestFuture(bare, msg, 10*time.Second).Result()
			return err
		}))
	})
}
