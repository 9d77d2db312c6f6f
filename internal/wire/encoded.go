package wire

import (
	"errors"
	"maps"
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
	if !ok {
		return nil
	}
	e, err := r.encodePlain(m, limit)
	if err != nil {
		return nil
	}
	return e
}

var errNotPlain = errors.New("may not travel as it is")

func (r *Registry) encodePlain(m proto.Message, limit int) (e *Encoded, err error) {
	defer containProto(m, &err)
	v := m.ProtoReflect()
	if !v.IsValid() || !r.plain(m, v) {
		return nil, errNotPlain
	}
	name := string(v.Descriptor().FullName())
	if strings.HasPrefix(name, "actor.") || strings.HasPrefix(name, "remote.") || strings.HasPrefix(name, "cluster.") {
		return nil, errNotPlain // one of protoactor's own
	}
	size := proto.Size(m)
	switch {
	case size > limit:
		return nil, ErrTooLarge
	case size <= len(small{}.room):
		s := &small{}
		e, s.payload = &s.Encoded, s.room[:0]
	default:
		e = &Encoded{payload: make([]byte, 0, size)}
	}
	e.Message = v
	e.payload, err = measured.MarshalAppend(e.payload, m)
	return e, err
}

// plain reports whether messages of m's type may travel as they are, as far as the type says: it is
// not registered, encodes itself by no other means, and does not only embed a message. What it
// found is kept for each type: to find it costs a tenth of an encoding.
func (r *Registry) plain(m proto.Message, v protoreflect.Message) bool {
	typ := reflect.TypeOf(m)
	known := r.types.Load()
	if is, ok := known.plain[typ]; ok {
		return is
	}
	is := known.byType[typ] == nil && ofItself(m, v)
	switch m.(type) {
	case remote.RootSerializable, remote.RootSerialized:
		is = false
	}
	next := &types{known.byName, known.byType, maps.Clone(known.plain)}
	if next.plain == nil {
		next.plain = map[reflect.Type]bool{}
	}
	next.plain[typ] = is
	r.types.CompareAndSwap(known, next) // otherwise it is found again
	return is
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
			return protoiface.MarshalOutput{Buf: p[:len(p):len(p)]}, nil // no one writes to it, but may append
		}
		return protoiface.MarshalOutput{Buf: append(in.Buf, p...)}, nil
	},
	CheckInitialized: func(protoiface.CheckInitializedInput) (protoiface.CheckInitializedOutput, error) {
		return protoiface.CheckInitializedOutput{}, nil
	},
}
