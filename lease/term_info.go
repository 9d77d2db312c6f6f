package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// This file is what terms and records tell of themselves, for people and tools. Nothing
// decides by it.

var (
	_ Informed = (*term)(nil)
	_ Informed = (*narrowTerm)(nil)
)

// infoOf is what is known of a term from its beginning, when its record was heard of.
func infoOf(rec Record, heard store.Reading, by *session, in string) TermInfo {
	i := TermInfo{Granted: rec.Granted, Renewals: int(by.renewals.Load()), Renewal: by.pool.renewal, Store: in}
	if i.Granted.IsZero() {
		i.Granted = time.Unix(0, heard.Wall)
	}
	return i
}

// Info implements Informed.
func (t *term) Info() TermInfo {
	i := t.info
	i.Renewals = int(t.renewals.Load()) - i.Renewals
	now := t.clock.Now()
	left := t.remaining(now)
	for p := t; p != nil; p = p.parent {
		if left = min(left, p.remaining(now)); p.over.Load() || left <= 0 {
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
