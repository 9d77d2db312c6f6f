package wire

import (
	"errors"
	"strings"
)

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
