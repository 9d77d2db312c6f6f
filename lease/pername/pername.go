package pername

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// Backend knows no sessions: each name has a TTL of its own. It is safe for concurrent use, linearizable per
// name, honours the context's deadline, and a record whose TTL has passed is
// gone. An error always means that nothing is known: the call may or may not be
// applied, now or later; but lease.ErrDenied, that it is not.
//
// It may also be a Transferer, a Lister and a lease.Limiter.
type Backend interface {
	// Acquire decides c, which is valid, as lease.Store.Acquire does. On success the record,
	// with owner and session ID of s, expires s.TTL after the backend received the call.
	Acquire(ctx context.Context, s lease.Session, c lease.Claim) (lease.Outcome, error)
	// Renew sets the end of the record to s.TTL after the backend received the
	// call; false if it surely is not that very ownership any more.
	Renew(ctx context.Context, s lease.Session, h lease.Held) (bool, error)
	// Release removes the record; false if it surely was not that very ownership
	// any more.
	Release(ctx context.Context, h lease.Held) (bool, error)
	// Get returns the record; false if the name is not held. An error that is
	// lease.ErrBadRecord is definite: what stands under the name is no record.
	Get(ctx context.Context, name string) (lease.Record, bool, error)
}

// Transferer is a Backend that moves an ownership atomically, as
// lease.TransferStore does; the record then expires m.To.TTL after the backend received the
// call.
type Transferer interface {
	Transfer(ctx context.Context, m lease.Transfer) (lease.Outcome, error)
}

// Lister is a Backend that lists as lease.Store.List does.
type Lister interface {
	List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error]
}

// Option sets something of a Store.
type Option func(*settings)

type settings struct {
	missing input.Missing
	clock   lease.Clock
	width   int
}

// WithClock sets the clock by which sessions are judged to be gone. Default
// lease.SystemClock().
func WithClock(c lease.Clock) Option {
	return func(s *settings) { s.missing.Check("WithClock", c); s.clock = c }
}

// WithConcurrency bounds how many requests one call makes at once, at least 1. Default
// 16. Of a renewal, requests that have been under way for a 64th of the TTL do not count:
// names that hang hold up no others.
func WithConcurrency(n int) Option { return func(s *settings) { s.width = n } }

// New makes a lease.Store of a backend; the package's documentation says what differs from
// a store with sessions. The Store is a lease.TransferStore if the backend is a Transferer.
// An error is lease.ErrInvalid.
//
// A request in which the backend panics, or ends its goroutine (runtime.Goexit), is one that
// failed. No goroutine outlives a call.
func New(b Backend, opts ...Option) (lease.Store, error) {
	set := settings{clock: lease.SystemClock(), width: 16}
	err := input.Apply(&set, &set.missing, lease.ErrInvalid, opts)
	switch {
	case err != nil:
		return nil, fmt.Errorf("pername.New: %w", err)
	case input.Nil(b):
		return nil, fmt.Errorf("pername.New: backend: %w: nil", lease.ErrInvalid)
	case set.width < 1 || set.width > input.MaxCount:
		return nil, fmt.Errorf("pername.WithConcurrency: %w: %d, must be at least 1 and at most %d",
			lease.ErrInvalid, set.width, input.MaxCount)
	}
	p := &store{
		names: careful{b}, clock: set.clock, width: set.width,
		sessions: map[lease.SessionID]*session{}, held: map[ownershipKey]*session{},
	}
	if l, ok := b.(Lister); ok {
		p.lister = carefulLister{l}
	}
	if l, ok := b.(lease.Limiter); ok {
		p.limits = l.Limits()
	}
	if p.limits.Name == "" {
		p.limits.Name = "per-name store"
	}
	p.limits.LocalSessions = true
	if p.limits.NamesPerSession == 0 {
		p.limits.NamesPerSession = 1
	}
	if t, ok := b.(Transferer); ok {
		return &transferring{store: p, transfer: carefulTransferer{t}}, nil
	}
	return p, nil
}

// store is the Store that New returns. Its mutex is not held while the
// backend is asked.
type store struct {
	names  Backend // careful
	lister Lister  // careful; nil: it can't list
	clock  lease.Clock
	width  int
	limits lease.StoreLimits

	mu       sync.Mutex
	sessions map[lease.SessionID]*session
	held     map[ownershipKey]*session // the session that renews it
	sweepAt  int                       // number of sessions at which to look for expired ones
}

func (p *store) Limits() lease.StoreLimits { return p.limits }

// check is the beginning of every call.
func (p *store) check(ctx context.Context, op string) error {
	if err := lease.ValidateContext(ctx); err != nil {
		return fmt.Errorf("%s: %s: %w", p.limits.Name, op, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %s: %w", p.limits.Name, op, err)
	}
	return nil
}

// each runs f(0) … f(n-1), at most width at once, and returns when all have.
func (p *store) each(n int, f func(i int)) { p.eachPatiently(n, 0, f) }

// eachPatiently is each, but what has been running for longer than patience does
// not count any more: something else is run beside it. 0: it does for ever.
func (p *store) eachPatiently(n int, patience time.Duration, f func(i int)) {
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
			wg.Add(1) // for the one that takes over
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
func (p *store) unknown(op, name string, err error) error {
	if errors.Is(err, lease.ErrSessionGone) {
		err = fmt.Errorf("%w: %v", lease.ErrUnknown, err)
	}
	return fmt.Errorf("%s: %s %q: %w", p.limits.Name, op, name, err)
}

func (p *store) sessionGone(op string, s lease.Session) error {
	return fmt.Errorf("%s: %s: session %d of %s: %w", p.limits.Name, op, s.ID, s.Owner.ID, lease.ErrSessionGone)
}

func (p *store) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	if err := p.check(ctx, "get"); err != nil {
		return nil, err
	}
	records, held, errs := make([]lease.Record, len(names)), make([]bool, len(names)), make([]error, len(names))
	p.each(len(names), func(i int) {
		var err error
		records[i], held[i], err = p.names.Get(ctx, names[i])
		switch {
		case errors.Is(err, lease.ErrBadRecord):
			records[i], held[i] = lease.Record{Name: names[i]}, true
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

func (p *store) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	err := p.check(ctx, "list")
	if p.lister != nil && err == nil {
		return p.lister.List(ctx, prefix)
	}
	if err == nil {
		err = fmt.Errorf("%s: list %q: %w", p.limits.Name, prefix, lease.ErrUnsupported)
	}
	return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, err) }
}
