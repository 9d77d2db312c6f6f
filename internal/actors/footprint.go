package actors

import (
	"reflect"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"
)

// Footprint is about what a message of this node takes in memory, in bytes, at least. It
// calls no users' code.
func Footprint(local any) (n int) {
	n = HeaderSize(local)
	switch m := actor.UnwrapEnvelopeMessage(local).(type) {
	case nil:
	case string:
		n += len(m)
	case []byte:
		n += len(m)
	case proto.Message:
		n += protoSize(m)
	default:
		n += footprint(reflect.ValueOf(m))
	}
	return n
}

// HeaderSize is what the headers and the sender of a message take, in bytes.
func HeaderSize(local any) (n int) {
	e, ok := local.(*actor.MessageEnvelope)
	if !ok || e == nil {
		return 0
	}
	return HeadersSize(e.Header) + len(e.Sender.GetAddress()) + len(e.Sender.GetId())
}

// HeadersSize is what headers take, in bytes.
func HeadersSize(headers map[string]string) (n int) {
	for k, v := range headers {
		n += len(k) + len(v) + 8
	}
	return n
}

func protoSize(m proto.Message) (n int) {
	defer func() { _ = recover() }() // a nil pointer, or one that only embeds a message
	return proto.Size(m)
}

// footprint looks at what is in the value itself, and at lengths. What it points to may
// be changed by others meanwhile, and is taken to be as large as its type.
func footprint(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Invalid:
		return 0
	case reflect.String:
		return 16 + v.Len()
	case reflect.Pointer:
		return 8 + int(v.Type().Elem().Size())
	case reflect.Slice:
		return 24 + v.Len()*int(v.Type().Elem().Size())
	case reflect.Struct:
		n := 0
		for i := range v.NumField() {
			n += footprint(v.Field(i))
		}
		return n
	}
	return int(v.Type().Size())
}
