//go:build linux

package stage

import (
	"fmt"

	"github.com/holdfast-go/holdfast/lease"
)

// Outcome tells what became of a write. Of several at one revision of a ledger, the
// one with the lower outcome came first.
type Outcome uint8

// The outcomes.
const (
	Written  Outcome = iota + 1
	Repeated         // it was written before: nothing is written a second time
	Refused          // the token was stale
)

// String implements fmt.Stringer.
func (o Outcome) String() string {
	switch o {
	case Written:
		return "written"
	case Repeated:
		return "repeated"
	case Refused:
		return "refused"
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Outcome) UnmarshalText(text []byte) error {
	return Parse(o, text, Written, Repeated, Refused)
}

// Parse finds the one of values that reads as text.
func Parse[T fmt.Stringer](to *T, text []byte, values ...T) error {
	for _, v := range values {
		if v.String() == string(text) {
			*to = v
			return nil
		}
	}
	return fmt.Errorf("%w: %q, must be one of %v", lease.ErrInvalid, text, values)
}
