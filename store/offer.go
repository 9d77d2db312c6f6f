package store

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/input"
)

// Offer is the invitation to transfer a name to its maker. It travels between
// nodes as plain data.
type Offer struct {
	Name    string
	Owner   Owner
	Session SessionID
	TTL     time.Duration
	Nonce   uint64
	// Lifetime is how long after Offer returned its maker still takes up the
	// name, by the maker's clock; a later transfer is reconciled away.
	Lifetime time.Duration
}

// Validate returns an error that is ErrInvalid, and says which field is out of its
// bounds, unless a record can be made for the offer's maker: the name is valid, the
// owner has an ID and an incarnation and is UTF-8, the session is positive, and so is the TTL,
// a year at the most. What came from another node is checked by this before any of it is written,
// as a record without an owner or a TTL could not be read.
func (o Offer) Validate() error {
	bad := func(field string, got any, bound string) error {
		return fmt.Errorf("store.Offer.%s: %w: %v, must be %s", field, ErrInvalid, got, bound)
	}
	if err := ValidateName(o.Name); err != nil {
		return fmt.Errorf("store.Offer.Name: %w", err)
	}
	switch {
	case o.Owner.ID == "":
		return bad("Owner.ID", `""`, "the ID of the offer's maker")
	case o.Owner.Incarnation == "":
		return bad("Owner.Incarnation", `""`, "that of the offer's maker")
	case o.Session <= 0:
		return bad("Session", o.Session, "positive")
	case o.TTL <= 0 || o.TTL > input.Longest:
		return bad("TTL", o.TTL, fmt.Sprintf("above 0 and at most %v", input.Longest))
	}
	if err := o.Owner.validate(); err != nil {
		return fmt.Errorf("store.Offer.Owner: %w", err)
	}
	return nil
}

// validate returns an error that is ErrInvalid unless o has an incarnation
// and all of it is UTF-8.
func (o Owner) validate() error {
	if o.Incarnation == "" {
		return fmt.Errorf("owner %.64q: %w: its incarnation is empty", o.ID, ErrInvalid)
	}
	for _, f := range []struct{ name, text string }{{"ID", o.ID}, {"incarnation", o.Incarnation}, {"address", o.Address}} {
		if !utf8.ValidString(f.text) {
			return fmt.Errorf("owner %.64q: %w: its %s is not UTF-8: %.64q", o.ID, ErrInvalid, f.name, f.text)
		}
	}
	return nil
}
