package reply_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/reply"
	"github.com/holdfast-go/holdfast/internal/wire"
)

type answer struct{ N int }

type secret struct{ N int } // registered nowhere

func TestMain(m *testing.M) {
	if err := wire.Register[answer](wire.Default, "reply.answer", nil); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// pair runs a test with two nodes: an actor on a answers what f says, with the
// middleware, and b asks it.
func pair(t *testing.T, f func(ctx actor.Context), test func(t *testing.T, a, b *actor.ActorSystem, pid *actor.PID)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer func() { time.Sleep(2 * time.Second) }() // protoactor's log of dead letters
		net := memnet.New()
		a, b := actor.NewActorSystem(), actor.NewActorSystem()
		net.Join(a, "a:1")
		net.Join(b, "b:1")
		for _, s := range []*actor.ActorSystem{a, b} {
			reply.Start(s)
			reply.Start(s) // a second time changes nothing
		}
		pid := a.Root.Spawn(actor.PropsFromFunc(f, actor.WithSenderMiddleware(reply.Middleware(a))))
		test(t, a, b, actor.NewPID(pid.Address, pid.Id))
	})
}

func deadLetters(s *actor.ActorSystem) *atomic.Int32 {
	var n atomic.Int32
	s.EventStream.Subscribe(func(e any) {
		if _, ok := e.(*actor.DeadLetterEvent); ok {
			n.Add(1)
		}
	})
	return &n
}

func TestGoValuesReachOtherNodes(t *testing.T) {
	respond := func(ctx actor.Context) {
		if m, ok := ctx.Message().(*wrapperspb.Int64Value); ok {
			switch m.Value {
			case 1:
				ctx.Respond(answer{1})
			case 2:
				ctx.Respond(&answer{2})
			case 3:
				ctx.Respond(wrapperspb.String("proto"))
			}
		}
	}
	pair(t, respond, func(t *testing.T, a, b *actor.ActorSystem, pid *actor.PID) {
		for n, want := range map[int64]any{1: answer{1}, 2: &answer{2}} {
			got, err := b.Root.RequestFuture(pid, wrapperspb.Int64(n), time.Second).Result()
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		got, err := b.Root.RequestFuture(pid, wrapperspb.Int64(3), time.Second).Result()
		require.NoError(t, err)
		require.Equal(t, "proto", got.(*wrapperspb.StringValue).Value, "what remote can send by itself is left to it")
		got, err = a.Root.RequestFuture(pid, wrapperspb.Int64(1), time.Second).Result()
		require.NoError(t, err)
		require.Equal(t, answer{1}, got, "and so is what stays on the node")
	})
}

func TestOrderSenderAndHeadersAreKept(t *testing.T) {
	var target atomic.Pointer[actor.PID]
	send := func(ctx actor.Context) {
		if m, ok := ctx.Message().(*wrapperspb.Int64Value); ok {
			for i := range int(m.Value) {
				e := &actor.MessageEnvelope{Message: answer{i}, Sender: ctx.Self()}
				e.SetHeader("k", "v")
				ctx.Send(target.Load(), e)
			}
		}
	}
	pair(t, send, func(t *testing.T, a, b *actor.ActorSystem, pid *actor.PID) {
		next := 0
		got := b.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(answer); ok {
				if m.N != next || ctx.Sender().GetId() != pid.Id || ctx.MessageHeader().Get("k") != "v" {
					t.Errorf("got %d from %v with %v, want %d", m.N, ctx.Sender(), ctx.MessageHeader(), next)
				}
				next++
			}
		}))
		target.Store(actor.NewPID(got.Address, got.Id))
		b.Root.Send(pid, wrapperspb.Int64(500))
		synctest.Wait()
		require.Equal(t, 500, next)
	})
}

// A header, a sender or a target that is not UTF-8 has its message refused where it is sent.
func TestInvalidUTF8IsADeadLetter(t *testing.T) {
	pair(t, func(ctx actor.Context) {
		if m, ok := ctx.Message().(*wrapperspb.Int64Value); ok {
			to := ctx.Sender()
			e := &actor.MessageEnvelope{Message: answer{1}}
			switch m.Value {
			case 1:
				e.Header = map[string]string{"k": "\xff"}
			case 2:
				e.Sender = actor.NewPID("a:1", "\xff")
			case 3:
				to = actor.NewPID(to.Address, "\xff")
			}
			ctx.Send(to, e)
		}
	}, func(t *testing.T, a, b *actor.ActorSystem, pid *actor.PID) {
		for n := int64(1); n <= 3; n++ {
			dead := deadLetters(a)
			got, err := b.Root.RequestFuture(pid, wrapperspb.Int64(n), time.Second).Result()
			synctest.Wait()
			require.NotZero(t, dead.Load(), n)
			if n == 3 {
				require.ErrorIs(t, err, actor.ErrTimeout)
				continue
			}
			require.NoError(t, err)
			require.Contains(t, got.(*wire.Nack).Detail, "not UTF-8")
		}
	})
}

func TestTheGatewayRefusesMailForOtherNodes(t *testing.T) {
	pair(t, func(actor.Context) {}, func(t *testing.T, a, b *actor.ActorSystem, pid *actor.PID) {
		dead := deadLetters(a)
		gateway := actor.NewPID("a:1", "holdfast/replies")
		for _, e := range []*wire.Envelope{
			{},
			{Type: "reply.answer", Codec: "json", Payload: []byte("{}"), Target: &wire.Address{Address: "b:1", Id: "x"}},
			{Type: "no.such", Codec: "json", Target: wire.AddressOf(pid)},
			{Type: "reply.answer", Codec: "json", Payload: []byte("{"), Target: wire.AddressOf(pid)},
		} {
			b.Root.Send(gateway, e)
		}
		b.Root.Send(gateway, wrapperspb.Int64(1)) // no envelope: ignored
		synctest.Wait()
		require.EqualValues(t, 4, dead.Load())
	})
}

// Who asks on another node is told at once that the answer can't travel, and what cures
// it, by its node or by that of who answered.
func TestTheAskerHearsThatItsAnswerCanNotTravel(t *testing.T) {
	respond := func(ctx actor.Context) {
		if _, ok := ctx.Message().(*wrapperspb.StringValue); ok {
			ctx.Respond(secret{1})
		}
	}
	pair(t, respond, func(t *testing.T, a, b *actor.ActorSystem, pid *actor.PID) {
		began, dead := time.Now(), deadLetters(a)
		got, err := b.Root.RequestFuture(pid, wrapperspb.String("x"), time.Minute).Result()
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second, "no timeout tells it")
		nack, ok := got.(*wire.Nack)
		require.True(t, ok, "%T", got)
		require.Equal(t, wire.Reason_REASON_UNKNOWN_TYPE, nack.Reason)
		require.Contains(t, nack.Detail, "on node a:1: reply_test.secret is not registered: give it to node.Types, or call remoting.Register[reply_test.secret](")

		synctest.Wait()
		require.EqualValues(t, 1, dead.Load())

		f := actor.NewFuture(b, time.Minute) // an answer of a type that b lacks
		b.Root.Send(actor.NewPID("b:1", "holdfast/replies"), &wire.Envelope{Type: "no.such", Codec: "json", Payload: []byte("1"), Target: wire.AddressOf(f.PID())})
		got, err = f.Result()
		require.NoError(t, err)
		nack, ok = got.(*wire.Nack)
		require.True(t, ok, "%T", got)
		require.Contains(t, nack.Detail, `on node b:1: no type is registered as "no.such"`)
	})
}
