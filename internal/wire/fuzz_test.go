package wire_test

import (
	"errors"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// Whatever a peer sends, Decode answers with a value of the named type that
// can be encoded again, or with one of the two sentinel errors.
func FuzzDecode(f *testing.F) {
	r := wire.NewRegistry()
	if err := errors.Join(wire.Register[order](r, "order", nil), wire.Register[any2](r, "any", nil)); err != nil {
		f.Fatal(err)
	}
	for _, s := range [][3]string{
		{"order", "json", `{"ID":"1","Items":["a"]}`},
		{"*order", "json", `{"Items":null}`},
		{"any", "json", `{"V":[[[{}]]]}`},
		{"order", "json", `{"ID":"\ud800"}`},
		{"holdfast.wire.v1.Envelope", "proto", "\x0a\x01a\x32\x06\x0a\x01k\x12\x01v"},
		{"holdfast.wire.v1.Nack", "proto", "\x08\x63"},
		{"*", "json", ""},
		{"", "", ""},
	} {
		f.Add(s[0], s[1], []byte(s[2]))
	}
	f.Fuzz(func(t *testing.T, typeName, codec string, payload []byte) {
		v, err := r.Decode(typeName, codec, payload)
		if err != nil {
			if v != nil || !errors.Is(err, wire.ErrUnknownType) && !errors.Is(err, wire.ErrUndecodable) {
				t.Fatalf("%v, %v", v, err)
			}
			return
		}
		name, c, again, err := r.Encode(v, max(wire.DefaultLimit, 8*len(payload)))
		if err != nil || name != typeName || c != codec {
			t.Fatalf("decoded %T does not encode as %q: %q by %q, %v", v, typeName, name, c, err)
		}
		w, err := r.Decode(name, c, again)
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := v.(proto.Message); ok {
			if !proto.Equal(m, w.(proto.Message)) {
				t.Fatalf("%v became %v", v, w)
			}
		} else if !reflect.DeepEqual(v, w) {
			t.Fatalf("%#v became %#v", v, w)
		}
	})
}
