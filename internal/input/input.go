// Package input applies options and refuses nil values hidden in interfaces.
//
//	option ─▶ Missing.Check ─▶ Apply, which New or Start begins with, refuses by its name
package input

import (
	"cmp"
	"context"
	"fmt"
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

// Context returns an error that is invalid if ctx is nil.
func Context(ctx context.Context, invalid error) error {
	if ctx == nil {
		return fmt.Errorf("ctx: %w: nil, must be a context such as context.Background()", invalid)
	}
	return nil
}

// Call returns an error that is invalid if ctx is nil, or unless what is called was made: it is the zero
// value of what comes from there.
func Call(ctx context.Context, made bool, from string, invalid error) error {
	if err := Context(ctx, invalid); err != nil {
		return err
	}
	if !made {
		return fmt.Errorf("%w: the zero value, must come from %s", invalid, from)
	}
	return nil
}

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

// Missing remembers the first option whose value was nil. The zero value is ready.
type Missing struct{ option string }

// Check notes option if v is Nil.
func (m *Missing) Check(option string, v any) {
	if Nil(v) {
		m.option = cmp.Or(m.option, option)
	}
}

// CheckTyped is Check for an optional value: nil itself is accepted.
func (m *Missing) CheckTyped(option string, v any) {
	if v != nil {
		m.Check(option, v)
	}
}

// Option is the option whose value was nil; empty if none was.
func (m *Missing) Option() string { return m.option }

// Apply applies each option to s. The error is invalid: an option is nil, or m, which may be nil, has
// an option whose value was. The caller checks s for values out of bounds.
func Apply[S any, O ~func(*S)](s *S, m *Missing, invalid error, opts []O) error {
	for _, o := range opts {
		if o == nil {
			return fmt.Errorf("%w: a nil Option", invalid)
		}
		o(s)
	}
	if m != nil && m.option != "" {
		return fmt.Errorf("%s: %w: nil", m.option, invalid)
	}
	return nil
}

// Within returns an error, by the option's name, unless v is least to most.
func Within[T cmp.Ordered](option string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("%s: %v, must be at least %v and at most %v", option, v, least, most)
	}
	return nil
}
