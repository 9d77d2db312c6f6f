package lease

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// This file is what terms and records tell of themselves, for people and tools. Nothing
// decides by it.

// TermInfo is what a term tells of itself. CheckAlive decides; this does not.
type TermInfo struct {
	// Granted is when the term was won, by the store's word (Record.Granted) or, if that
	// does not tell, by this node's wall clock when it heard.
	Granted time.Time
	// TrustedUntil is when trust ends if nothing is renewed, by this node's wall clock, in
	// this term or in one that it hangs on (WithParent); zero if the term has ended.
	TrustedUntil time.Time
	// Renewals is how often the session was renewed since, Renewal by which policy.
	Renewals int
	Renewal  Renewal
	// Store is the store's name (StoreLimits.Name), Purpose what WithPurpose said.
	Store, Purpose string
}

// Informed is implemented by terms that tell of themselves; those of a Keeper do.
type Informed interface {
	// Info asks nothing of the store.
	Info() TermInfo
}

var (
	_ Informed = (*term)(nil)
	_ Informed = (*narrowTerm)(nil)
)

// origin is what is known of a term from its beginning.
type origin struct {
	granted        time.Time
	renewals       int64 // of the session, until then
	store, purpose string
}

// originLocked is that of a term that is won now, by the record.
func (h *Handle) originLocked(rec Record, s *session) origin {
	o := origin{granted: rec.Granted, renewals: s.renewals.Load(), store: h.k.limits.Name, purpose: h.metadata[purposeKey]}
	if o.granted.IsZero() {
		o.granted = time.Unix(0, h.k.clock.Now().Wall)
	}
	return o
}

// Info implements Informed.
func (t *term) Info() TermInfo {
	i := TermInfo{
		Granted: t.origin.granted, Renewals: int(t.sess.renewals.Load() - t.origin.renewals),
		Renewal: t.sess.pool.renewal,
		Store:   t.origin.store, Purpose: t.origin.purpose,
	}
	now := t.sess.clock.Now()
	left := t.sess.remaining(now)
	for p := t; p != nil; p = p.parent {
		if left = min(left, p.sess.remaining(now)); p.over.Load() || left <= 0 {
			return i
		}
	}
	i.TrustedUntil = time.Unix(0, now.Wall+int64(left))
	return i
}

// Info implements Informed; zero if the term within tells nothing.
func (t *narrowTerm) Info() (i TermInfo) {
	if within, ok := t.Term.(Informed); ok {
		i = within.Info()
	}
	if !t.CheckAlive() {
		i.TrustedUntil = time.Time{}
	}
	return i
}

// purposeKey is the key of the metadata under which records have their purpose.
const purposeKey = "holdfast/purpose"

// MaxPurpose bounds what WithPurpose takes, in bytes.
const MaxPurpose = 128

// WithPurpose says what the lease is for, such as "recovery" or "outbox": its record and its
// terms tell. Default: nothing. It is UTF-8 and at most MaxPurpose bytes, or Keeper.Lease
// returns ErrInvalid.
func WithPurpose(purpose string) Option { return func(o *options) { o.purpose = purpose } }

// Purpose is what the record's holder said by WithPurpose; empty if nothing.
func (r Record) Purpose() string { return r.Metadata[purposeKey] }

// describePurpose puts the purpose with the metadata.
func (o *options) describePurpose() error {
	switch {
	case o.purpose == "":
		return nil
	case len(o.purpose) > MaxPurpose || !utf8.ValidString(o.purpose):
		return fmt.Errorf("lease.WithPurpose: %w: %.64q (%d bytes), must be UTF-8 of at most %d bytes",
			ErrInvalid, o.purpose, len(o.purpose), MaxPurpose)
	}
	o.metadata = merged(o.metadata, map[string]string{purposeKey: o.purpose})
	return nil
}
