package sequencer

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Sequencer is one ownership of one lease. The zero Sequencer is none.
//
// Its text is the name, "@", and the token in decimal: singleton/cron@42. Bytes of the name other
// than ASCII letters, digits and -._~/ are written as %XX, so the text is plain ASCII, and
// fits a header, a URL or a column as it is. One sequencer has one text.
type Sequencer struct {
	// Name is the lease's name.
	Name string
	// Token is the fencing token of the ownership.
	Token lease.Token
}

// MaxText is the longest text of a sequencer, in bytes.
const MaxText = 3*store.MaxName + len("@") + len("18446744073709551615")

// Of returns the sequencer of an ownership: a lease.Term, singleton.Guarded or *sharding.Entity.
// The error is lease.ErrInvalid if o is nil or has no token, as the terms of a lease that knows
// none, or no valid name.
func Of(o lease.Ownership) (Sequencer, error) {
	if input.Nil(o) {
		return Sequencer{}, fmt.Errorf("sequencer.Of: ownership: %w: nil", lease.ErrInvalid)
	}
	s := Sequencer{o.Name(), o.Token()}
	if err := s.Validate(); err != nil {
		return Sequencer{}, err
	}
	return s, nil
}

// Validate returns an error that is lease.ErrInvalid unless the name passes store.ValidateName and
// the token is above 0.
func (s Sequencer) Validate() error {
	if err := store.ValidateName(s.Name); err != nil {
		return fmt.Errorf("sequencer: %w", err)
	}
	if s.Token == 0 {
		return fmt.Errorf("sequencer of %q: %w: token 0, must be above: there is nothing to fence by", s.Name, lease.ErrInvalid)
	}
	return nil
}

// String returns the text, which Parse takes if s is valid.
func (s Sequencer) String() string {
	b := make([]byte, 0, len(s.Name)+24)
	const hex = "0123456789ABCDEF"
	for i := range len(s.Name) {
		if c := s.Name[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(strconv.AppendUint(append(b, '@'), uint64(s.Token), 10))
}

// plain reports whether a byte of a name stands for itself.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0
}

// MarshalText returns the text. The error is that of Validate.
func (s Sequencer) MarshalText() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return []byte(s.String()), nil
}

// UnmarshalText is Parse. After an error s is as before.
func (s *Sequencer) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// Parse reads the text of a sequencer. It takes what String writes for a valid sequencer and
// nothing else: no space, no sign, no leading zero, nothing escaped that need not be. The error is
// lease.ErrInvalid and says what is wrong.
func Parse(text string) (Sequencer, error) {
	bad := func(format string, args ...any) (Sequencer, error) {
		return Sequencer{}, fmt.Errorf("sequencer %.64q: %w: %s", text, lease.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if len(text) > MaxText {
		return bad("%d bytes, at most %d", len(text), MaxText)
	}
	escaped, digits, ok := strings.Cut(text, "@")
	if !ok {
		return bad("no @, must be a lease's name, @, and a token")
	}
	token, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return bad("token %.32q: must be a number from 1 to %d", digits, uint64(math.MaxUint64))
	}
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return bad("name: %v", err)
	}
	s := Sequencer{name, lease.Token(token)}
	if err := s.Validate(); err != nil {
		return Sequencer{}, fmt.Errorf("sequencer %.64q: %w", text, err)
	}
	if written := s.String(); written != text {
		return bad("must be written as %.64s", written)
	}
	return s, nil
}
