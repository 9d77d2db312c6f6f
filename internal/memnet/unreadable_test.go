package memnet_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

func parse(t *testing.T, line string) (from, to string, i int) {
	t.Helper()
	_, err := fmt.Sscanf(line, "%s %s %d", &from, &to, &i)
	require.NoError(t, err)
	return from, to, i
}

// unreadable is a message that crosses the wire and then refuses to be read.
// Its protobuf type is made by hand, so that what arrives is of this Go type.
type unreadable struct {
	how string
}

var unreadableType = func() protoreflect.MessageDescriptor {
	str := func(s string) *string { return &s }
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: str("memnet_test.proto"), Package: str("memnet.test"), Syntax: str("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: str("Unreadable"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: str("how"), Number: func() *int32 { n := int32(1); return &n }(),
			Type:  descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}}}},
	}, nil)
	if err != nil {
		panic(err)
	}
	md := file.Messages().Get(0)
	if err := protoregistry.GlobalTypes.RegisterMessage(unreadableMessageType{dynamicpb.NewMessageType(md)}); err != nil {
		panic(err)
	}
	return md
}()

func (u *unreadable) Serialize() (remote.RootSerialized, error) {
	m := dynamicpb.NewMessage(unreadableType)
	m.Set(unreadableType.Fields().Get(0), protoreflect.ValueOfString(u.how))
	return &wireUnreadable{m}, nil
}

type unreadableMessageType struct{ protoreflect.MessageType }

func (t unreadableMessageType) New() protoreflect.Message {
	return &wireUnreadable{dynamicpb.NewMessage(unreadableType)}
}

// wireUnreadable is a message, its own reflection, and what remote calls
// RootSerialized.
type wireUnreadable struct{ *dynamicpb.Message }

func (w *wireUnreadable) ProtoReflect() protoreflect.Message   { return w }
func (w *wireUnreadable) Interface() protoreflect.ProtoMessage { return w }
func (w *wireUnreadable) Deserialize() (remote.RootSerializable, error) {
	if w.Get(unreadableType.Fields().Get(0)).String() == "panics" {
		panic("deserialize")
	}
	return nil, errors.New("no")
}
