package runlock

import (
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
	left := rec.TTL
	if rec.Left > 0 {
		left = rec.Left
	}
	return &Holder{
		Owner: rec.Owner, Token: rec.Token, Since: rec.Granted, Expires: time.Now().Add(left),
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
