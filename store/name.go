package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxName is the longest lease name, in bytes.
const MaxName = 512

// ValidateName returns an error that is ErrInvalid unless name is UTF-8 of 1 to
// MaxName bytes, without control characters, and its slash-separated segments
// are not empty.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("lease name: %w: empty, must have 1 to %d bytes", ErrInvalid, MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("lease name %.32q…: %w: %d bytes, at most %d", name, ErrInvalid, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("lease name %q: %w: not UTF-8", name, ErrInvalid)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("lease name %q: %w: has a control character", name, ErrInvalid)
	}
	if name[0] == '/' || name[len(name)-1] == '/' || strings.Contains(name, "//") {
		return fmt.Errorf("lease name %q: %w: has an empty segment", name, ErrInvalid)
	}
	return nil
}
