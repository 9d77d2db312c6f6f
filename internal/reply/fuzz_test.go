package reply_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/reply"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/remoting"
)

// Whatever envelope a peer sends to the gateway, and whatever subscribers of dead
// letters do, it goes on handing over those that are well, stops nobody, and sends nothing to any other node.
func FuzzGateway(f *testing.F) {
	system := actor.NewActorSystem(remoting.LogTo(nil), actor.WithDeadLetterThrottleCount(0))
	reply.Start(system)
	system.EventStream.Subscribe(func(e any) {
		switch e.(type) {
		case *actor.DeadLetterEvent, *actor.SupervisorEvent:
			panic("a subscriber's bug")
		}
	})
	got := make(chan int, 1)
	taker, err := system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
		if m, ok := ctx.Message().(answer); ok {
			got <- m.N
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
	for _, e := range []*wire.Envelope{
		{Type: "reply.answer", Codec: "json", Payload: []byte(`{"N":1}`), Target: &wire.Address{Address: "nonhost", Id: "nobody"}},
		{Type: "actor.PoisonPill", Codec: "proto", Target: &wire.Address{Address: "nonhost", Id: "taker"}},
		{Type: "actor.Stop", Codec: "proto", Target: &wire.Address{Address: "nonhost", Id: "holdfast/replies"}},
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
	n := 0
	f.Fuzz(func(t *testing.T, b []byte) {
		e := &wire.Envelope{}
		if proto.Unmarshal(b, e) != nil {
			return
		}
		if e.Target.GetId() == "taker" && e.Codec == "json" {
			return // it may well be an answer
		}
		system.Root.Send(gateway, e)
		n++
		system.Root.Send(gateway, &wire.Envelope{Type: "reply.answer", Codec: "json", Payload: fmt.Appendf(nil, `{"N":%d}`, n), Target: wire.AddressOf(taker)})
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
