package remoting_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/remoting"
)

// raw is a gRPC codec that writes bytes as they are.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) ([]byte, error) {
	if b, ok := v.([]byte); ok {
		return b, nil
	}
	return nil, errors.New("no bytes")
}
func (raw) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// Whatever bytes a peer sends as a message on its stream, the node goes on hearing
// from another peer, whose link stays up.
func FuzzStream(f *testing.F) {
	config := must(remoting.Configure("127.0.0.1", 0, remoting.WithPlaintext()))(f)
	system := actor.NewActorSystem(remoting.LogTo(nil), actor.WithDeadLetterThrottleCount(0))
	node, err := remoting.Start(system, config) // in this process, whose coverage leads the fuzzer
	require.NoError(f, err)
	heard := make(chan string, 1)
	_, err = system.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*wrapperspb.StringValue); ok {
			heard <- m.Value
		}
	}), "echo")
	require.NoError(f, err)
	f.Cleanup(func() { node.Shutdown(true); system.Shutdown(); time.Sleep(1100 * time.Millisecond) })
	addr := node.Address()
	conn := must(grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())))(f)
	f.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	f.Cleanup(cancel)
	good := must(remote.NewRemotingClient(conn).Receive(ctx))(f)
	value := must(proto.Marshal(wrapperspb.String("x")))(f)
	for _, m := range []*remote.MessageBatch{
		mail(addr, stringValue, value),
		mail(addr, "no.such.Type", value),
		mail("elsewhere:1", stringValue, value),
		{TypeNames: []string{"actor.Watch", "actor.Terminated"}, Targets: []*actor.PID{actor.NewPID(addr, "nobody")}, Senders: []*actor.PID{{}},
			Envelopes: []*remote.MessageEnvelope{{TypeId: 1, Sender: 1}, {SerializerId: 1, Target: -1}}},
		{Envelopes: []*remote.MessageEnvelope{{}}},
	} {
		b, err := proto.Marshal(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: m}})
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte{0x0a, 0x7f})
	n := 0
	f.Fuzz(func(t *testing.T, b []byte) {
		// What peers may do, such as to stop an actor, is no fault: the actor that is
		// asked below is not to be found by chance.
		m := &remote.RemoteMessage{}
		if proto.Unmarshal(b, m) == nil {
			for _, target := range m.GetMessageBatch().GetTargets() {
				if target.GetId() == "echo" {
					return
				}
			}
		}
		one, stop := context.WithTimeout(ctx, 20*time.Second)
		defer stop()
		stream, err := conn.NewStream(one, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/remote.Remoting/Receive", grpc.ForceCodec(raw{}))
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(b))
		_ = stream.CloseSend()
		for err == nil { // until the node has ended it
			var answer []byte
			err = stream.RecvMsg(&answer)
		}
		require.NoError(t, one.Err(), "the stream was not ended")

		n++
		hello := must(proto.Marshal(wrapperspb.String(fmt.Sprint(n))))(t)
		require.NoError(t, good.Send(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: mail(addr, stringValue, hello)}}))
		select {
		case got := <-heard:
			require.Equal(t, fmt.Sprint(n), got)
		case <-one.Done():
			require.Fail(t, "the other peer is not heard any more")
		}
	})
}
