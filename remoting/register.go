package remoting

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Codec turns values of registered types into bytes and back. It is used by
// many goroutines at once. A panic in it is contained and counts as an error.
type Codec interface {
	// Name says on the wire which codec wrote a payload: 1 to 64 bytes, the same
	// on every node, and neither "json" nor "proto". It is asked once, when a
	// type is registered.
	Name() string
	// Marshal returns what v, a non-nil pointer to the registered type, points
	// to as bytes. It must neither change nor keep v.
	Marshal(v any) ([]byte, error)
	// Unmarshal fills in v, a pointer to a zero value of the registered type. It
	// must not keep data.
	Unmarshal(data []byte, v any) error
}

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
	if err := input.Apply(&r, &r.missing, lease.ErrInvalid, opts); err != nil {
		return fmt.Errorf("remoting %w", err)
	}
	return wire.Register[T](wire.Default, name, r.codec)
}
