package remoting_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/remoting"
)

func text(t *testing.T, s string) []byte {
	t.Helper()
	data := must(proto.Marshal(wrapperspb.String(s)))(t)
	return data
}

// A link is made, given up when it breaks, and made anew, whatever subscribers of the
// EventStream do when they hear of it: those that came before Start, and those that came after.
func TestSubscribersKeepNoLinkDown(t *testing.T) {
	for _, how := range []string{"panic", "hang"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a, b := start(t, "HOLDFAST_SUBSCRIBER="+how), start(t)
			works(a, b)
			require.NoError(t, b.cmd.Process.Kill())
			b.expectEnd()
			require.Equal(t, b.addr, a.expect("broke "))
			_, port, err := net.SplitHostPort(b.addr)
			require.NoError(t, err)
			again := start(t, "HOLDFAST_PORT="+port)
			answered(a, again)
		})
	}
}

// The end of a link that is given up is told once: the one that follows is not given up for it.
func TestALinkThatIsGivenUpEndsNoOther(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	works(a, b)
	for range 5 {
		a.do("cut %s", b.addr)
		require.Equal(t, "1", a.expect("told "))
	}
	works(a, b)
}

// answered asks until there is an answer.
func answered(from, to *proc) {
	from.t.Helper()
	for end := time.Now().Add(deadline); ; {
		from.do("ask %s hello", to.addr)
		for wait := time.After(500 * time.Millisecond); wait != nil; {
			select {
			case line := <-from.lines:
				if line == "answer re:hello" {
					return
				}
				require.Regexp(from.t, "^(dead|broke|answer) ", line)
			case <-wait:
				wait = nil
			}
		}
		require.True(from.t, time.Now().Before(end), "nothing is answered")
	}
}

// A middleware of users for what Root sends sees what users send, and neither what remote
// tells its own actors, which can't read what it wraps, nor mail that came in.
func TestAMiddlewareOfRootBreaksNoLink(t *testing.T) {
	a, b := start(t, "HOLDFAST_MIDDLEWARE=1"), start(t, "HOLDFAST_MIDDLEWARE=1")
	works(a, b)
	works(b, a)
	b.do("family %s 10", a.addr)
	require.Equal(t, "10", a.expect("burst "))
}

// What a batch has of protoactor's own words changes nothing for the mail that it has: dead
// letters' subscribers that panic, or do not return, hold up no link.
func TestSubscribersBreakNoLinkBesideWordsOfProtoactor(t *testing.T) {
	for _, env := range []string{"HOLDFAST_ANGRY=1", "HOLDFAST_SUBSCRIBER=deaf"} {
		a := start(t, env)
		p := connect(t, a.addr)
		watch := must(proto.Marshal(&actor.Watch{Watcher: actor.NewPID("127.0.0.1:1", "watcher")}))(t)
		m := mail(a.addr, stringValue, nil)
		m.TypeNames = append(m.TypeNames, "actor.DeadLetterResponse", "actor.Watch")
		m.Targets = append(m.Targets, actor.NewPID(a.addr, "gone"))
		m.Envelopes = []*remote.MessageEnvelope{
			{TypeId: 1},
			{MessageData: text(t, "#0/2")},
			{Target: 1, MessageData: text(t, "too late")},
			{TypeId: 2, Target: 1, MessageData: watch},
			{TypeId: 1, Target: 1},
			{MessageData: text(t, "#1/2")},
		}
		p.batch(m)
		require.Equal(t, "2", a.expect("burst "), env)
		require.Zero(t, a.stats(), env)
	}
}

// A type's own code that panics when it is read costs its message alone.
func TestATypeThatPanicsIsLostAlone(t *testing.T) {
	a := start(t)
	p := connect(t, a.addr)
	for i, others := range []string{stringValue, "actor.Unwatch"} {
		m := mail(a.addr, stringValue, text(t, "#0/1"))
		m.TypeNames = append(m.TypeNames, brittleType, others)
		m.Envelopes = []*remote.MessageEnvelope{{TypeId: 1}, {TypeId: 1, MessageData: text(t, "nothing")}, {MessageData: text(t, "#0/1")}, {TypeId: 2}}[:3+i]
		p.batch(m)
		require.Equal(t, "1", a.expect("burst "))
		require.Equal(t, remoting.Stats{Undecodable: 2 * uint64(i+1)}, a.stats())
	}
}

const brittleType = "holdfast.test.Brittle"

// brittle is a user's message whose root form can't be read: it panics, or is nothing.
type brittle struct{ protoreflect.Message }

func (b *brittle) ProtoReflect() protoreflect.Message { return brittleMessage{b.Message} }

// Deserialize implements remote.RootSerialized.
func (b *brittle) Deserialize() (remote.RootSerializable, error) {
	if len(b.GetUnknown()) > 0 {
		return nil, nil
	}
	panic("a bug in Deserialize")
}

type brittleMessage struct{ protoreflect.Message }

func (m brittleMessage) Interface() protoreflect.ProtoMessage { return &brittle{m.Message} }

type brittleTypes struct{ protoreflect.MessageType }

func (t brittleTypes) New() protoreflect.Message { return brittleMessage{t.MessageType.New()} }

func init() {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("holdfast_test_brittle.proto"), Package: proto.String("holdfast.test"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Brittle")}},
	}, nil)
	if err != nil {
		panic(err)
	}
	if err := protoregistry.GlobalTypes.RegisterMessage(brittleTypes{dynamicpb.NewMessageType(file.Messages().Get(0))}); err != nil {
		panic(err)
	}
}

// A message that this process lacks the type of is the same dead letter whoever it was for.
func TestUnknownTypesToAFamilyThatIsNotServed(t *testing.T) {
	a := start(t)
	p := connect(t, a.addr)
	for _, m := range []*remote.MessageBatch{mail(a.addr, "no.such.Type", nil), mail(a.addr, stringValue, []byte{0xff})} {
		m.Targets[0].Id = actors.FamilyID("test/none", "1")
		p.batch(m)
		require.Equal(t, m.Targets[0].Id+" *remoting.UnknownMessage", a.expect("dead "))
	}
	require.Equal(t, remoting.Stats{UnknownType: 1, Undecodable: 1}, a.stats())
}

// No connection is tried to what is too long for an address: that alone would keep a
// processor busy, and a peer may say what it likes of where it is.
func TestWhatCanBeNoAddressIsNotConnectedTo(t *testing.T) {
	a, b := start(t), start(t)
	long := "127.0.0.1:" + strings.Repeat("0", 10<<10)
	a.do("ask %s hello", long)
	require.Contains(t, a.expect("answer "), "dead letter")
	a.do("watch %s echo", long)
	require.Equal(t, "echo NotFound", a.expect("terminated "))
	works(a, b)
	require.Equal(t, remoting.Stats{Unsendable: 2}, a.stats())
}

// Messages to ids that a family serves come in the order in which all were sent. What
// it does not serve is a dead letter, and no peer can use the mark by which it is
// found.
func TestFamiliesOfIDs(t *testing.T) {
	a, b := start(t), start(t)
	b.do("family %s 1000", a.addr)
	require.Equal(t, "1000", a.expect("burst "))
	b.do("family %s 0", a.addr)
	require.Equal(t, actors.FamilyID("test/echo", "nobody")+" *wrapperspb.StringValue", a.expect("dead "))

	bytes := must(proto.Marshal(wrapperspb.String("x")))(t)
	p := connect(t, a.addr)
	m := mail("holdfast:direct", stringValue, bytes)
	m.Targets[0].Id = actors.FamilyID("test/echo", "1")
	p.batch(m)
	require.Equal(t, actors.FamilyID("test/echo", "1")+" *wrapperspb.StringValue", a.expect("dead "))
	require.Equal(t, remoting.Stats{Misaddressed: 1}, a.stats())
	works(b, a)
}
