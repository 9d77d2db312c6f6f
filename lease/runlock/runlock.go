package runlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

const defaultTTL = 30 * time.Minute

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
	lease []lease.Option
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
	l := &Locks{k: k, lease: []lease.Option{lease.WithTTL(o.ttl), lease.WithRenewal(lease.RenewAt(1.0 / 3))}}
	// The Keeper or its store refuse bad settings now, and not when a run is resumed.
	name, _ := lease.Name("runlock-options", fmt.Sprintf("%p", l)) // digits make a name
	h, err := k.Lease(name, l.lease...)
	if err != nil {
		return refused(err)
	}
	drop(h)
	return l, nil
}

// drop closes a handle that holds nothing, or gives its claim up in the background.
func drop(h *lease.Handle) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Close(ctx)
}

// Name returns the name of the lease of a run: "runlock/", the workflow and the run, each escaped as
// lease.Name does, so that no two pairs have the same. An error is lease.ErrInvalid: one of them is
// empty or not UTF-8, or both are too long: 512 bytes in all, of which 8 are the kind, one is between
// them, and each '/', '%' and control character is three. Keeper.Get says who works on it.
func Name(workflow, run string) (string, error) {
	name, err := lease.Name("runlock", workflow, run)
	if err != nil {
		return "", fmt.Errorf("runlock: workflow %.64q, run %.64q: %w", workflow, run, err)
	}
	return name, nil
}

// Try takes the lock of a run, or tells that another worker has it: lease.ErrHeld, a
// *lease.HeldError where the holder is known. Another call of this process is another worker, also
// one that tries at the same time. The lock is a lease that is held: Close it after the work has
// stopped, also after a loss. Its Term has the token and the context.
//
// Errors besides: lease.ErrInvalid; lease.ErrClosed; lease.ErrDenied; after lease.ErrUnknown and the
// end of ctx what may have been won is given back.
func (l *Locks) Try(ctx context.Context, workflow, run string) (*lease.Handle, error) {
	h, err := l.open(ctx, workflow, run)
	if err != nil {
		return nil, err
	}
	if _, err := h.AcquireTerm(ctx); err != nil {
		drop(h)
		return nil, err
	}
	return h, nil
}

// open makes the handle of a lock, which is not held.
func (l *Locks) open(ctx context.Context, workflow, run string) (*lease.Handle, error) {
	if err := input.Call(ctx, l != nil && l.k != nil, "runlock.New", lease.ErrInvalid); err != nil {
		return nil, fmt.Errorf("runlock: %w", err)
	}
	name, err := Name(workflow, run)
	if err != nil {
		return nil, err
	}
	h, err := l.k.Lease(name, l.lease...)
	if errors.Is(err, lease.ErrNameInUse) {
		held := lease.ErrHeld
		if rec, err := l.k.Get(ctx, name); err == nil {
			held = &lease.HeldError{Record: rec}
		}
		return nil, fmt.Errorf("runlock %q: in use in this process: %w", name, held)
	}
	return h, err
}

// Around runs f if no other worker has the run, under its lock, which it releases when f has
// returned: as lease.TryRun does it, which see. If another has it the error is that of Try,
// lease.ErrHeld. Within an f of the same run it runs f at once, under the lock that there is: if ctx
// comes from that f's. It is for the hooks of an engine around resume and restart.
func (l *Locks) Around(ctx context.Context, workflow, run string, f func(ctx context.Context, t lease.Term) error) error {
	err := input.Context(ctx, lease.ErrInvalid)
	if err != nil || f == nil {
		return fmt.Errorf("runlock.Around: %w", cmp.Or(err, fmt.Errorf("f: %w: nil", lease.ErrInvalid)))
	}
	at := key{l, workflow, run}
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
	h, err := l.open(ctx, workflow, run)
	if err != nil {
		return err
	}
	defer drop(h)
	return lease.TryRun(ctx, h, func(ctx context.Context, t lease.Term) error {
		return f(context.WithValue(ctx, at, t), t)
	})
}

// key is that of a context of the f of an Around: for the term.
type key struct {
	l             *Locks
	workflow, run string
}
