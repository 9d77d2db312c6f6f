package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// Limits are bounds of a store that the Keeper keeps to: what is beyond them is
// ErrInvalid where it is configured. A store that has any refuses what is beyond them too, as
// what ValidateSession, ValidateClaim and ValidateTransfer say.
type Limits struct {
	// Name identifies the store in errors, logs and metrics, e.g. "etcd".
	Name string
	// MinTTL is the shortest TTL the store can honour; 0: no bound of its own.
	MinTTL time.Duration
	// MaxTTL is the longest TTL the store can honour; 0: no bound of its own.
	MaxTTL time.Duration
	// CheckName returns an error for a name that ValidateName takes and the store can't
	// hold; the text says why. nil: there is none. A store whose keys can't have some byte,
	// or fold or pad them, writes it as something else: each name as one key, that of a
	// prefix as a prefix of it (as package observed does). Then keys are longer than
	// names, and what is too long is found here. It answers the same for ever, at any number of
	// calls at once.
	CheckName func(name string) error
	// MaxMetadata bounds the bytes of a record's metadata, keys and values together,
	// whatever these are; 0: no bound.
	MaxMetadata int
	// While: Acquire heeds Claim.While. Where it does not, the Keeper alone sees to it that
	// leases which hang on others (WithParent) are claimed while these are alive.
	While bool
	// BySession: List answers a Query.Session, and at less cost than one for all, for instance by an
	// index. A Keeper then reconciles by its own sessions' records, and does not get what is
	// everybody's.
	BySession bool
	// Batch bounds how many names one call may carry; 0: no bound.
	Batch int
	// Prompt: every call returns as soon as its context ends, whatever the network does; that a disk
	// syncs may take its time. The
	// Keeper then makes first attempts on the goroutine of their caller, which is
	// quicker; a store that is not prompt is called on goroutines that can be left
	// behind.
	Prompt bool
	// Endpoints are where the store is reached at present, for people: they are in what is logged
	// and told of a Keeper.
	Endpoints []string
}

// ValidateName returns an error that is ErrInvalid unless the function ValidateName and CheckName both
// take name.
func (l Limits) ValidateName(name string) error {
	if err := ValidateName(name); err != nil || l.CheckName == nil {
		return err
	}
	err := boundary.Call(func() error { return l.CheckName(name) })
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return fmt.Errorf("lease name %.64q: %w (a bound of store %s)", name, err, l.Name)
}

// ValidateMetadata returns an error that is ErrInvalid unless every key and value is UTF-8 and all of
// them are within MaxMetadata. Encode what is not UTF-8, for instance with base64.
func (l Limits) ValidateMetadata(m map[string]string) error {
	size := 0
	for k, v := range m {
		switch {
		case !utf8.ValidString(k):
			return fmt.Errorf("metadata: %w: the key %.64q is not UTF-8", ErrInvalid, k)
		case !utf8.ValidString(v):
			return fmt.Errorf("metadata: %w: the value of %.64q is not UTF-8: %.64q", ErrInvalid, k, v)
		}
		size += len(k) + len(v)
	}
	if l.MaxMetadata > 0 && size > l.MaxMetadata {
		return fmt.Errorf("metadata: %w: its keys and values have %d bytes, at most %d (a bound of store %s)",
			ErrInvalid, size, l.MaxMetadata, l.Name)
	}
	return nil
}

// ValidateSession returns an error that is ErrInvalid unless the ID and the TTL are positive, the TTL
// is at most MaxTTL, and the owner has an incarnation and is UTF-8. A TTL below MinTTL is for the store
// to raise.
func (l Limits) ValidateSession(s Session) error {
	switch {
	case s.ID <= 0:
		return fmt.Errorf("session: %w: ID %d, must be positive", ErrInvalid, s.ID)
	case s.TTL <= 0:
		return fmt.Errorf("session %d: %w: TTL %v, must be positive", s.ID, ErrInvalid, s.TTL)
	case l.MaxTTL > 0 && s.TTL > l.MaxTTL:
		return fmt.Errorf("session %d: %w: TTL %v, must be at most %v (a bound of store %s)", s.ID, ErrInvalid, s.TTL, l.MaxTTL, l.Name)
	}
	if err := s.Owner.validate(); err != nil {
		return fmt.Errorf("session %d: %w", s.ID, err)
	}
	return nil
}

// ValidateClaim returns an error that is ErrInvalid unless the name and the metadata are valid, and
// While, if it is set, is another valid name and a token. For a While of which the store knows nothing
// the error is ErrUnsupported.
func (l Limits) ValidateClaim(c Claim) error {
	if err := l.ValidateName(c.Name); err != nil {
		return err
	}
	if err := l.ValidateMetadata(c.Metadata); err != nil {
		return fmt.Errorf("lease %q: %w", c.Name, err)
	}
	if c.While == (Held{}) {
		return nil
	}
	if err := ValidateName(c.While.Name); err != nil {
		return fmt.Errorf("lease %q: store.Claim.While: %w", c.Name, err)
	}
	if c.While.Name == c.Name || c.While.Token == 0 {
		return fmt.Errorf("lease %q: store.Claim.While: %w: %q under token %d, must be another name under its token",
			c.Name, ErrInvalid, c.While.Name, c.While.Token)
	}
	if !l.While {
		return fmt.Errorf("lease %q: store.Claim.While: %w (store %s)", c.Name, ErrUnsupported, l.Name)
	}
	return nil
}

// ValidateTransfer returns an error that is ErrInvalid unless the offer passes Offer.Validate and is
// for the name that is transferred, and the metadata is valid: what is transferred is then a record
// that everybody can read.
func (l Limits) ValidateTransfer(m Transfer) error {
	err := m.To.Validate()
	if err == nil && m.To.Name != m.Name {
		err = fmt.Errorf("store.Offer.Name: %w: %q, must be %q", ErrInvalid, m.To.Name, m.Name)
	}
	if err == nil {
		err = l.ValidateMetadata(m.Metadata)
	}
	if err != nil {
		return fmt.Errorf("lease %q: %w", m.Name, err)
	}
	return nil
}

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
