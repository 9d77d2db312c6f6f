package runlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// Defaults.
const (
	TTL       = 30 * time.Minute
	Heartbeat = 10 * time.Minute
	Timeout   = 10 * time.Second
)

// longest bounds every duration.
const longest = input.Longest

// Option sets something of all locks.
type Option func(*options)

type options struct {
	ttl, heartbeat, timeout time.Duration
	lease                   []lease.Option
}

// WithTTL says for how long a lock outlives the last heartbeat of its worker. Default 30 minutes;
// the bounds are those of lease.WithTTL.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithHeartbeat sets the time between renewals, before jitter. Default: a third of the TTL. With
// jitter and margin it must be below the TTL (lease.RenewAt).
func WithHeartbeat(d time.Duration) Option { return func(o *options) { o.heartbeat = d } }

// WithTimeout bounds each call, but for the work itself: Try, Renew, Get, Release, and what Around
// does before and after f. Default 10 s; at least 1 ms and at most a year. The Keeper's
// OperationTimeout bounds it, too.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithLease sets options of the leases, such as lease.WithMetadata or lease.WithParent. Default:
// none. The TTL and the renewal are set by WithTTL and WithHeartbeat, whatever these say.
func WithLease(opts ...lease.Option) Option {
	return func(o *options) { o.lease = append(o.lease, opts...) }
}

// Locks are the locks of one Keeper. Make them with New. Safe for concurrent use; they have nothing
// to close but what was taken.
type Locks struct {
	k       *lease.Keeper
	timeout time.Duration
	ttl     time.Duration
	lease   []lease.Option
}

// New returns the locks of k. An error is lease.ErrInvalid, and names the setting and its bound, or
// lease.ErrClosed.
func New(k *lease.Keeper, opts ...Option) (*Locks, error) {
	o := options{ttl: TTL, timeout: Timeout}
	refused := func(err error) (*Locks, error) { return nil, fmt.Errorf("runlock.New: %w", err) }
	if k == nil {
		return refused(fmt.Errorf("keeper: %w: nil", lease.ErrInvalid))
	}
	if err := input.Apply(&o, nil, lease.ErrInvalid, opts); err != nil {
		return refused(err)
	}
	if o.timeout < time.Millisecond || o.timeout > longest {
		return refused(fmt.Errorf("WithTimeout: %w: %v, must be at least 1ms and at most %v", lease.ErrInvalid, o.timeout, longest))
	}
	fraction := 1.0 / 3
	if o.heartbeat != 0 {
		if o.heartbeat < 0 || o.heartbeat >= o.ttl {
			return refused(fmt.Errorf("WithHeartbeat: %w: %v, must be above 0 and below the TTL of %v", lease.ErrInvalid, o.heartbeat, o.ttl))
		}
		fraction = float64(o.heartbeat) / float64(o.ttl)
	}
	l := &Locks{k: k, timeout: o.timeout, ttl: o.ttl}
	l.lease = append(o.lease, lease.WithTTL(o.ttl), lease.WithRenewal(lease.RenewAt(fraction)))
	// What the Keeper or its store refuses is to be known now, and not when a run is resumed.
	name, err := lease.Name("runlock-options", fmt.Sprintf("%p", l))
	if err != nil {
		return refused(err)
	}
	h, err := k.Lease(name, l.lease...)
	if err != nil {
		return refused(err)
	}
	drop(h)
	return l, nil
}

// drop closes a handle that holds nothing, or whose claim is to be given up in the background.
func drop(h *lease.Handle) {
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
	// Backend is the name of the store (lease.Keeper.StoreName).
	Backend string
}

// Get tells who works on a run; nil if nobody does. The errors are those of lease.Keeper.Get, but
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
		Owner: rec.Owner, Token: rec.Token, Since: rec.Granted, Expires: time.Now().Add(left), Backend: l.k.StoreName(),
	}, nil
}

func (l *Locks) get(ctx context.Context, name string) (lease.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
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
	bound, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	won := false
	defer func() {
		if !won {
			drop(lock.h)
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
	return &Lock{l: l, h: h}, nil
}

func (l *Locks) check(ctx context.Context, workflow, run string) (name string, err error) {
	if l == nil || l.k == nil {
		return "", fmt.Errorf("runlock.Locks: %w: made by nobody, must come from New", lease.ErrInvalid)
	}
	if err := lease.ValidateContext(ctx); err != nil {
		return "", fmt.Errorf("runlock: %w", err)
	}
	return Name(workflow, run)
}
