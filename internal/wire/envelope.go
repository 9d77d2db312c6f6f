package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/actors"
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
	return n + actors.HeadersSize(x.Headers) + len(x.Sender.GetAddress()) + len(x.Sender.GetId())
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
