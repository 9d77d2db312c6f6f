package reply_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/reply"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/remoting"
)

// Whatever envelope a peer sends to the gateway, it goes on handing over those that
// are well, and sends nothing to any other node.
func FuzzGateway(f *testing.F) {
	system := actor.NewActorSystem(remoting.LogTo(nil), actor.WithDeadLetterThrottleCount(0))
	reply.Start(system)
	got := make(chan any, 1)
	taker, err := system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
		if m, ok := ctx.Message().(*wrapperspb.UInt64Value); ok {
			got <- m.Value
		}
	}), "taker")
	require.NoError(f, err)
	elsewhere := make(chan string, 100)
	system.ProcessRegistry.RegisterAddressResolver(func(pid *actor.PID) (actor.Process, bool) {
		select {
		case elsewhere <- pid.Address:
		default:
		}
		return system.DeadLetter, true
	})
	f.Cleanup(func() { system.Shutdown(); time.Sleep(1100 * time.Millisecond) })
	value, err := proto.Marshal(wrapperspb.UInt64(0))
	require.NoError(f, err)
	for _, e := range []*wire.Envelope{
		{Type: "google.protobuf.UInt64Value", Codec: "proto", Payload: value, Target: &wire.Address{Address: "nonhost", Id: "nobody"}},
		{Type: "reply.answer", Codec: "json", Payload: []byte(`{"N":1}`), Target: &wire.Address{Address: "nonhost", Id: "taker"}, Sender: &wire.Address{Address: "x:1", Id: "y"}},
		{Type: "actor.Watch", Codec: "proto", Target: &wire.Address{Address: "nonhost", Id: "nobody"}},
		{Type: "no.such", Codec: "xml", Hops: 1 << 31, Target: &wire.Address{Address: "other:1", Id: "taker", RequestId: 1 << 31}},
		{},
	} {
		b, err := proto.Marshal(e)
		require.NoError(f, err)
		f.Add(b)
	}
	gateway := actor.NewPID("nonhost", "holdfast/replies")
	n := uint64(0)
	f.Fuzz(func(t *testing.T, b []byte) {
		e := &wire.Envelope{}
		if proto.Unmarshal(b, e) != nil {
			return
		}
		if id := e.Target.GetId(); id == "holdfast/replies" || id == "taker" {
			e.Target.Id = "nobody" // what stops an actor may be sent, and stops it
		}
		system.Root.Send(gateway, e)
		n++
		payload, err := proto.Marshal(wrapperspb.UInt64(n))
		require.NoError(t, err)
		system.Root.Send(gateway, &wire.Envelope{Type: "google.protobuf.UInt64Value", Codec: "proto", Payload: payload, Target: wire.AddressOf(taker)})
		select {
		case v := <-got:
			require.Equal(t, n, v)
		case <-time.After(20 * time.Second):
			require.Fail(t, "the gateway is dead", "%v", e)
		}
		select {
		case address := <-elsewhere:
			sender := e.Sender.GetAddress() // the dead letters answer a request
			require.Equal(t, sender, address, "%v", e)
		default:
		}
	})
}
