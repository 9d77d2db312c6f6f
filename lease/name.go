package lease

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

// Name builds a lease name from a kind and the segments a user gave, each
// escaped, so that names of different kinds or segments never collide:
// Name("singleton", "a/b") is "singleton/a%2Fb". It returns an error that is
// ErrInvalid if a segment is empty or not UTF-8, or the result is too long.
func Name(kind string, segments ...string) (string, error) {
	var b strings.Builder
	b.WriteString(kind)
	for _, s := range segments {
		if s == "" {
			return "", fmt.Errorf("%s name: %w: empty", kind, ErrInvalid)
		}
		if !utf8.ValidString(s) {
			return "", fmt.Errorf("%s name %.64q: %w: not UTF-8", kind, s, ErrInvalid)
		}
		b.WriteByte('/')
		escape(&b, s)
	}
	if b.Len() > MaxName {
		return "", fmt.Errorf("%s name %.32q…: %w: %d bytes when escaped, at most %d with its kind",
			kind, strings.Join(segments, "/"), ErrInvalid, b.Len(), MaxName)
	}
	name := b.String()
	return name, ValidateName(name)
}

// escape writes s with '%', '/' and control characters as %XX.
func escape(b *strings.Builder, s string) {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' || c == '/' || c < ' ' || c == 0x7f {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
}

func abbreviate(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", …"
}
