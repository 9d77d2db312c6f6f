package remoting

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/eventstream"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
)

// hearing is a process that notes what it is told.
type hearing func(pid *actor.PID, message any)

func (h hearing) SendUserMessage(pid *actor.PID, message any)   { h(pid, message) }
func (h hearing) SendSystemMessage(pid *actor.PID, message any) { h(pid, message) }
func (h hearing) Stop(pid *actor.PID)                           { h(pid, &actor.Stop{}) }

// received is a stream on which batches come in.
type received struct {
	grpc.ServerStream
	batches []*remote.MessageBatch
}

func (r *received) RecvMsg(m any) error {
	m.(*remote.RemoteMessage).MessageType = &remote.RemoteMessage_MessageBatch{MessageBatch: r.batches[0]}
	r.batches = r.batches[1:]
	return nil
}

// receiver is the stream of a peer to a node with a process "x".
func receiver(tb testing.TB, x actor.Process) (*received, *inbound) {
	tb.Helper()
	system := actor.NewActorSystem(LogTo(nil))
	system.ProcessRegistry.Address = "a:1"
	n := &Node{system: system, root: actor.NewRootContext(system, nil), families: actors.FamiliesOf(system)}
	system.ProcessRegistry.RegisterAddressResolver(n.resolve)
	system.ProcessRegistry.Add(x, "x")
	stream := &received{}
	return stream, &inbound{ServerStream: stream, node: n}
}

// batchOf is what a peer says to "x", in order.
func batchOf(tb testing.TB, messages ...proto.Message) *remote.MessageBatch {
	tb.Helper()
	b := &remote.MessageBatch{Targets: []*actor.PID{actor.NewPID("a:1", "x")}}
	types := map[string]int32{}
	for _, m := range messages {
		data, err := proto.Marshal(m)
		require.NoError(tb, err)
		name := string(proto.MessageName(m))
		if _, ok := types[name]; !ok {
			types[name] = int32(len(b.TypeNames))
			b.TypeNames = append(b.TypeNames, name)
		}
		b.Envelopes = append(b.Envelopes, &remote.MessageEnvelope{TypeId: types[name], MessageData: data})
	}
	return b
}

// What a peer sent to an actor comes in that order, whether it is mail, or who watches it, or
// for remote, which gets no more than the ends of actors that are watched.
func TestABatchIsDeliveredInOrderWhateverItHas(t *testing.T) {
	var got []string
	stream, in := receiver(t, hearing(func(pid *actor.PID, message any) {
		require.Equal(t, "a:1", pid.Address)
		if s, ok := message.(*wrapperspb.StringValue); ok {
			got = append(got, s.Value)
		} else {
			got = append(got, fmt.Sprintf("%T", message))
		}
	}))
	text := func(s string) proto.Message { return wrapperspb.String(s) }
	watcher := actor.NewPID("b:1", "w")
	ended := func(id string) proto.Message { return &actor.Terminated{Who: actor.NewPID("b:1", id)} }
	stream.batches = []*remote.MessageBatch{
		batchOf(t, text("1"), ended("p"), ended("q"), text("2"), &actor.Watch{Watcher: watcher}, text("3"),
			&actor.Unwatch{Watcher: watcher}, ended("r"), text("4"), &actor.DeadLetterResponse{}, &actor.PoisonPill{}, text("5")),
		batchOf(t, ended("s")),
		batchOf(t, text("6")),
	}
	for range 4 + 2 + 1 { // as often as it is cut, and at its end
		m := &remote.RemoteMessage{}
		require.NoError(t, in.RecvMsg(m))
		for _, e := range m.GetMessageBatch().Envelopes {
			require.Equal(t, "actor.Terminated", m.GetMessageBatch().TypeNames[e.TypeId])
			require.Equal(t, "a:1", m.GetMessageBatch().Targets[e.Target].Address)
			end := &actor.Terminated{}
			require.NoError(t, proto.Unmarshal(e.MessageData, end))
			got = append(got, "end of "+end.Who.Id)
		}
	}
	require.Empty(t, stream.batches)
	require.Nil(t, in.rest)
	require.Equal(t, []string{"1", "end of p", "end of q", "2", "*actor.Watch", "3", "*actor.Unwatch", "end of r", "4",
		"*actor.DeadLetterResponse", "*actor.PoisonPill", "5", "end of s", "6"}, got)
}

// One batch of plain mail.
func BenchmarkDeliver(b *testing.B) {
	stream, in := receiver(b, hearing(func(*actor.PID, any) {}))
	var mail []proto.Message
	for range maxBatch {
		mail = append(mail, wrapperspb.String("hello"))
	}
	full := batchOf(b, mail...)
	m := &remote.RemoteMessage{}
	b.ReportAllocs()
	for b.Loop() {
		again := &remote.MessageBatch{TypeNames: full.TypeNames, Targets: []*actor.PID{actor.NewPID("a:1", "x")}, Envelopes: append([]*remote.MessageEnvelope(nil), full.Envelopes...)}
		stream.batches = []*remote.MessageBatch{again}
		if err := in.RecvMsg(m); err != nil {
			b.Fatal(err)
		}
	}
}

// knowing is a Node, and what stands for its remote: that does as it is told when a link ends.
func knowing(remotely func()) *Node {
	n := &Node{system: actor.NewActorSystem(LogTo(nil)), events: eventstream.NewEventStream()}
	n.events.Subscribe(n.before)
	n.events.Subscribe(func(e any) {
		if _, ok := e.(*remote.EndpointTerminatedEvent); ok {
			remotely()
		}
	})
	n.events.Subscribe(n.after)
	return n
}

// The end of a link is told once remote knows, or has failed to know: to who watches links, and to
// users.
func TestTheEndOfALinkIsToldOnceRemoteKnows(t *testing.T) {
	for how, c := range map[string]struct {
		remotely func()
		after    time.Duration
	}{
		"it knows after a moment": {func() { time.Sleep(time.Second) }, time.Second},
		"it panics":               {func() { panic("a mailbox") }, 0},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := knowing(c.remotely)
				began := time.Now()
				watched, heard := map[string]time.Duration{}, map[string]time.Duration{}
				actors.WatchLinks(n.system, func(address string) { watched[address] = time.Since(began) })
				n.system.EventStream.Subscribe(func(e any) {
					if e, ok := e.(*remote.EndpointTerminatedEvent); ok {
						heard[e.Address] += time.Since(began)
					}
				})
				n.lost("b:1")
				time.Sleep(time.Hour)
				synctest.Wait()
				want := map[string]time.Duration{"b:1": c.after}
				require.Equal(t, want, watched)
				require.Equal(t, want, heard, "once")
			})
		})
	}
}

// What remote publishes goes on to the users, and they do not hold up remote. Dead letters come
// behind events.
func TestWhatRemotePublishesIsToldToUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := knowing(nil)
		var heard []any
		n.system.EventStream.Subscribe(func(e any) {
			heard = append(heard, e)
			time.Sleep(time.Hour)
		})
		began := time.Now()
		letter := &actor.DeadLetterEvent{PID: actor.NewPID("b:1", "x"), Message: "lost"}
		events := []any{"an event", letter}
		n.events.Publish(&remote.EndpointConnectedEvent{Address: "b:1"}) // before the link is made
		for _, e := range events {
			n.events.Publish(e)
		}
		require.Zero(t, time.Since(began))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		require.Equal(t, events, heard)
	})
}

// A send that never returns, as a subscriber of dead letters may cause, holds up the end for a time.
func TestTheEndWaitsForSendsForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x exit
		hangs := make(chan struct{})
		go x.pass(func() { <-hangs })
		synctest.Wait()
		began := time.Now()
		x.close()
		require.GreaterOrEqual(t, time.Since(began), leaveTimeout)
		require.False(t, x.pass(func() {}))
		close(hangs)
	})
}
