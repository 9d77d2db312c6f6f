package wire

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
)

// Bounds of registered names, in bytes.
const (
	MaxTypeName  = 256
	maxCodecName = 64
)

// Default is the process's registry.
var Default = NewRegistry()

// Registry knows Go types by the names they have on the wire. It is safe for
// concurrent use; encoding and decoding take no lock.
type Registry struct {
	mu    sync.Mutex // held by writers
	types atomic.Pointer[types]
	told  sync.Map // the reflect.Type of what Overlooked told of
}

// types is immutable, but for plain.
type types struct {
	byName map[string]*entry
	byType map[reflect.Type]*entry // T and *T
	plain  sync.Map                // reflect.Type to bool, of messages: see Registry.plain
}

type entry struct {
	name, pointerName string
	typ               reflect.Type // T
	codec             Codec
	codecName         string
}

// NewRegistry returns a registry that knows Protocol Buffers messages only.
func NewRegistry() *Registry {
	r := &Registry{}
	r.types.Store(&types{})
	return r
}

// Register makes T known to r under name; codec nil means JSON. Registering the
// same type, name and codec again changes nothing. It returns an error that is
// lease.ErrInvalid if the name or the codec's name is out of bounds, the name or
// the type is taken, T is a pointer or an interface, T is a Protocol Buffers
// message (which needs no registration), or JSON can't represent T.
func Register[T any](r *Registry, name string, codec Codec) error {
	return r.register(reflect.TypeFor[T](), name, codec)
}

// RegisterType is Register, by JSON, for a type that is known when the program runs. A
// pointer stands for what it points to. A type that is registered already keeps its name, and one of
// Protocol Buffers needs none.
func RegisterType(r *Registry, typ reflect.Type, name string) error {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if r.types.Load().byType[typ] != nil || isProto(typ) {
		return nil
	}
	return r.register(typ, name, nil)
}

func (r *Registry) register(typ reflect.Type, name string, codec Codec) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("message type %v as %.64q: %w: %s", typ, name, lease.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := checkName(name, MaxTypeName); err != nil {
		return fail("name %v", err)
	}
	if name[0] == '*' {
		return fail("name begins with '*', which marks pointers")
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return fail("is a pointer; register %v, which covers both", typ.Elem())
	case reflect.Interface:
		return fail("is an interface; register the types that implement it")
	}
	if isProto(typ) {
		return fail("is a Protocol Buffers message, which needs no registration")
	}
	e := &entry{name: name, pointerName: "*" + name, typ: typ, codec: codec, codecName: CodecJSON}
	if codec == nil {
		e.codec = JSON{}
		if err := representable(typ); err != nil {
			return fail("no JSON for it: %v", err)
		}
	} else if _, isJSON := codec.(JSON); !isJSON {
		if err := boundary.Call(func() error { e.codecName = codec.Name(); return nil }); err != nil {
			return fail("codec name: %v", err)
		}
		if err := checkName(e.codecName, maxCodecName); err != nil {
			return fail("codec name %v", err)
		}
		if e.codecName == CodecJSON || e.codecName == CodecProto {
			return fail("codec name %q is taken", e.codecName)
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.types.Load()
	if have := old.byName[name]; have != nil {
		if have.typ == typ && have.codecName == e.codecName {
			return nil
		}
		return fail("name is taken by %v with codec %q", have.typ, have.codecName)
	}
	if have := old.byType[typ]; have != nil {
		return fail("type is registered as %q", have.name)
	}
	next := &types{byName: maps.Clone(old.byName), byType: maps.Clone(old.byType)}
	if next.byName == nil {
		next.byName, next.byType = map[string]*entry{}, map[reflect.Type]*entry{}
	}
	next.byName[name] = e
	next.byType[typ], next.byType[reflect.PointerTo(typ)] = e, e
	r.types.Store(next)
	return nil
}

func checkName(s string, most int) error {
	switch {
	case s == "" || len(s) > most:
		return fmt.Errorf("has %d bytes, must have 1 to %d", len(s), most)
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("has a control character")
	}
	return nil
}

// isProto reports whether *typ is a generated message, not merely a struct that
// embeds one.
func isProto(typ reflect.Type) bool {
	if !reflect.PointerTo(typ).Implements(reflect.TypeFor[proto.Message]()) {
		return false
	}
	own := false
	_ = boundary.Call(func() error {
		m := reflect.New(typ).Interface().(proto.Message)
		own = reflect.TypeOf(m.ProtoReflect().Interface()) == reflect.TypeOf(m)
		return nil
	})
	return own
}

// representable finds types that JSON can never write, such as functions, and structs of which it
// writes no field: they would arrive empty. A zero value that fails for another reason proves nothing.
func representable(typ reflect.Type) error {
	written := func(f reflect.StructField) bool { return f.IsExported() && f.Tag.Get("json") != "-" }
	if typ.Kind() == reflect.Struct && typ.NumField() > 0 && !marshals(typ) && !slices.ContainsFunc(reflect.VisibleFields(typ), written) {
		return errors.New("no field is exported: it would arrive empty")
	}
	err := boundary.Call(func() error { _, err := json.Marshal(reflect.Zero(typ).Interface()); return err })
	if _, never := errors.AsType[*json.UnsupportedTypeError](err); never {
		return err
	}
	return nil
}

// marshals reports whether a type writes its own JSON.
func marshals(typ reflect.Type) bool {
	for _, of := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if reflect.PointerTo(typ).Implements(of) {
			return true
		}
	}
	return false
}

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
