package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
)

// NameStore is a backend that knows no sessions: each name has a TTL of its own.
// PerName makes a Store of it. It is safe for concurrent use, linearizable per
// name, honours the context's deadline, and a record whose TTL has passed is
// gone. An error always means that nothing is known: the call may or may not be
// applied, now or later.
//
// It may also be a NameTransferer, a NameLister and a Limiter.
type NameStore interface {
	// Acquire decides c, which is valid, as Store.Acquire does. On success the record, with owner
	// and session ID of s, expires s.TTL after the store received the call.
	Acquire(ctx context.Context, s Session, c Claim) (Outcome, error)
	// Renew sets the end of the record to s.TTL after the store received the
	// call; false if it surely is not that very ownership any more.
	Renew(ctx context.Context, s Session, h Held) (bool, error)
	// Release removes the record; false if it surely was not that very ownership
	// any more.
	Release(ctx context.Context, h Held) (bool, error)
	// Get returns the record; false if the name is not held. An error that is
	// ErrBadRecord is definite: what stands under the name is no record.
	Get(ctx context.Context, name string) (Record, bool, error)
}

// NameTransferer is a NameStore that moves an ownership atomically, as
// Transferer does; the record then expires Move.To.TTL after the store received
// the call.
type NameTransferer interface {
	Transfer(ctx context.Context, m Move) (Outcome, error)
}

// NameLister is a NameStore that lists as Store.List does.
type NameLister interface {
	List(ctx context.Context, prefix string) iter.Seq2[Record, error]
}

// PerNameOption changes a setting of PerName.
type PerNameOption func(*perName)

// WithPerNameClock sets the clock by which sessions are judged to be gone;
// SystemClock() by default, also if c is nil.
func WithPerNameClock(c Clock) PerNameOption {
	return func(p *perName) {
		if !input.Nil(c) {
			p.clock = c
		}
	}
}

// WithPerNameConcurrency bounds how many requests one call makes at once; 16 by
// default, also if n is not positive. Of a renewal, requests that have been under
// way for a 64th of the TTL do not count: names that hang hold up no others.
func WithPerNameConcurrency(n int) PerNameOption {
	return func(p *perName) {
		if n > 0 {
			p.width = n
		}
	}
}

// PerName makes a Store of a backend that knows names only. A session is then a
// batch of names, kept in the memory of this Store: renewing it renews each of
// its names.
//
//	Acquire: success ────▶ held ── Renew: false ───────▶ lost: told in Grant.Lost
//	Acquire: unknown       │ ▲╰─ Renew: true, unknown
//	   │                   │ ╰── Transfer: surely not applied
//	   ▼                   ▼
//	never renewed      Release, Transfer, a claim that supersedes it,
//	                   the session's end: not renewed any more
//
// What differs from a store with sessions:
//
//   - A session is known only to the Store it was opened with, and is gone for it
//     after CloseSession or once its TTL has passed, by this Store's clock, since
//     the last answer that renewed all of it.
//   - A record lives for a TTL since it was itself acquired or renewed, so up to
//     one TTL longer than its session. One that was acquired by a request which
//     lands after the session ended stands for one TTL.
//   - If it is not known whether some name was renewed, Grant.Err says so for
//     its session. Limits.NamesPerSession is therefore 1 unless the backend says
//     otherwise: a failing name holds up no other, nor does one that hangs.
//   - An error of Acquire, Release or Transfer ends the renewing of what the call
//     was to supersede or to give up, as its caller can't trust in it any more.
//   - Transfer does not look at the target's session. The target's Store renews
//     the record only after Acquire with Claim.Supersedes, as the Keeper does to
//     adopt it.
//   - There is no Watcher, and List answers ErrUnsupported unless the backend is
//     a NameLister. The Store is a Transferer if the backend is a NameTransferer.
//
// Without a backend every call answers ErrInvalid. A request in which the backend
// panics is one that failed. No goroutine outlives a call.
func PerName(names NameStore, opts ...PerNameOption) Store {
	p := &perName{
		clock: SystemClock(), width: 16,
		sessions: map[SessionID]*nameSession{}, held: map[ownershipKey]*nameSession{},
	}
	if input.Nil(names) {
		names = nil // and no method of it is called
	} else {
		p.names = careful{names}
	}
	p.lister, _ = names.(NameLister)
	for _, o := range opts {
		if o != nil {
			o(p)
		}
	}
	if l, ok := names.(Limiter); ok {
		p.limits = l.Limits()
	}
	if p.limits.Name == "" {
		p.limits.Name = "per-name store"
	}
	if p.limits.NamesPerSession == 0 {
		p.limits.NamesPerSession = 1
	}
	if t, ok := names.(NameTransferer); ok {
		return &perNameTransferer{perName: p, transfer: carefulTransferer{t}}
	}
	return p
}

// perName is the Store that PerName returns. Its mutex is not held while the
// backend is asked.
type perName struct {
	names  NameStore  // careful
	lister NameLister // nil: it can't list
	clock  Clock
	width  int
	limits Limits

	mu       sync.Mutex
	sessions map[SessionID]*nameSession
	held     map[ownershipKey]*nameSession // who renews it
	sweepAt  int                           // number of sessions at which to look for expired ones
}

func (p *perName) Limits() Limits { return p.limits }

// check is the beginning of every call.
func (p *perName) check(ctx context.Context, op string) error {
	if p.names == nil {
		return fmt.Errorf("%s: %s: backend: %w: nil", p.limits.Name, op, ErrInvalid)
	}
	if err := ValidateContext(ctx); err != nil {
		return fmt.Errorf("%s: %s: %w", p.limits.Name, op, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %s: %w", p.limits.Name, op, err)
	}
	return nil
}

// each runs f(0) … f(n-1), at most width at once, and returns when all have.
func (p *perName) each(n int, f func(i int)) { p.eachPatiently(n, 0, f) }

// eachPatiently is each, but what has been running for longer than patience does
// not count any more: something else is run beside it. 0: it does for ever.
func (p *perName) eachPatiently(n int, patience time.Duration, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var work func()
	work = func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if patience <= 0 || n <= p.width {
				f(i)
				continue
			}
			wg.Add(1) // for who takes over
			relief := p.clock.AfterFunc(patience, func() {
				defer wg.Done()
				work()
			})
			f(i)
			if !relief.Stop() {
				return
			}
			wg.Done()
		}
	}
	for range min(n, p.width) {
		wg.Go(work)
	}
	wg.Wait()
}

// unknown describes an error of the backend. None of them is definite about a
// session, whatever it wraps.
func (p *perName) unknown(op, name string, err error) error {
	if errors.Is(err, ErrSessionGone) {
		err = fmt.Errorf("%w: %v", ErrUnknown, err)
	}
	return fmt.Errorf("%s: %s %q: %w", p.limits.Name, op, name, err)
}

func (p *perName) sessionGone(op string, s Session) error {
	return fmt.Errorf("%s: %s: session %d of %s: %w", p.limits.Name, op, s.ID, s.Owner.ID, ErrSessionGone)
}

func (p *perName) Get(ctx context.Context, names ...string) ([]Record, error) {
	if err := p.check(ctx, "get"); err != nil {
		return nil, err
	}
	records, held, errs := make([]Record, len(names)), make([]bool, len(names)), make([]error, len(names))
	p.each(len(names), func(i int) {
		var err error
		records[i], held[i], err = p.names.Get(ctx, names[i])
		switch {
		case errors.Is(err, ErrBadRecord):
			records[i], held[i] = Record{Name: names[i]}, true
		case err != nil:
			errs[i] = p.unknown("get", names[i], err)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	found := records[:0]
	for i, r := range records {
		if held[i] {
			found = append(found, r)
		}
	}
	return found, nil
}

func (p *perName) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	err := p.check(ctx, "list")
	if p.lister != nil && err == nil {
		return p.lister.List(ctx, prefix)
	}
	if err == nil {
		err = fmt.Errorf("%s: list %q: %w", p.limits.Name, prefix, ErrUnsupported)
	}
	return func(yield func(Record, error) bool) { yield(Record{}, err) }
}
