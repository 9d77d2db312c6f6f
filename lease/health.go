package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// healthName is read to see that the store answers. It is never held.
const healthName = "holdfast/health"

// Health reports whether this node can count on its leases: nil if the store
// answered a small read, within AttemptTimeout or until ctx ends, and no lease of
// this Keeper is in trouble. Otherwise it joins what is wrong, each with the
// Keeper's and the store's name, as errors that are one line each:
//
//   - the store did not answer: wraps why;
//   - the store denied the latest request for sessions or records: wraps ErrDenied;
//   - the store's history went back: wraps ErrSetback and says what to do;
//   - leases were lost (or a transfer of them failed) and their owners called
//     neither Release nor Acquire yet, so that work may still run under them;
//   - sessions were not renewed at the last attempt: for how long their leases
//     are still trusted.
//
// Of the last two it gives numbers, and some names. ErrClosed, alone, after Close
// was called. Safe for concurrent use: it makes one request and takes the
// Keeper's lock for moments only, however many leases there are.
func (k *Keeper) Health(ctx context.Context) error {
	if err := k.check(ctx); err != nil {
		return err
	}
	unwell := func(err error) error {
		return fmt.Errorf("keeper %s (store %s): %w", k.owner.ID, k.limits.Name, err)
	}
	var errs []error
	_, err := ask(ctx, k, func(ctx context.Context) ([]Record, error) { return k.store.Get(ctx, healthName) })
	if err := k.Setback(); err != nil {
		errs = append(errs, err)
	}
	if err != nil && !errors.Is(err, ErrBadRecord) && !errors.Is(err, ErrSetback) { // which are answers, too
		errs = append(errs, unwell(fmt.Errorf("the store does not answer: %w", err)))
	}
	if denied := k.deniedNow(); denied != nil && !errors.Is(err, ErrDenied) { // else err says so
		errs = append(errs, unwell(fmt.Errorf("the store denies: %w", denied)))
	}
	if names := k.unreleased(); len(names) > 0 {
		errs = append(errs, unwell(fmt.Errorf("%d leases were lost and are not released: %s", len(names), abbreviate(names))))
	}
	if ss := k.unrenewed(); len(ss) > 0 {
		errs = append(errs, unwell(fmt.Errorf("%d sessions were not renewed: %s", len(ss), describe(ss))))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing { // which ends every term
		return unwell(ErrClosed)
	}
	return errors.Join(errs...)
}

// healthStride is for how many entries a look at all leases keeps the lock.
const healthStride = 256

// visit calls f for the entries of a map that the lock guards, and lets others
// have the lock meanwhile. What comes or goes during that may be passed over.
func visit[K comparable, V any](k *Keeper, entries map[K]V, f func(V)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, v := range entries {
		f(v)
		if n++; n%healthStride == 0 {
			k.mu.Unlock()
			runtime.Gosched() // or this goroutine would have it again before those that wait
			k.mu.Lock()
		}
	}
}

// unreleased returns the names, in order, whose terms are over and whose owners
// have not said that their work is.
func (k *Keeper) unreleased() (names []string) {
	visit(k, k.handles, func(h *Handle) {
		if h.claim.Status == settle.Ended && h.op == nil && !h.lapsed {
			names = append(names, h.name)
		}
	})
	slices.Sort(names)
	return names
}

// lateSession is a session whose renewal failed.
type lateSession struct {
	id       store.SessionID
	leases   int
	failures int // in a row
	left     time.Duration
}

// unrenewed returns the sessions whose last renewal failed, or whose trust is over
// before the loop saw it; the most urgent first.
func (k *Keeper) unrenewed() (late []lateSession) {
	now := k.clock.Now()
	visit(k, k.sessions, func(s *session) {
		if left := s.remaining(now); s.failures > 0 || left <= 0 && s.expiryLocked() != ErrLapsed {
			late = append(late, lateSession{s.ID, len(s.handles), s.failures, left})
		}
	})
	slices.SortFunc(late, func(a, b lateSession) int { return cmp.Compare(a.left, b.left) })
	return late
}

func describe(late []lateSession) string {
	const most = 5
	var parts []string
	for _, s := range late[:min(len(late), most)] {
		trust := "trusted no more"
		if s.left > 0 {
			trust = fmt.Sprintf("trusted for %v more", s.left.Round(time.Millisecond))
		}
		parts = append(parts, fmt.Sprintf("%d with %d leases, %d failures, %s", s.id, s.leases, s.failures, trust))
	}
	if len(late) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, "; ")
}
