package hosting

import (
	"errors"
	"fmt"
)

// The errors of singleton.Ask and sharding.Ask.
var (
	// ErrUndeliverable: the message was not delivered, and the asker was told so.
	// errors.As finds an *UndeliverableError, which says more.
	ErrUndeliverable = errors.New("message undeliverable")
	// ErrUnexpectedAnswer: the answer is of another type than was asked for.
	ErrUnexpectedAnswer = errors.New("unexpected answer")
	// ErrUnconfirmed: the link to the host, of the singleton or of an entity's shard, broke
	// when the message had been sent there. It is not known whether it was handled; if it
	// was, its answer is lost.
	ErrUnconfirmed = errors.New("not known to have been handled")
)

// Undeliverable is the message that the sender of a request gets in place of a reply if its
// message could not be delivered. The message is a dead letter, too. An actor finds it with
//
//	case hosting.Undeliverable:
//		why := msg.Notice()
type Undeliverable interface {
	// Notice says which message was not delivered, and why.
	Notice() Notice
}

// Notice says which message was not delivered, and why.
type Notice struct {
	Reason Reason
	// Name is the lease name of the singleton, or of the shard, or else the sharded
	// type's.
	Name string
	// Key is the entity's id; empty for a singleton.
	Key string
	// Type is the type of the message, as it is known to the node that refused it.
	Type string
	// Detail is for people.
	Detail string
}

// Reason says why a message was not delivered. Newer nodes may send others than these.
type Reason int32

const (
	// ReasonUnspecified: see Notice.Detail.
	ReasonUnspecified Reason = iota
	// ReasonUnknownType: the type is not registered on the node that hosts, or on this one.
	ReasonUnknownType
	// ReasonUndecodable: the bytes are no value of the type.
	ReasonUndecodable
	// ReasonTooLarge: it is larger than one message between nodes may be
	// (remoting.WithMaxMessageSize).
	ReasonTooLarge
	// ReasonOverflow: a buffer was full (WithBuffer).
	ReasonOverflow
	// ReasonNoHolder: the node it came to does not host, and knows no host.
	ReasonNoHolder
	// ReasonTooManyHops: it was forwarded too often.
	ReasonTooManyHops
	// ReasonExpired: the asker does not wait for the answer any more.
	ReasonExpired
	// ReasonNoSuchToken: it was routed by an ownership that never was.
	ReasonNoSuchToken
	// ReasonTooNew: a newer version wrote it, and the node that hosts does not understand it.
	ReasonTooNew
)

// String returns the reason in words.
func (r Reason) String() string {
	return nameOf(int(r), "unspecified", "unknown type", "undecodable", "too large", "overflow", "no holder",
		"too many hops", "expired", "no such token", "too new")
}

// UndeliverableError is an ErrUndeliverable.
type UndeliverableError struct {
	// Type is the Go type of the message that was asked.
	Type string
	// Notice is nil if all that is known is that the message went to the dead letters: a
	// buffer was full, or the actor had ended.
	Notice *Notice
}

// Error says the reason, the type and the detail.
func (e *UndeliverableError) Error() string {
	n := e.Notice
	if n == nil {
		return fmt.Sprintf("%v: %s went to the dead letters", ErrUndeliverable, e.Type)
	}
	text := fmt.Sprintf("%v: %s: %v", ErrUndeliverable, e.Type, n.Reason)
	if n.Type != "" && n.Type != e.Type {
		text += fmt.Sprintf(", sent as %.256q", n.Type)
	}
	if n.Detail != "" {
		text += ": " + n.Detail
	}
	return text
}

// Is makes it an ErrUndeliverable.
func (e *UndeliverableError) Is(target error) bool { return target == ErrUndeliverable }
