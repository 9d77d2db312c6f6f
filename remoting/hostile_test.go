package remoting_test

import (
	"context"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/remoting"
)

// peer speaks remote's protocol by hand.
type peer struct {
	t      *testing.T
	conn   *grpc.ClientConn
	stream remote.Remoting_ReceiveClient
}

func connect(t *testing.T, addr string, opts ...grpc.CallOption) *peer {
	t.Helper()
	conn := must(grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(func() { cancel(); _ = conn.Close() })
	stream := must(remote.NewRemotingClient(conn).Receive(ctx, opts...))(t)
	return &peer{t, conn, stream}
}

func (p *peer) send(m *remote.RemoteMessage) { _ = p.stream.Send(m) }

func (p *peer) batch(b *remote.MessageBatch) {
	p.send(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: b}})
}

// mail is a batch of one message to echo.
func mail(addr, typeName string, data []byte) *remote.MessageBatch {
	return &remote.MessageBatch{
		TypeNames: []string{typeName},
		Targets:   []*actor.PID{actor.NewPID(addr, "echo")},
		Envelopes: []*remote.MessageEnvelope{{MessageData: data}},
	}
}

// ended waits for the node to end the stream.
func (p *peer) ended() error {
	for {
		if _, err := p.stream.Recv(); err != nil {
			return err
		}
	}
}

const stringValue = "google.protobuf.StringValue"

func TestUnknownTypesAreDroppedAndTheirStreamGoesOn(t *testing.T) {
	a, b := start(t), start(t)
	works(b, a)
	p := connect(t, a.addr)
	hello := must(proto.Marshal(wrapperspb.String("#0/1")))(t)
	m := mail(a.addr, "no.such.Type", []byte("anything"))
	m.TypeNames = append(m.TypeNames, stringValue)
	m.Envelopes = append(m.Envelopes, &remote.MessageEnvelope{TypeId: 1, MessageData: hello}, m.Envelopes[0])
	p.batch(m)
	require.Equal(t, "1", a.expect("burst "), "what came with it is delivered")
	p.batch(mail(a.addr, stringValue, hello))
	require.Equal(t, "1", a.expect("burst "), "and what comes after it")
	works(b, a)
	require.Equal(t, remoting.Stats{UnknownType: 2}, a.stats())
}

func TestTheSenderOfAnUnknownRequestIsTold(t *testing.T) {
	a, b := start(t), start(t)
	p := connect(t, a.addr)
	m := mail(a.addr, "no.such.Type", nil)
	m.Senders = []*actor.PID{actor.NewPID(b.addr, "gone")}
	m.Envelopes[0].Sender = 1
	p.batch(m)
	require.Equal(t, "gone *actor.DeadLetterResponse", b.expect("dead "))
}

func TestHostileInputEndsItsStreamOnly(t *testing.T) {
	a, b := start(t), start(t)
	works(b, a)
	works(a, b)
	good := must(proto.Marshal(wrapperspb.String("x")))(t)
	with := func(change func(*remote.MessageBatch)) func(*peer) {
		return func(p *peer) {
			m := mail(a.addr, stringValue, good)
			change(m)
			p.batch(m)
		}
	}
	attacks := map[string]func(*peer){
		"a type index that points nowhere":   with(func(m *remote.MessageBatch) { m.Envelopes[0].TypeId = 9 }),
		"a negative type index":              with(func(m *remote.MessageBatch) { m.Envelopes[0].TypeId = -1 }),
		"a target index that points nowhere": with(func(m *remote.MessageBatch) { m.Envelopes[0].Target = 9 }),
		"a sender index that points nowhere": with(func(m *remote.MessageBatch) { m.Envelopes[0].Sender = 9 }),
		"an unknown type and a bad target": with(func(m *remote.MessageBatch) {
			m.TypeNames[0] = "no.such.Type"
			m.Envelopes[0].Target = 9
		}),
		"a serializer that does not exist": with(func(m *remote.MessageBatch) { m.Envelopes[0].SerializerId = 77 }),
		"a watch by nobody of nobody": with(func(m *remote.MessageBatch) {
			m.Targets[0].Id = "nobody"
			m.TypeNames[0] = "actor.Watch"
			m.Envelopes[0].MessageData = nil
		}),
		"a termination of nobody": with(func(m *remote.MessageBatch) {
			m.TypeNames[0], m.Envelopes[0].MessageData = "actor.Terminated", nil
		}),
		"an empty connect request": func(p *peer) {
			p.send(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{
				ConnectRequest: &remote.ConnectRequest{ConnectionType: &remote.ConnectRequest_ServerConnection{}}}})
			m := mail(a.addr, stringValue, good)
			m.Envelopes[0].SerializerId = 77
			p.batch(m)
		},
		"a huge message": func(p *peer) { p.batch(mail(a.addr, stringValue, make([]byte, 70<<20))) },
		"bytes that are no message": func(p *peer) {
			*p = *connect(p.t, a.addr, grpc.ForceCodec(garbage{}))
			p.send(nil)
		},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			before := a.stats().Malformed
			p := connect(t, a.addr)
			attack(p)
			require.Error(t, p.ended())
			works(b, a)
			works(a, b)
			require.Equal(t, before+1, a.stats().Malformed)
		})
	}
}

// A message that is no value of its type costs itself alone, among mail of users and among
// messages of protoactor's.
func TestWhatCannotBeReadIsLostAlone(t *testing.T) {
	a := start(t)
	p := connect(t, a.addr)
	for i, others := range []string{stringValue, "actor.Unwatch"} {
		m := mail(a.addr, stringValue, text(t, "#0/2"))
		m.TypeNames = append(m.TypeNames, others, "no.such.Type")
		m.Targets = append(m.Targets, actor.NewPID(a.addr, actors.FamilyID("test/echo", "1")))
		m.Envelopes = append(m.Envelopes,
			&remote.MessageEnvelope{MessageData: []byte{0x0a, 1, 0xff}}, // text that is no UTF-8
			&remote.MessageEnvelope{MessageData: []byte{0xff}, Target: 1},
			&remote.MessageEnvelope{TypeId: 2, Target: 1},
			&remote.MessageEnvelope{MessageData: text(t, "#1/2")})
		if i > 0 {
			m.Envelopes = append(m.Envelopes, &remote.MessageEnvelope{TypeId: 1})
		}
		p.batch(m)
		require.Equal(t, "2", a.expect("burst "))
		require.Equal(t, remoting.Stats{Undecodable: 2 * uint64(i+1), UnknownType: uint64(i + 1)}, a.stats())
	}
	p.batch(mail(a.addr, stringValue, []byte{0xff}))
	m := mail(a.addr, "no.such.Type", nil)
	m.Targets[0].Id = "nobody"
	p.batch(m)
	works(start(t), a)
}

// garbage is a gRPC codec that writes a truncated field whatever it is given.
type garbage struct{}

func (garbage) Name() string                { return "proto" }
func (garbage) Marshal(any) ([]byte, error) { return []byte{0x0a, 0x7f}, nil }
func (garbage) Unmarshal([]byte, any) error { return nil }

// No node of ours writes JSON, and remote takes hours to read what is nested deep.
func TestNoJSONIsRead(t *testing.T) {
	a, b := start(t), start(t)
	works(b, a)
	p := connect(t, a.addr)
	m := mail(a.addr, "google.protobuf.ListValue", []byte(strings.Repeat("[", 5000)+strings.Repeat("1,", 1<<20)+"1"+strings.Repeat("]", 5000)))
	m.Envelopes[0].SerializerId = 1
	for _, address := range []string{a.addr, "elsewhere:1"} {
		m.Targets[0].Address = address
		p.batch(m)
		require.Equal(t, "echo *remoting.UnknownMessage", a.expect("dead "))
	}
	works(b, a)
	require.Equal(t, remoting.Stats{UnknownType: 2}, a.stats())
}

func TestNobodyReachesTheActorsThatKeepLinks(t *testing.T) {
	a, b := start(t), start(t)
	works(a, b)
	b.do("watch %s echo", a.addr)
	a.do("watch %s echo", b.addr)
	works(b, a)
	works(a, b)
	p := connect(t, a.addr)
	m := mail(a.addr, stringValue, nil)
	for _, id := range []string{"EndpointSupervisor", "EndpointSupervisor/$1"} {
		m.Targets[0].Id = id
		p.batch(m)
		require.Equal(t, id+" *wrapperspb.StringValue", a.expect("dead "))
	}
	for c := range 64 { // whatever their numbers are
		m.Targets[0].Id = "EndpointSupervisor/$" + string("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ~+"[c])
		p.batch(m)
	}
	last := must(proto.Marshal(wrapperspb.String("#0/1")))(t)
	p.batch(mail(a.addr, stringValue, last))
	require.Equal(t, "1", a.expect("burst "))
	works(a, b)
	works(b, a)
	require.Equal(t, remoting.Stats{Misaddressed: 66}, a.stats(), "and no watch has ended")
}

func TestCallsThatRemoteDoesNotImplementHarmNobody(t *testing.T) {
	a, b := start(t), start(t)
	p := connect(t, a.addr)
	c := remote.NewRemotingClient(p.conn)
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err := c.ListProcesses(ctx, &remote.ListProcessesRequest{})
	require.ErrorContains(t, err, "malformed")
	_, err = c.GetProcessDiagnostics(ctx, &remote.GetProcessDiagnosticsRequest{})
	require.ErrorContains(t, err, "malformed")
	works(b, a)
	require.Equal(t, remoting.Stats{Malformed: 2}, a.stats())
}

// Subscribers of the EventStream run where something is told. What they panic with ends
// neither a stream, nor what came on it, nor the process.
func TestSubscribersThatPanicBreakNoLink(t *testing.T) {
	a, b := start(t), start(t, "HOLDFAST_ANGRY=1")
	works(a, b)
	p := connect(t, b.addr)
	m := mail(b.addr, stringValue, text(t, "to nobody"))
	m.TypeNames = append(m.TypeNames, "no.such.Type")
	m.Targets = append(m.Targets, actor.NewPID(b.addr, "gone"), actor.NewPID("127.0.0.9:1", "echo"))
	m.Envelopes = []*remote.MessageEnvelope{
		{Target: 1, MessageData: text(t, "to nobody")},
		{TypeId: 1},
		{Target: 2, MessageData: text(t, "to another node")},
		{MessageData: text(t, "#0/1")},
	}
	p.batch(m)
	require.Equal(t, "1", b.expect("burst "), "what came with it is delivered")
	p.batch(mail(b.addr, stringValue, text(t, "#0/1")))
	require.Equal(t, "1", b.expect("burst "), "and what comes after it")
	require.Equal(t, remoting.Stats{UnknownType: 1, Misaddressed: 1}, b.stats())

	// An actor may end while the batch that it is in is delivered.
	m = mail(b.addr, stringValue, text(t, "the last"))
	m.Targets = append(m.Targets, actor.NewPID(b.addr, "once"))
	m.Envelopes = []*remote.MessageEnvelope{
		{Target: 1, MessageData: text(t, "the last")},
		{Target: 1, MessageData: text(t, "too late")},
		{MessageData: text(t, "#0/1")},
	}
	p.batch(m)
	require.Equal(t, "1", b.expect("burst "), "what came with it is delivered")

	b.do("go %s", a.addr) // a dead letter on its way out
	works(b, a)
}

// expectEnd waits until the process has ended.
func (p *proc) expectEnd() {
	for range p.lines {
	}
}
