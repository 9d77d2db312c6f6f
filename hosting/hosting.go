// Package hosting has what users of singletons and of sharded entities share: the state
// that an actor hands over (Stateful), what gives way when a buffer is full (DropPolicy),
// what becomes of a lease whose actor does not stop (Overdue), what a sender learns of
// a message that was not delivered (Undeliverable, and the errors of Ask), and what puts events on the
// EventStream (ToEventStream).
//
//	singleton.Start(system, keeper, "cron", props, singleton.WithBuffer(100, hosting.DropOldest))
//	sharding.Start(system, group, accounts, sharding.WithOverdue(hosting.ReleaseAfterTTL))
//	errors.Is(err, hosting.ErrUnconfirmed) // of singleton.Ask and sharding.Ask
package hosting

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/membership"
)

// ToEventStream returns a function that publishes events on the system's EventStream, as values:
// those of a Group (membership.WithEvents), or of any source of leadership:
//
//	publish := hosting.ToEventStream(system)
//	leaders.Follow(func(c membership.LeaderChanged) { publish(c) }) // leaders: a *membership.Static
//
// It does not wait for subscribers: one goroutine of the system calls them, one event after the
// other. If they are too slow events are dropped, counted and logged, but the last LeaderChanged and
// MembersChanged of each group always arrive. A LeaderChanged that tells of no change is not
// published. nil if system is nil, which WithEvents refuses.
func ToEventStream(system *actor.ActorSystem) func(event any) {
	if system == nil {
		return nil
	}
	out, from := outlet.Of(system), new(byte)
	type key struct {
		from        *byte
		kind, group string
	}
	return func(event any) {
		switch e := event.(type) {
		case membership.LeaderChanged:
			if e.Leader != e.Previous || e.Skipped > 0 {
				out.Latest(key{from, "leader", e.Group}, e)
			}
		case membership.MembersChanged:
			out.Latest(key{from, "members", e.Now.Group}, e)
		default:
			out.Publish(e)
		}
	}
}

// DropPolicy says what gives way when a buffer is full.
type DropPolicy uint8

const (
	// DropNewest refuses the message that finds the buffer full.
	DropNewest DropPolicy = iota
	// DropOldest makes room by dropping the message that has waited longest.
	DropOldest
)

// String returns the name of the constant.
func (p DropPolicy) String() string { return nameOf(int(p), "DropNewest", "DropOldest") }

// Overdue says what becomes of a lease when what runs under it was told to stop, as
// planned, and still runs at its deadline (WithStop). Its context is done then, and it gets
// no message any more.
type Overdue uint8

const (
	// KeepLease keeps and renews the lease until what runs has stopped.
	KeepLease Overdue = iota
	// ReleaseAfterTTL waits for one more TTL and then releases the lease, though
	// something still runs: another node may start the next one, and only the fencing
	// token keeps the writes of the old one out. This node does not start another one
	// until it has stopped.
	ReleaseAfterTTL
)

// String returns the name of the constant.
func (o Overdue) String() string { return nameOf(int(o), "KeepLease", "ReleaseAfterTTL") }

func nameOf(n int, names ...string) string {
	if n >= 0 && n < len(names) {
		return names[n]
	}
	return strconv.Itoa(n)
}

// Stateful is implemented by actors whose state moves with a planned hand-over: a
// singleton's child, or an entity. Every failure, and every change of host that was not
// planned, is a cold start: an actor that was given nothing (the event ColdStart). A panic is such a
// failure.
type Stateful interface {
	actor.Actor
	// HandOverState returns the state for the actor that the next host starts; nil for
	// none. It is called after Stopped, when nothing else of the actor runs. A child's is at
	// most 1 MiB, an entity's 64 KiB, and less if a message between nodes is (remoting.WithMaxMessageSize).
	HandOverState() ([]byte, error)
	// RestoreState is called before Started. On an error this actor is ended without
	// having seen any message, and another is made that starts cold.
	RestoreState(state []byte) error
}

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
	return nameOf(int(r), outlet.Reasons[:]...)
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
