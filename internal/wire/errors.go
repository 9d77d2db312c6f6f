package wire

import "errors"

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

// ReasonOf returns the reason that a Nack gives for an error of this package.
func ReasonOf(err error) Reason {
	switch {
	case errors.Is(err, ErrUnknownType):
		return Reason_REASON_UNKNOWN_TYPE
	case errors.Is(err, ErrUndecodable):
		return Reason_REASON_UNDECODABLE
	case errors.Is(err, ErrTooLarge):
		return Reason_REASON_TOO_LARGE
	}
	return Reason_REASON_UNSPECIFIED
}
