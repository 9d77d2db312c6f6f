package runlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

const (
	defaultTTL = 30 * time.Minute
	timeout    = 10 * time.Second // of each call, but for the work itself
)

// Option sets something of all locks.
type Option func(*options)

type options struct{ ttl time.Duration }

// WithTTL says for how long a lock outlives the last heartbeat of its worker. Default 30 minutes;
// the bounds are those of lease.WithTTL.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// Locks are the locks of one Keeper. Make them with New. Safe for concurrent use; they have nothing
// to close but what was taken.
type Locks struct {
	k     *lease.Keeper
	ttl   time.Duration
	lease []lease.Option
	held  sync.Map // name: *lease.Handle, of those that are held, or may be soon
}

// New returns the locks of k. An error is lease.ErrInvalid, and names the setting and its bound, or
// lease.ErrClosed.
func New(k *lease.Keeper, opts ...Option) (*Locks, error) {
	o := options{ttl: defaultTTL}
	refused := func(err error) (*Locks, error) { return nil, fmt.Errorf("runlock.New: %w", err) }
	if k == nil {
		return refused(fmt.Errorf("keeper: %w: nil", lease.ErrInvalid))
	}
	if err := input.Apply(&o, nil, lease.ErrInvalid, opts); err != nil {
		return refused(err)
	}
	l := &Locks{k: k, ttl: o.ttl, lease: []lease.Option{lease.WithTTL(o.ttl), lease.WithRenewal(lease.RenewAt(1.0 / 3))}}
	// The Keeper or its store refuse bad settings now, and not when a run is resumed.
	name, _ := lease.Name("runlock-options", fmt.Sprintf("%p", l)) // digits make a name
	h, err := k.Lease(name, l.lease...)
	if err != nil {
		return refused(err)
	}
	l.drop(h)
	return l, nil
}

// drop closes a handle that holds nothing, or gives its claim up in the background.
func (l *Locks) drop(h *lease.Handle) {
	l.held.CompareAndDelete(h.Name(), h)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Close(ctx)
}

// Name returns the name of the lease of a run: "runlock/", the workflow and the run, each escaped as
// lease.Name does, so that no two pairs have the same. An error is lease.ErrInvalid: one of them is
// empty or not UTF-8, or both are too long: 512 bytes in all, of which 8 are the kind, one is between
// them, and each '/', '%' and control character is three.
func Name(workflow, run string) (string, error) {
	name, err := lease.Name("runlock", workflow, run)
	if err != nil {
		return "", fmt.Errorf("runlock: workflow %.64q, run %.64q: %w", workflow, run, err)
	}
	return name, nil
}

// Holder is who works on a run.
type Holder struct {
	Owner lease.Owner
	Token lease.Token
	// Since is when the lock was taken; zero if the store does not tell.
	Since time.Time
	// Expires is when the lock ends if it is not renewed, by this process's clock: as the store says,
	// or a TTL from now where it does not, so then at the latest.
	Expires time.Time
}

// Get tells who works on a run; nil if none does. The errors are those of lease.Keeper.Get, but
// for ErrNotHeld.
func (l *Locks) Get(ctx context.Context, workflow, run string) (*Holder, error) {
	name, err := l.check(ctx, workflow, run)
	if err != nil {
		return nil, err
	}
	rec, err := l.get(ctx, name)
	switch {
	case errors.Is(err, lease.ErrNotHeld):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &Holder{
		Owner: rec.Owner, Token: rec.Token, Since: rec.Granted, Expires: time.Now().Add(cmp.Or(rec.Left, rec.TTL)),
	}, nil
}

func (l *Locks) get(ctx context.Context, name string) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return l.k.Get(ctx, name)
}

// Try takes the lock of a run, or tells that another worker has it: lease.ErrHeld, a
// *lease.HeldError where the holder is known. Another call of this process is another worker, also
// one that tries at the same time. Release the Lock, also after a loss.
//
// Errors besides: lease.ErrInvalid; lease.ErrClosed; lease.ErrDenied; after lease.ErrUnknown and the
// end of ctx what may have been won is given back.
func (l *Locks) Try(ctx context.Context, workflow, run string) (*Lock, error) {
	lock, err := l.open(ctx, workflow, run)
	if err != nil {
		return nil, err
	}
	bound, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	won := false
	defer func() {
		if !won {
			l.drop(lock.h)
		}
	}()
	t, err := lock.h.AcquireTerm(bound)
	if err != nil {
		return nil, err
	}
	lock.term, won = t, true
	return lock, nil
}

// open makes the handle of a lock, which is not held.
func (l *Locks) open(ctx context.Context, workflow, run string) (*Lock, error) {
	name, err := l.check(ctx, workflow, run)
	if err != nil {
		return nil, err
	}
	h, err := l.k.Lease(name, l.lease...)
	if errors.Is(err, lease.ErrNameInUse) {
		held := lease.ErrHeld
		if rec, err := l.get(ctx, name); err == nil {
			held = &lease.HeldError{Record: rec}
		}
		return nil, fmt.Errorf("runlock %q: in use in this process: %w", name, held)
	}
	if err != nil {
		return nil, err
	}
	l.held.Store(name, h)
	return &Lock{l: l, h: h}, nil
}

// Renew makes sure that no one else has the lock of a run, which Try or Around has taken here, for ttl
// from now on, though no heartbeat should follow: before work that may stop the process for long. It
// asks the store. ttl is above 0 and at most the TTL of the locks (WithTTL), which heartbeats extend
// to again and again; else the error is lease.ErrInvalid. Errors besides are those of
// lease.Handle.Renew: lease.ErrNotHeld if it is not held here. None of them ends the lock.
func (l *Locks) Renew(ctx context.Context, workflow, run string, ttl time.Duration) error {
	name, err := l.check(ctx, workflow, run)
	if err != nil {
		return err
	}
	if ttl <= 0 || ttl > l.ttl {
		return fmt.Errorf("runlock.Renew %q: ttl: %w: %v, must be above 0 and at most the TTL of %v", name, lease.ErrInvalid, ttl, l.ttl)
	}
	h, ok := l.held.Load(name)
	if !ok {
		return fmt.Errorf("runlock %q: %w", name, lease.ErrNotHeld)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return h.(*lease.Handle).Renew(ctx)
}

func (l *Locks) check(ctx context.Context, workflow, run string) (name string, err error) {
	if l == nil || l.k == nil {
		return "", fmt.Errorf("runlock.Locks: %w: the zero value, must come from New", lease.ErrInvalid)
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return "", fmt.Errorf("runlock: %w", err)
	}
	return Name(workflow, run)
}

// Lock is one worker's right to a run, from Try to Release. Safe for concurrent use.
type Lock struct {
	l    *Locks
	h    *lease.Handle
	term lease.Term
}

// Term is the ownership: its token, and the context that is done when the lock is lost or released.
// It is heartbeats that keep it, which need nothing of the worker. A Lock that is lost stays so. Of
// one that Locks.Try has not made it is nil.
func (k *Lock) Term() lease.Term {
	if k == nil {
		return nil
	}
	return k.term
}

// Release gives the lock up, after the work has stopped. On an error, lease.ErrUnknown or
// lease.ErrDenied, it goes on in the background, or the TTL ends it. It does nothing when it is
// called again.
func (k *Lock) Release(ctx context.Context) error {
	if err := k.check(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	k.l.held.CompareAndDelete(k.h.Name(), k.h)
	return k.h.Close(ctx)
}

func (k *Lock) check(ctx context.Context) error {
	if k == nil || k.h == nil || k.term == nil {
		return fmt.Errorf("runlock.Lock: %w: the zero value, must come from Locks.Try", lease.ErrInvalid)
	}
	return input.Context(ctx, lease.ErrInvalid)
}

// Around runs f if no other worker has the run, under its lock, which it releases when f has
// returned: as lease.TryRun does it, which see. If another has it the error is that of Try,
// lease.ErrHeld. Within an f of the same run it runs f at once, under the lock that there is: if ctx
// comes from that f's. It is for the hooks of an engine around resume and restart.
func (l *Locks) Around(ctx context.Context, workflow, run string, f func(ctx context.Context, t lease.Term) error) error {
	name, err := l.check(ctx, workflow, run)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("runlock.Around %q: f: %w: nil", name, lease.ErrInvalid)
	}
	at := key{l, name}
	if t, ok := ctx.Value(at).(lease.Term); ok && t.CheckAlive() {
		within, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(t.Context(), func() { cancel(context.Cause(t.Context())) })()
		err := f(within, t)
		if errors.Is(err, lease.ErrHeld) { // of another run: here it would say that f did not run
			err = errors.New(err.Error())
		}
		return err
	}
	lock, err := l.open(ctx, workflow, run)
	if err != nil {
		return err
	}
	defer l.drop(lock.h)
	return lease.TryRun(ctx, bounded{lock.h}, func(ctx context.Context, t lease.Term) error {
		return f(context.WithValue(ctx, at, t), t)
	})
}

// key is that of a context of the f of an Around: for the term.
type key struct {
	l    *Locks
	name string
}

// bounded is a handle whose requests take no longer than the timeout.
type bounded struct{ *lease.Handle }

func (b bounded) Acquire(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.Handle.Acquire(ctx)
}

func (b bounded) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.Handle.Release(ctx)
}

func (b bounded) Holder(ctx context.Context) (lease.Record, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.Handle.Holder(ctx)
}
