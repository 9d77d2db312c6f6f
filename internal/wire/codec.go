package wire

import "encoding/json"

// Codec is a remoting.Codec.
type Codec interface {
	Name() string
	Marshal(v any) ([]byte, error)
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
