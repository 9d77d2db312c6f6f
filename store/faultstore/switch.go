package faultstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Whole is a store with all that one can have.
type Whole interface {
	store.Store
	store.Transferrer
	store.Watcher
}

// Switch is a Store in whose place another can be put, as when a server's data is
// lost, or restored from an older copy. Safe for concurrent use.
type Switch struct{ *Store }

var _ Whole = (*Switch)(nil)

// NewSwitch returns a Switch in front of s.
func NewSwitch(s Whole) *Switch { return &Switch{Wrap(s)} }

// To puts s in place. Calls that have begun end by the store before; watches end with ErrInjected.
func (w *Switch) To(s Whole) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inner = s
	w.cutWatches()
}

// Restore makes an empty store hold records, under their own tokens, as a copy that
// was put in place does; tokens to come are above beyond, too, as if it had been
// restored so. It is for stores that number all they issue without a gap, such as
// backends/memory. Records of one session expire together, a TTL from now.
func Restore(ctx context.Context, to store.Store, records []store.Record, beyond store.Token) error {
	own := store.Session{ID: 1 << 62, Owner: store.Owner{ID: "restore", Incarnation: "restore"}, TTL: time.Minute}
	if _, err := to.OpenSession(ctx, own); err != nil {
		return err
	}
	last := store.Token(0)
	put := func(s store.Session, c store.Claim) error {
		outs, err := to.Acquire(ctx, s, []store.Claim{c})
		if err != nil {
			return err
		}
		if !outs[0].OK {
			return fmt.Errorf("faultstore: restore %q: refused: %+v", c.Name, outs[0])
		}
		last = outs[0].Record.Token
		return nil
	}
	standing := store.Token(0)
	advance := func(until store.Token) error {
		for last < until {
			if err := put(own, store.Claim{Name: "restore", Nonce: 1, Supersedes: standing}); err != nil {
				return err
			}
			standing = last
		}
		return nil
	}
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b store.Record) int { return cmp.Compare(a.Token, b.Token) })
	for _, r := range records {
		if err := advance(r.Token - 1); err != nil {
			return err
		}
		s := store.Session{ID: r.Session, Owner: r.Owner, TTL: r.TTL}
		if _, err := to.OpenSession(ctx, s); err != nil {
			return err
		}
		if err := put(s, store.Claim{Name: r.Name, Nonce: r.Nonce, Metadata: r.Metadata}); err != nil {
			return err
		}
		if last != r.Token {
			return fmt.Errorf("faultstore: restore %q: token %d, must be %d: it stands in a store that was not empty, or has gaps",
				r.Name, last, r.Token)
		}
	}
	if err := advance(beyond); err != nil {
		return err
	}
	return to.CloseSession(ctx, own)
}
