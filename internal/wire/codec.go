package wire

import (
	"encoding/json"
	"fmt"
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

const (
	// CodecJSON is the codec of types that were registered without one.
	CodecJSON = "json"
	// CodecProto is the codec of Protocol Buffers messages.
	CodecProto = "proto"
)

// JSON is the codec of types that were registered without one. Fields that the
// receiver's type lacks are ignored, so types may grow.
type JSON struct{}

func (JSON) Name() string                       { return CodecJSON }
func (JSON) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (JSON) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// contain calls f and turns a panic into an error.
func contain(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}
