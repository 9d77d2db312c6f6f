package remoting

import (
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// Codec turns values of registered types into bytes and back.
type Codec = wire.Codec

// Errors of messages that can't travel.
var (
	// ErrUnknownType: the type is neither registered nor a Protocol Buffers
	// message, on the node that says so.
	ErrUnknownType = wire.ErrUnknownType
	// ErrUndecodable: the bytes are no value of their type.
	ErrUndecodable = wire.ErrUndecodable
	// ErrUnencodable: the value is nil, or its codec failed on it.
	ErrUnencodable = wire.ErrUnencodable
	// ErrTooLarge: the message is over the limit.
	ErrTooLarge = wire.ErrTooLarge
)

// RegisterOption changes how a type travels.
type RegisterOption func(*registration)

type registration struct {
	missing input.Missing
	codec   Codec
}

// WithCodec has c write and read the type, in place of encoding/json.
func WithCodec(c Codec) RegisterOption {
	return func(r *registration) { r.missing.Check("WithCodec", c); r.codec = c }
}

// Register makes T known to the whole process under name (1 to 256 bytes of
// UTF-8), by which every node must know it. Values sent as T arrive as T, and *T
// as *T. By default they travel as JSON, so unexported fields are left behind.
// Protocol Buffers messages need no registration.
//
// Registering the same again changes nothing. The error is lease.ErrInvalid: the
// name or type is taken or not fit, an option or codec is nil, or the codec has no name.
func Register[T any](name string, opts ...RegisterOption) error {
	var r registration
	for _, o := range opts {
		r.missing.Check("option", o)
		if o != nil {
			o(&r)
		}
	}
	if option := r.missing.Option(); option != "" {
		return invalid(option, "nil")
	}
	return wire.Register[T](wire.Default, name, r.codec)
}
