package wire_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/wire"
)

var payloads = map[string]any{
	"json-100B": order{ID: "7", Items: []string{strings.Repeat("x", 100)}},
	"json-ptr":  &order{ID: "7", Items: []string{strings.Repeat("x", 100)}},
	"proto-1K":  wrapperspb.String(strings.Repeat("x", 1024)),
}

func benchRegistry(b *testing.B) *wire.Registry {
	r := wire.NewRegistry()
	if err := wire.Register[order](r, "order", nil); err != nil {
		b.Fatal(err)
	}
	return r
}

func BenchmarkEncode(b *testing.B) {
	r := benchRegistry(b)
	for name, msg := range payloads {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, err := r.Encode(msg, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	r := benchRegistry(b)
	for name, msg := range payloads {
		typeName, codec, payload, err := r.Encode(msg, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Decode(typeName, codec, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
