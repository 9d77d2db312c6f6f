package faultstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Whole is a store with all that one can have.
type Whole interface {
	store.Store
	store.Transferrer
	store.Watcher
}

// Switch is a store in whose place another can be put, as when a server's data is
// lost, or restored from an older copy. Safe for concurrent use.
type Switch struct {
	mu    sync.Mutex
	now   Whole
	until context.Context // done when another takes its place
	end   context.CancelCauseFunc
}

var _ Whole = (*Switch)(nil)

// ErrSwitched ends the watches of a store in whose place another was put.
var ErrSwitched = errors.New("faultstore: another store was put in place")

// NewSwitch returns a Switch in front of s.
func NewSwitch(s Whole) *Switch {
	w := &Switch{}
	w.To(s)
	return w
}

// To puts s in place. Calls that have begun end by the store before; watches end.
func (w *Switch) To(s Whole) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end != nil {
		w.end(ErrSwitched)
	}
	w.now = s
	w.until, w.end = context.WithCancelCause(context.Background())
}

func (w *Switch) store() Whole {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// OpenSession implements store.Store.
func (w *Switch) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	return w.store().OpenSession(ctx, s)
}

// CloseSession implements store.Store.
func (w *Switch) CloseSession(ctx context.Context, s store.Session) error {
	return w.store().CloseSession(ctx, s)
}

// Acquire implements store.Store.
func (w *Switch) Acquire(ctx context.Context, s store.Session, cs []store.Claim) ([]store.Outcome, error) {
	return w.store().Acquire(ctx, s, cs)
}

// Renew implements store.Store.
func (w *Switch) Renew(ctx context.Context, ss []store.Session) ([]store.Grant, error) {
	return w.store().Renew(ctx, ss)
}

// Release implements store.Store.
func (w *Switch) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	return w.store().Release(ctx, held)
}

// Get implements store.Store.
func (w *Switch) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	return w.store().Get(ctx, names...)
}

// List implements store.Store.
func (w *Switch) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return w.store().List(ctx, q)
}

// Transfer implements store.Transferrer.
func (w *Switch) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	return w.store().Transfer(ctx, moves)
}

// Limits implements store.Store.
func (w *Switch) Limits() store.Limits { return w.store().Limits() }

// Watch implements store.Watcher.
func (w *Switch) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		w.mu.Lock()
		s, until := w.now, w.until
		w.mu.Unlock()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(until, func() { cancel(ErrSwitched) })()
		s.Watch(ctx, of)(yield)
	}
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
