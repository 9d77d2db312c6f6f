package lease

import (
	"context"
	"fmt"
	"unicode/utf8"
)

// This file says what of a request no store may take: a record made of it would
// come back as another, or as none, to its readers. The Keeper refuses it
// where it is configured, and a Store where it is called.

// ValidateContext returns an error that is ErrInvalid if ctx is nil. What takes a
// context here returns it, and has done nothing then.
func ValidateContext(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("ctx: %w: nil, must be a context such as context.Background()", ErrInvalid)
	}
	return nil
}

// errUnmade is what a Keeper answers that NewKeeper did not make.
var errUnmade = fmt.Errorf("keeper: %w: the zero value, must come from lease.NewKeeper", ErrInvalid)

// check is the beginning of the calls that a user may make of a zero Keeper, or with
// no context.
func (k *Keeper) check(ctx context.Context) error {
	if k.store == nil {
		return errUnmade
	}
	if err := ValidateContext(ctx); err != nil {
		return fmt.Errorf("keeper %s (store %s): %w", k.owner.ID, k.limits.Name, err)
	}
	return nil
}

// validateMetadata returns an error that is ErrInvalid unless every key and value
// is UTF-8. Encode what is not, for instance with base64.
func validateMetadata(m map[string]string) error {
	for k, v := range m {
		switch {
		case !utf8.ValidString(k):
			return fmt.Errorf("metadata: %w: the key %.64q is not UTF-8", ErrInvalid, k)
		case !utf8.ValidString(v):
			return fmt.Errorf("metadata: %w: the value of %.64q is not UTF-8: %.64q", ErrInvalid, k, v)
		}
	}
	return nil
}

// validateOwner returns an error that is ErrInvalid unless o has an incarnation
// and all of it is UTF-8.
func validateOwner(o Owner) error {
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

// ValidateSession returns an error that is ErrInvalid unless the ID and the TTL
// are positive, and the owner has an incarnation and is UTF-8.
func ValidateSession(s Session) error {
	switch {
	case s.ID <= 0:
		return fmt.Errorf("session: %w: ID %d, must be positive", ErrInvalid, s.ID)
	case s.TTL <= 0:
		return fmt.Errorf("session %d: %w: TTL %v, must be positive", s.ID, ErrInvalid, s.TTL)
	}
	if err := validateOwner(s.Owner); err != nil {
		return fmt.Errorf("session %d: %w", s.ID, err)
	}
	return nil
}

// ValidateClaim returns an error that is ErrInvalid unless the name passes
// ValidateName, the metadata is UTF-8, and While, if it is set, is a valid name other than that
// and a token.
func ValidateClaim(c Claim) error {
	if err := ValidateName(c.Name); err != nil {
		return err
	}
	if err := validateMetadata(c.Metadata); err != nil {
		return fmt.Errorf("lease %q: %w", c.Name, err)
	}
	if c.While == (Held{}) {
		return nil
	}
	if err := ValidateName(c.While.Name); err != nil {
		return fmt.Errorf("lease %q: lease.Claim.While: %w", c.Name, err)
	}
	if c.While.Name == c.Name || c.While.Token == 0 {
		return fmt.Errorf("lease %q: lease.Claim.While: %w: %q under token %d, must be another name under its token",
			c.Name, ErrInvalid, c.While.Name, c.While.Token)
	}
	return nil
}

// ValidateTransfer returns an error that is ErrInvalid unless the offer passes
// Offer.Validate and is for the name that is transferred, and the metadata is UTF-8: what is
// transferred is then a record that everybody can read.
func ValidateTransfer(m Transfer) error {
	err := m.To.Validate()
	if err == nil && m.To.Name != m.Name {
		err = fmt.Errorf("lease.Offer.Name: %w: %q, must be %q", ErrInvalid, m.To.Name, m.Name)
	}
	if err == nil {
		err = validateMetadata(m.Metadata)
	}
	if err != nil {
		return fmt.Errorf("lease %q: %w", m.Name, err)
	}
	return nil
}
