package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

const (
	// DefaultMaxMessage is the default bound of one message between nodes, in
	// bytes, envelope included: 4 MiB.
	DefaultMaxMessage = 4 << 20
	// Headroom is what an envelope may need besides its payload: names, headers,
	// addresses.
	Headroom = 64 << 10
	// DefaultLimit is the default bound of a payload, in bytes.
	DefaultLimit = DefaultMaxMessage - Headroom
)

// Encode turns msg into a payload of at most limit bytes (0 or less:
// DefaultLimit), and says by which type name and codec to read it.
//
// Errors: ErrUnknownType if msg is neither of a registered type nor a Protocol
// Buffers message; ErrUnencodable if it is nil or its codec failed or panicked;
// ErrTooLarge.
func (r *Registry) Encode(msg any, limit int) (typeName, codec string, payload []byte, err error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	if msg == nil {
		return "", "", nil, fmt.Errorf("%w: nil", ErrUnencodable)
	}
	if e := r.types.Load().byType[reflect.TypeOf(msg)]; e != nil {
		typeName, payload, err = e.encode(msg)
		codec = e.codecName
	} else if m, ok := msg.(proto.Message); ok {
		typeName, payload, err = encodeProto(m, limit)
		codec = CodecProto
	} else {
		err = unregistered(msg)
	}
	if err != nil {
		return "", "", nil, err
	}
	if len(payload) > limit {
		return "", "", nil, tooLarge(typeName, len(payload), limit)
	}
	return typeName, codec, payload, nil
}

func unregistered(msg any) error {
	return fmt.Errorf("%w: %T is not registered: give it to node.Types, or call remoting.Register[%s](%q), when the program begins, on every node", ErrUnknownType, msg,
		strings.TrimPrefix(fmt.Sprintf("%T", msg), "*"), "a name")
}

// Overlooked returns ErrUnknownType, and what cures it, for a message that was handed over
// on its node, and that Encode would not know: once for each type.
func (r *Registry) Overlooked(msg any) error {
	if _, ok := msg.(proto.Message); ok || msg == nil {
		return nil
	}
	typ := reflect.TypeOf(msg)
	if r.types.Load().byType[typ] != nil {
		return nil
	}
	if _, told := r.told.LoadOrStore(typ, struct{}{}); told {
		return nil
	}
	return unregistered(msg)
}

func tooLarge(typeName string, size, limit int) error {
	return fmt.Errorf("%w: %s has %d bytes, at most %d", ErrTooLarge, typeName, size, limit)
}

func (e *entry) encode(msg any) (string, []byte, error) {
	name, v := e.name, reflect.ValueOf(msg)
	if v.Type() == e.typ {
		// Addressable, so that methods of *T such as MarshalJSON are found.
		p := reflect.New(e.typ)
		p.Elem().Set(v)
		msg = p.Interface()
	} else if name = e.pointerName; v.IsNil() {
		return "", nil, fmt.Errorf("%w: nil %s", ErrUnencodable, name)
	}
	var payload []byte
	err := boundary.Call(func() (err error) { payload, err = e.codec.Marshal(msg); return err })
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s by codec %s: %w", ErrUnencodable, name, e.codecName, err)
	}
	return name, payload, nil
}

func encodeProto(m proto.Message, limit int) (name string, payload []byte, err error) {
	defer func() {
		if err != nil && !errors.Is(err, ErrTooLarge) {
			err = fmt.Errorf("%w: %T: %w", ErrUnencodable, m, err)
		}
	}()
	defer boundary.Contain(&err) // code of the type may panic
	r := m.ProtoReflect()
	if !r.IsValid() {
		return "", nil, errors.New("nil")
	}
	name = string(r.Descriptor().FullName())
	if !ofItself(m, r) {
		return "", nil, fmt.Errorf("only embeds %s and is not registered", name)
	}
	size := proto.Size(m)
	if size > limit {
		return "", nil, tooLarge(name, size, limit)
	}
	payload, err = measured.MarshalAppend(make([]byte, 0, size), m)
	return name, payload, err
}

// measured writes what was measured just now.
var measured = proto.MarshalOptions{UseCachedSize: true}

// ofItself reports whether r, which m reflects to, is of m's type, and of no message that m
// only embeds. What it found is kept for each type: to find it costs a tenth of an encoding.
func ofItself(m proto.Message, r protoreflect.Message) bool {
	typ := reflect.TypeOf(m)
	if is, ok := reflected.Load(typ); ok {
		return is.(bool)
	}
	is := reflect.TypeOf(r.Interface()) == typ
	reflected.Store(typ, is)
	return is
}

var reflected sync.Map // reflect.Type to bool, as many as a program has types

// Decode is the inverse of Encode. The result does not refer to payload.
//
// Errors: ErrUnknownType if the type is not known here or has another codec
// (payloads in JSON are read whatever the registered codec, so that a type may
// move away from it); ErrUndecodable if the payload is no such value or the
// codec panicked.
func (r *Registry) Decode(typeName, codec string, payload []byte) (any, error) {
	if codec == CodecProto {
		return decodeProto(typeName, payload)
	}
	name, pointer := strings.CutPrefix(typeName, "*")
	e := r.types.Load().byName[name]
	if e == nil {
		return nil, fmt.Errorf("%w: no type is registered as %.64q: give it to node.Types, or call remoting.Register for it, when the program begins, on every node", ErrUnknownType, name)
	}
	c := e.codec
	switch codec {
	case e.codecName:
	case CodecJSON:
		c = JSON{}
	default:
		return nil, fmt.Errorf("%w: %.64q was written by codec %.64q, here it has %q", ErrUnknownType, typeName, codec, e.codecName)
	}
	v := reflect.New(e.typ)
	if err := boundary.Call(func() error { return c.Unmarshal(payload, v.Interface()) }); err != nil {
		return nil, fmt.Errorf("%w: %.64q by codec %s: %w", ErrUndecodable, typeName, codec, err)
	}
	if pointer {
		return v.Interface(), nil
	}
	return v.Elem().Interface(), nil
}

// Open is Decode for an envelope; besides ErrTooNew if its writer was of a newer
// version than this one understands.
func (r *Registry) Open(e *Envelope) (any, error) {
	if e.Needs > Protocol {
		return nil, fmt.Errorf("%w: it needs protocol %d, here it is %d", ErrTooNew, e.Needs, Protocol)
	}
	return r.Decode(e.Type, e.Codec, e.Payload)
}

func decodeProto(typeName string, payload []byte) (any, error) {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(typeName))
	if err != nil {
		return nil, fmt.Errorf("%w: %.64q", ErrUnknownType, typeName)
	}
	var m proto.Message
	if err := boundary.Call(func() (err error) { m, err = ReadProto(mt, payload); return err }); err != nil {
		return nil, fmt.Errorf("%w: %.64q: %w", ErrUndecodable, typeName, err)
	}
	return m, nil
}

// ReadProto reads a message of type mt; code of the type may panic. The message is new: to reset
// it first, as proto.Unmarshal does, takes a third of the time of a small one.
func ReadProto(mt protoreflect.MessageType, payload []byte) (proto.Message, error) {
	m := mt.New().Interface()
	return m, proto.UnmarshalOptions{Merge: true}.Unmarshal(payload, m)
}

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
func (r *Registry) Plain(msg any, limit int) (e *Encoded) {
	m, ok := msg.(proto.Message)
	if !ok {
		return nil
	}
	defer func() {
		if recover() != nil { // code of the type did
			e = nil
		}
	}()
	v := m.ProtoReflect()
	if !v.IsValid() || !r.plain(m, v) {
		return nil
	}
	name := string(v.Descriptor().FullName())
	if strings.HasPrefix(name, "actor.") || strings.HasPrefix(name, "remote.") || strings.HasPrefix(name, "cluster.") {
		return nil // one of protoactor's own
	}
	size := proto.Size(m)
	switch {
	case size > limit:
		return nil
	case size <= len(small{}.room):
		s := &small{}
		e, s.payload = &s.Encoded, s.room[:0]
	default:
		e = &Encoded{payload: make([]byte, 0, size)}
	}
	e.Message = v
	var err error
	if e.payload, err = measured.MarshalAppend(e.payload, m); err != nil {
		return nil
	}
	return e
}

// plain reports whether messages of m's type may travel as they are, as far as the type says: it is
// not registered, encodes itself by no other means, and does not only embed a message. What it
// found is kept for each type: to find it costs a tenth of an encoding.
func (r *Registry) plain(m proto.Message, v protoreflect.Message) bool {
	typ := reflect.TypeOf(m)
	known := r.types.Load()
	if is, ok := known.plain.Load(typ); ok {
		return is.(bool)
	}
	is := known.byType[typ] == nil && ofItself(m, v)
	switch m.(type) {
	case remote.RootSerializable, remote.RootSerialized:
		is = false
	}
	known.plain.Store(typ, is)
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
