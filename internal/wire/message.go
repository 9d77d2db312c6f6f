package wire

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
)

// NodeOf is a lease's owner as messages name it.
func NodeOf(o lease.Owner) *Node { return &Node{Address: o.Address, Incarnation: o.Incarnation} }

// Others are the members but the node at address.
func Others(s membership.Snapshot, address string) (others []*Node) {
	for _, m := range s.Members {
		if m.Address != "" && m.Address != address {
			others = append(others, NodeOf(m.Owner()))
		}
	}
	return others
}

// Is reports whether n and o are the same life at the same address. What is said in the
// name of a life from another address is not that life's.
func (n *Node) Is(o *Node) bool {
	return n.GetIncarnation() == o.GetIncarnation() && n.GetAddress() == o.GetAddress()
}

// TypeName names the type of msg for people.
func TypeName(msg any) string {
	if m, ok := msg.(proto.Message); ok {
		return string(proto.MessageName(m))
	}
	return fmt.Sprintf("%T", msg)
}

// Local is a message as actors of this node get it: bare if there is nothing that goes
// with it.
func Local(msg any, sender *actor.PID, headers map[string]string) any {
	if sender == nil && len(headers) == 0 {
		return msg
	}
	return &actor.MessageEnvelope{Message: msg, Sender: sender, Header: headers}
}

// AddressOf returns pid as it travels; nil for nil.
func AddressOf(pid *actor.PID) *Address {
	if pid == nil {
		return nil
	}
	return &Address{Address: pid.Address, Id: pid.Id, RequestId: pid.RequestId}
}

// PID returns a new PID of that address, bound to no actor system yet; nil for
// nil.
func (x *Address) PID() *actor.PID {
	if x == nil {
		return nil
	}
	return &actor.PID{Address: x.Address, Id: x.Id, RequestId: x.RequestId}
}

// OfSystem reports whether msg is one by which an actor learns of its own life, or of
// another's, from its actor system: as mail it would be believed.
func OfSystem(msg any) bool {
	switch msg.(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Restart, *actor.Stop, *actor.Failure,
		*actor.Watch, *actor.Unwatch, *actor.Terminated, *actor.ReceiveTimeout:
		return true
	}
	return false
}

var _ hosting.Undeliverable = (*Nack)(nil)

// Notice implements hosting.Undeliverable. The reasons have the same numbers there.
func (n *Nack) Notice() hosting.Notice {
	return hosting.Notice{Reason: hosting.Reason(n.GetReason()), Name: n.GetName(), Key: n.GetKey(), Type: n.GetType(), Detail: n.GetDetail()}
}

// OfferOf is the answer of from to invitation number: o.
func OfferOf(o lease.Offer, from *Node, number uint64) *Offer {
	return &Offer{Name: o.Name, From: from, Number: number, Id: o.Owner.ID,
		Session: int64(o.Session), Ttl: int64(o.TTL), Nonce: o.Nonce, Lifetime: int64(o.Lifetime)}
}

// Lease is what OfferOf was made of.
func (x *Offer) Lease() lease.Offer {
	return lease.Offer{Name: x.Name, Owner: lease.Owner{ID: x.Id, Incarnation: x.From.GetIncarnation(), Address: x.From.GetAddress()},
		Session: store.SessionID(x.Session), TTL: time.Duration(x.Ttl), Nonce: x.Nonce, Lifetime: time.Duration(x.Lifetime)}
}

// Fits reports whether the names by which the sender of one of this package's
// messages calls itself are as long as names may be: store.MaxName bytes each.
func Fits(msg any) bool {
	m, ok := msg.(interface{ GetFrom() *Node })
	if !ok {
		return true
	}
	n, id := m.GetFrom(), ""
	if m, ok := msg.(interface{ GetId() string }); ok {
		id = m.GetId()
	}
	return max(len(n.GetAddress()), len(n.GetIncarnation()), len(id)) <= store.MaxName
}

var (
	// ErrUnknownType: the type is not registered on this node, or is registered
	// with another codec than the payload was written with.
	ErrUnknownType = errors.New("unknown message type")
	// ErrUndecodable: the payload is no value of its type.
	ErrUndecodable = errors.New("undecodable message")
	// ErrUnencodable: the value can't be turned into a payload.
	ErrUnencodable = errors.New("unencodable message")
	// ErrTooLarge: the payload is over the limit.
	ErrTooLarge = errors.New("message too large")
)

// ErrTooNew: a newer version wrote the message, and this one does not understand it.
var ErrTooNew = errors.New("message of a newer version")

// texts are the reasons whose errors say them.
var texts = map[Reason]error{Reason_REASON_UNKNOWN_TYPE: ErrUnknownType, Reason_REASON_UNDECODABLE: ErrUndecodable,
	Reason_REASON_TOO_LARGE: ErrTooLarge, Reason_REASON_TOO_NEW: ErrTooNew}

// Why tells the sender of a message of an error of this package: without what
// the reason says, and with the address of the node that says so.
func Why(err error, address string) string {
	text := err.Error()
	if of := texts[ReasonOf(err)]; of != nil {
		text = strings.TrimPrefix(text, of.Error()+": ")
	}
	return Text("on node " + address + ": " + text)
}

// ReasonOf returns the reason that a Nack gives for an error of this package.
func ReasonOf(err error) Reason {
	for reason, of := range texts { // an error is one of them
		if errors.Is(err, of) {
			return reason
		}
	}
	return Reason_REASON_UNSPECIFIED
}

// limit is what a message of an actor system may take.
type limit struct{ payload atomic.Int64 }

var limitID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*limit) ExtensionID() extensions.ExtensionID { return limitID }

func limitOf(system *actor.ActorSystem) *limit {
	return actors.Extension(system, limitID, func() *limit {
		l := &limit{}
		l.payload.Store(DefaultLimit)
		return l
	})
}

// LimitMessages sets how many bytes one message of system may take between nodes, its
// envelope included. Where it is not called that is DefaultMaxMessage.
func LimitMessages(system *actor.ActorSystem, bytes int) {
	limitOf(system).payload.Store(int64(bytes) - Headroom)
}

// PayloadLimit returns how many bytes the payload of one message of system may
// have: what LimitMessages says less Headroom. For nil, DefaultLimit.
func PayloadLimit(system *actor.ActorSystem) int {
	if system == nil {
		return DefaultLimit
	}
	return int(limitOf(system).payload.Load())
}

// askPrefix is how the ids of questions begin: of processes that wait for one answer. What
// an actor called "ask" spawns begins so, too.
const askPrefix = "ask/"

// lifeSize is how much of its system's ID a question's id has, in bytes.
const lifeSize = 8

// lifeOf is what a question's id has of the life of its system, 8 digits to the base 57: a
// late answer to an earlier life at this address must not be taken for this one's, nor an
// actor's child for a question. Ids travel with every question and answer, so it is short.
func lifeOf(system *actor.ActorSystem) string { return system.ID[:min(lifeSize, len(system.ID))] }

// NextAskID returns an id for a question of system.
func NextAskID(system *actor.ActorSystem) string {
	return askPrefix + lifeOf(system) + system.ProcessRegistry.NextId()
}

// IsAskID reports whether id has the form of a question's, of any system.
func IsAskID(id string) bool {
	rest, ok := strings.CutPrefix(id, askPrefix)
	return ok && strings.IndexByte(rest, '$') == lifeSize
}

// Asker is a process that waits for an answer for a time.
type Asker interface {
	actor.Process
	// Patience returns for how long it goes on waiting; ok is false if that is not
	// known.
	Patience() (left time.Duration, ok bool)
	// Unconfirmed says that the question is not known to have been sent: no answer to it is
	// to be expected. It never blocks.
	Unconfirmed()
}

// PatienceOf returns for how long the sender of a message goes on waiting for the
// answer, if it is an Asker of this system; 0 if it has given up.
func PatienceOf(system *actor.ActorSystem, sender *actor.PID) (left time.Duration, ok bool) {
	a, over := AskerOf(system, sender.GetAddress(), sender.GetId())
	if a == nil {
		return 0, over
	}
	return a.Patience()
}

// AskerOf returns the Asker of this system with that address and id; nil if there is none.
// over reports whether there was one: only questions of this life have such ids.
func AskerOf(system *actor.ActorSystem, address, id string) (a Asker, over bool) {
	rest, ok := strings.CutPrefix(id, askPrefix)
	if !ok || !strings.HasPrefix(rest, lifeOf(system)) || address != system.Address() {
		return nil, false
	}
	p, found := system.ProcessRegistry.GetLocal(id)
	a, _ = p.(Asker)
	return a, !found
}

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
