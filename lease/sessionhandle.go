package lease

import (
	"fmt"
	"unicode/utf8"
)

// This file is about what a store wants to get back with every call on a session.

// MaxHandle is the longest handle of a session, in bytes.
const MaxHandle = 256

// validateHandle returns an error that is ErrInvalid unless handle is UTF-8 of at most
// MaxHandle bytes.
func validateHandle(handle string) error {
	switch {
	case len(handle) > MaxHandle:
		return fmt.Errorf("lease.Session.Handle: %w: %d bytes, must be at most %d", ErrInvalid, len(handle), MaxHandle)
	case !utf8.ValidString(handle):
		return fmt.Errorf("lease.Session.Handle: %w: %.64q, must be UTF-8", ErrInvalid, handle)
	}
	return nil
}

// ValidateNoHandle returns an error that is ErrInvalid unless handle is empty. Stores that
// give no handles ask it, as any that they get is another store's.
func ValidateNoHandle(handle string) error {
	if handle == "" {
		return nil
	}
	return fmt.Errorf("lease.Session.Handle: %w: %.64q, must be empty: it is of another store, this one gives none", ErrInvalid, handle)
}
