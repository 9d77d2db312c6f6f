package wire_test

import (
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/wire"
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
