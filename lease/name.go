package lease

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/store"
)

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
	if b.Len() > store.MaxName {
		return "", fmt.Errorf("%s name %.32q…: %w: %d bytes when escaped, at most %d with its kind",
			kind, strings.Join(segments, "/"), ErrInvalid, b.Len(), store.MaxName)
	}
	name := b.String()
	return name, store.ValidateName(name)
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
