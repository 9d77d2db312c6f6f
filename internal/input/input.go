// Package input finds, in what users give, nothing in the guise of something.
//
//	option ─▶ Missing.Check ─▶ Start asks Missing.Option, and refuses by its name
package input

import (
	"cmp"
	"reflect"
	"time"
)

// Longest bounds the durations of settings, so that sums of them do not run over.
const Longest = 365 * 24 * time.Hour

// MaxCount bounds numbers of things, and MaxBytes of bytes, so that a small multiple of
// them does not run over.
const (
	MaxCount       = 1<<31 - 1
	MaxBytes int64 = 1 << 40
)

// Nil reports whether v is nil, or an interface that holds a nil pointer or function:
// to call one would panic.
func Nil(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return r.IsNil()
	}
	return false
}

// Missing remembers the first option that was given nothing. The zero value is ready.
type Missing struct{ option string }

// Check notes option if v is Nil.
func (m *Missing) Check(option string, v any) {
	if Nil(v) {
		m.option = cmp.Or(m.option, option)
	}
}

// CheckTyped is Check for what may be left out: nil itself is nothing wrong.
func (m *Missing) CheckTyped(option string, v any) {
	if v != nil {
		m.Check(option, v)
	}
}

// Option is the option that was given nothing; empty if none was.
func (m *Missing) Option() string { return m.option }
