package wire_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// An Encoded is, to who writes it, the message it was made of, as it was then.
func TestEncodedIsTheMessage(t *testing.T) {
	deep, err := structpb.NewStruct(map[string]any{"a": 1, "b": []any{"x", map[string]any{"c": nil}}})
	require.NoError(t, err)
	for _, m := range []proto.Message{wrapperspb.String("hello"), wrapperspb.String(""), deep} {
		was := proto.CloneOf(m)
		e := wire.Default.Plain(m, 1000)
		require.NotNil(t, e)
		if s, ok := m.(*wrapperspb.StringValue); ok {
			s.Value += "changed later"
		}
		require.Equal(t, string(proto.MessageName(m)), e.TypeName())
		require.Equal(t, proto.MessageName(m), proto.MessageName(e))
		require.Equal(t, proto.Size(was), proto.Size(e))
		require.Same(t, m, e.Interface())
		bytes, name, err := remote.Serialize(e, remote.DefaultSerializerID) // as remote does
		require.NoError(t, err)
		require.Equal(t, e.Payload(), bytes)
		_ = append(bytes, "more"...)
		after, err := proto.MarshalOptions{}.MarshalAppend([]byte("before "), e)
		require.NoError(t, err)
		require.Equal(t, "before "+string(e.Payload()), string(after))
		back, err := remote.Deserialize(bytes, name, remote.DefaultSerializerID)
		require.NoError(t, err)
		require.True(t, proto.Equal(was, back.(proto.Message)), "%v", back)
	}
}

type registeredProto struct{ *wrapperspb.StringValue }

// What needs an Envelope, or can't be sent at all, does not travel as it is.
func TestPlainRefuses(t *testing.T) {
	require.NoError(t, wire.Register[registeredProto](wire.Default, "wire_test.registeredProto", nil))
	for name, m := range map[string]any{
		"a Go value":          struct{}{},
		"nil":                 nil,
		"nil message":         (*wrapperspb.StringValue)(nil),
		"a registered type":   registeredProto{wrapperspb.String("x")},
		"protoactor's own":    &actor.PoisonPill{},
		"another of its own":  &actor.Terminated{Who: actor.NewPID("a", "b")},
		"too large":           wrapperspb.String(string(make([]byte, 1001))),
		"no text":             wrapperspb.String("\xff"),
		"it serializes alone": root{wrapperspb.String("x")},
	} {
		for range 2 { // also once the type is known
			require.Nil(t, wire.Default.Plain(m, 1000), name)
		}
	}
	require.NotNil(t, wire.Default.Plain(wrapperspb.String(string(make([]byte, 990))), 1000))
}

// Types are registered while others are learned.
func TestPlainWhileTypesAreRegistered(t *testing.T) {
	for range 100 {
		r := wire.NewRegistry()
		var all sync.WaitGroup
		all.Go(func() { require.NoError(t, wire.Register[registeredProto](r, "one", nil)) })
		all.Go(func() { require.NoError(t, wire.Register[int](r, "two", nil)) })
		for _, m := range []proto.Message{wrapperspb.String("x"), wrapperspb.Bool(true), wrapperspb.Int64(1)} {
			all.Go(func() {
				require.NotNil(t, r.Plain(m, 1000))
				require.Nil(t, r.Plain(registeredProto{wrapperspb.String("x")}, 1000))
			})
		}
		all.Wait()
		for _, m := range []any{registeredProto{}, 1} {
			require.NoError(t, r.Overlooked(m)) // it knows them
		}
	}
}

type root struct{ *wrapperspb.StringValue }

func (r root) Serialize() (remote.RootSerialized, error) { return nil, nil }

func TestFits(t *testing.T) {
	most, over := strings.Repeat("x", store.MaxName), strings.Repeat("x", store.MaxName+1)
	for _, msg := range []any{
		nil, "text", &wire.Candidate{}, &wire.Envelope{Name: over},
		&wire.Candidate{From: &wire.Node{Address: most, Incarnation: most}, Id: most},
		&wire.Probe{From: &wire.Node{Address: most, Incarnation: most}},
	} {
		require.True(t, wire.Fits(msg), "%T", msg)
	}
	for _, msg := range []any{
		&wire.Candidate{Id: over}, &wire.Offer{Id: over},
		&wire.Candidate{From: &wire.Node{Address: over}}, &wire.Probe{From: &wire.Node{Incarnation: over}},
		&wire.Marker{From: &wire.Node{Incarnation: over}}, &wire.Report{From: &wire.Node{Address: over}},
	} {
		require.False(t, wire.Fits(msg), "%T", msg)
	}
}

func TestAnOfferSurvivesTheWay(t *testing.T) {
	o := lease.Offer{Name: "x", Owner: lease.Owner{ID: "n", Incarnation: "i", Address: "a:1"}, Session: 7, TTL: 2 * time.Second,
		Nonce: 1 << 63, Lifetime: time.Second}
	m := wire.OfferOf(o, wire.NodeOf(o.Owner), 9)
	require.Equal(t, uint64(9), m.Number)
	require.Equal(t, o, m.Lease())
	require.Equal(t, lease.Offer{}, (&wire.Offer{}).Lease())
}

// All that Protocol Buffers refuse as text is refused before it goes to remote, and all
// that they take is not.
func TestText(t *testing.T) {
	pid := func(address, id string) *actor.PID { return actor.NewPID(address, id) }
	for what, c := range map[string]struct {
		e  actor.MessageEnvelope
		ok bool
	}{
		"nothing": {actor.MessageEnvelope{}, true},
		"text": {actor.MessageEnvelope{Header: map[string]string{"ключ": "值\x00"},
			Sender: pid("a:1", "é")}, true},
		"a header":        {actor.MessageEnvelope{Header: map[string]string{"a": "b", "k": "\xff"}}, false},
		"a header's name": {actor.MessageEnvelope{Header: map[string]string{"a": "b", "\xed\xa0\x80": "v"}}, false},
		"a sender":        {actor.MessageEnvelope{Sender: pid("a:1", "\xc3")}, false},
		"its address":     {actor.MessageEnvelope{Sender: pid("\xff", "x")}, false},
	} {
		c.e.Message = wrapperspb.String("x")
		e, err := wire.Default.Envelop(&c.e, 1000)
		if !c.ok {
			require.ErrorIs(t, err, wire.ErrUnencodable, what)
			continue
		}
		require.NoError(t, err, what)
		_, _, _, err = wire.Default.Encode(e, 1000)
		require.NoError(t, err, what)
	}
	require.Equal(t, "on node a:1: no \uFFFD text", wire.Why(errors.New("no \xff text"), "a:1"))
}

// What a message's headers and sender take is counted and checked without allocating.
func TestHeadersCostNoMemory(t *testing.T) {
	e := &actor.MessageEnvelope{Header: map[string]string{"k": "v"}, Sender: actor.NewPID("a:1", "x"), Message: "m"}
	require.Equal(t, 1+1+8+3+1, actors.HeaderSize(e))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = actors.HeaderSize(e), wire.CheckText(e) }))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
