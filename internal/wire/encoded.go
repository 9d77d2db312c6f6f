package wire

import (
	"errors"
	"reflect"
	"strings"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"
)

// Encoded is a Protocol Buffers message together with its bytes: the node that sends it
// need not write it again, can't find it unfit, and does not see what its owner
// does to it meanwhile. To everybody else it is the message.
type Encoded struct {
	protoreflect.Message
	payload []byte
}

// small is an Encoded and its bytes in one piece.
type small struct {
	Encoded
	room [24]byte
}

// Plain encodes a message that may travel to a peer as it is, in no Envelope; nil if
// it may not: a registered type, one of protoactor's own, or one that Encode
// refuses. No payload is longer than limit, which is above 0.
func (r *Registry) Plain(msg any, limit int) *Encoded {
	m, ok := msg.(proto.Message)
	if !ok || r.types.Load().byType[reflect.TypeOf(msg)] != nil {
		return nil
	}
	switch msg.(type) {
	case remote.RootSerializable, remote.RootSerialized:
		return nil
	}
	e, err := encodePlain(m, limit)
	if err != nil {
		return nil
	}
	return e
}

func encodePlain(m proto.Message, limit int) (e *Encoded, err error) {
	defer containProto(m, &err)
	name, size, err := measure(m, limit)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(name, "actor.") || strings.HasPrefix(name, "remote.") || strings.HasPrefix(name, "cluster.") {
		return nil, errors.New("one of protoactor's own")
	}
	if size <= len(small{}.room) {
		s := &small{}
		e, s.payload = &s.Encoded, s.room[:0]
	} else {
		e = &Encoded{payload: make([]byte, 0, size)}
	}
	e.Message = m.ProtoReflect()
	e.payload, err = measured.MarshalAppend(e.payload, m)
	return e, err
}

// TypeName returns the message's name.
func (e *Encoded) TypeName() string { return string(e.Descriptor().FullName()) }

// Payload returns the bytes.
func (e *Encoded) Payload() []byte { return e.payload }

// ProtoReflect implements proto.Message.
func (e *Encoded) ProtoReflect() protoreflect.Message { return e }

// ProtoMethods has the bytes taken for what they are.
func (e *Encoded) ProtoMethods() *protoiface.Methods { return &methods }

var methods = protoiface.Methods{
	Flags: protoiface.SupportMarshalDeterministic,
	// No Size: room would be made for a copy. The size is then that of what Marshal
	// returns.
	Marshal: func(in protoiface.MarshalInput) (protoiface.MarshalOutput, error) {
		p := in.Message.(*Encoded).payload
		if in.Buf == nil {
			return protoiface.MarshalOutput{Buf: p[:len(p):len(p)]}, nil // nobody writes to it, but may append
		}
		return protoiface.MarshalOutput{Buf: append(in.Buf, p...)}, nil
	},
	CheckInitialized: func(protoiface.CheckInitializedInput) (protoiface.CheckInitializedOutput, error) {
		return protoiface.CheckInitializedOutput{}, nil
	},
}
