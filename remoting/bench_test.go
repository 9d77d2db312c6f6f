package remoting_test

import (
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/compared"
	"github.com/holdfast-go/holdfast/remoting"
)

// BenchmarkAgainstStock compares two nodes of this package with two of protoactor's remote
// as it comes: over loopback, both ends in this process.
func BenchmarkAgainstStock(b *testing.B) {
	var wg sync.WaitGroup
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		m, ok := ctx.Message().(*wrapperspb.StringValue)
		switch {
		case !ok:
		case ctx.Sender() != nil:
			ctx.Respond(m)
		default:
			wg.Done()
		}
	})
	// pair returns a system, and an actor on another.
	pair := func(start func(*actor.ActorSystem)) (here *actor.ActorSystem, there *actor.PID) {
		here, other := actor.NewActorSystem(remoting.LogTo(nil)), actor.NewActorSystem(remoting.LogTo(nil))
		start(here)
		start(other)
		pid := other.Root.Spawn(props)
		there = actor.NewPID(pid.Address, pid.Id)
		_, err := here.Root.RequestFuture(there, wrapperspb.String("hello"), 10*time.Second).Result()
		require.NoError(b, err)
		return here, there
	}
	hardened, hardenedPID := pair(func(system *actor.ActorSystem) {
		config := must(remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext()))(b)
		n := must(remoting.Start(system, config))(b)
		b.Cleanup(func() { n.Shutdown(false) })
	})
	stock, stockPID := pair(func(system *actor.ActorSystem) {
		r := remote.NewRemote(system, remote.Configure("127.0.0.1", 0))
		r.Start()
		b.Cleanup(func() { r.Shutdown(false) })
	})
	msg := wrapperspb.String("hello")
	b.Run("tell", func(b *testing.B) {
		send := func(system *actor.ActorSystem, to *actor.PID) func(int) {
			return compared.Flood(func() { system.Root.Send(to, msg) }, wg.Add, wg.Wait)
		}
		compared.WithPlain(b, send(hardened, hardenedPID), send(stock, stockPID))
	})
	b.Run("ask", func(b *testing.B) {
		ask := func(system *actor.ActorSystem, to *actor.PID) func(int) {
			return compared.Callers(b, func() error {
				_, err := system.Root.RequestFuture(to, msg, 10*time.Second).Result()
				return err
			})
		}
		compared.WithPlain(b, ask(hardened, hardenedPID), ask(stock, stockPID))
	})
}
