package wire

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"
)

// Envelop makes an Envelope of a message of this node, or of an *actor.MessageEnvelope
// with its sender and headers, without name and token. Payload, headers and sender
// have at most limit bytes together. Errors: those of Encode, and ErrUnencodable for headers
// or a sender that are no text.
func (r *Registry) Envelop(local any, limit int) (*Envelope, error) {
	if u, ok := actor.UnwrapEnvelopeMessage(local).(*Unread); ok {
		return Enclose(local, u.Type, CodecProto, u.Payload), nil
	}
	if err := CheckText(local); err != nil {
		return nil, err
	}
	typ, codec, payload, err := r.Encode(actor.UnwrapEnvelopeMessage(local), limit)
	if err != nil {
		return nil, err
	}
	e := Enclose(local, typ, codec, payload)
	if n := e.Footprint(); n > limit+Headroom/2 {
		return nil, fmt.Errorf("%w: %s has %d bytes with its headers and addresses, at most %d", ErrTooLarge, typ, n, limit+Headroom/2)
	}
	return e, nil
}

// Unread is a message of a peer that could not be decoded, or of a type that this process
// lacks. It never travels: Envelop makes an Envelope of it, and the node that opens that
// refuses it.
type Unread struct {
	Type    string
	Payload []byte
}

// IsUnread reports whether an actor must not get a message, as it is Unread.
func IsUnread(local any) bool {
	_, ok := actor.UnwrapEnvelopeMessage(local).(*Unread)
	return ok
}

// Enclose makes an Envelope of the payload of a message of this node, with the message's
// sender and headers.
func Enclose(local any, typ, codec string, payload []byte) *Envelope {
	header, _, sender := actor.UnwrapEnvelope(local)
	e := &Envelope{Type: typ, Codec: codec, Payload: payload, Sender: AddressOf(sender), Request: sender != nil}
	if header != nil && header.Length() > 0 {
		e.Headers = header.ToMap()
	}
	return e
}

// Footprint is about what the Envelope takes on the wire and in memory, in bytes.
func (x *Envelope) Footprint() int {
	n := len(x.Name) + len(x.Key) + len(x.Type) + len(x.Codec) + len(x.Payload)
	return n + headerSize(x.Headers) + len(x.Sender.GetAddress()) + len(x.Sender.GetId())
}

func headerSize(headers map[string]string) (n int) {
	for k, v := range headers {
		n += len(k) + len(v) + 8
	}
	return n
}

// HeaderSize is what the headers and the sender of a message take, in bytes.
func HeaderSize(local any) (n int) {
	e, ok := local.(*actor.MessageEnvelope)
	if !ok || e == nil {
		return 0
	}
	return headerSize(e.Header) + len(e.Sender.GetAddress()) + len(e.Sender.GetId())
}

// Footprint is about what a message of this node takes in memory, in bytes, at least. It
// calls no users' code.
func Footprint(local any) int {
	n := HeaderSize(local)
	switch m := actor.UnwrapEnvelopeMessage(local).(type) {
	case nil:
	case string:
		n += len(m)
	case []byte:
		n += len(m)
	case *Encoded:
		n += len(m.payload)
	case proto.Message:
		n += protoSize(m)
	default:
		n += footprint(reflect.ValueOf(m))
	}
	return n
}

func protoSize(m proto.Message) (n int) {
	defer func() { _ = recover() }() // a nil pointer, or one that only embeds a message
	return proto.Size(m)
}

// footprint looks at what is in the value itself, and at lengths. What it points to may
// be changed by others meanwhile, and is taken to be as large as its type.
func footprint(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Invalid:
		return 0
	case reflect.String:
		return 16 + v.Len()
	case reflect.Pointer:
		return 8 + int(v.Type().Elem().Size())
	case reflect.Slice:
		return 24 + v.Len()*int(v.Type().Elem().Size())
	case reflect.Struct:
		n := 0
		for i := range v.NumField() {
			n += footprint(v.Field(i))
		}
		return n
	}
	return int(v.Type().Size())
}

// This part is about strings that leave the node. Protocol Buffers have text in UTF-8, and
// in no other form: remote can't write one batch of messages in which a header or a PID is
// something else, and gives up the link with all that waits for it.

// CheckText returns ErrUnencodable if a header or the sender of a message is not valid
// UTF-8. It takes the time only of what is there, and allocates nothing.
func CheckText(local any) error {
	e, ok := local.(*actor.MessageEnvelope)
	if !ok || e == nil {
		return nil
	}
	for k, v := range e.Header {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("%w: header %.64q: not UTF-8", ErrUnencodable, k)
		}
	}
	return CheckPID("sender", e.Sender)
}

// CheckPID returns ErrUnencodable if a PID, which is what of the message, is not valid
// UTF-8.
func CheckPID(what string, pid *actor.PID) error {
	if pid == nil || utf8.ValidString(pid.Id) && utf8.ValidString(pid.Address) {
		return nil
	}
	return fmt.Errorf("%w: %s %.64q at %.64q: not UTF-8", ErrUnencodable, what, pid.Id, pid.Address)
}

// Text is what others get for people to read, which may be the text of a user's error.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
