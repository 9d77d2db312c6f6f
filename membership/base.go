package membership

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
)

// base is what every part of a Group stands on.
type base struct {
	names   names
	keeper  *lease.Keeper
	set     settings
	log     *zap.Logger
	metrics *instruments

	life    context.Context // ends with the Group
	end     context.CancelFunc
	holders sync.WaitGroup // of the group's leases; none begins once life has ended

	mu      sync.Mutex // guards what the parts know
	after   []func()   // log lines, to be written by unlock
	failure error      // of the last attempt to acquire a lease
}

// unlock frees mu, and then writes what was noted to be logged: the logger is the user's.
func (b *base) unlock() {
	after := b.after
	b.after = nil
	b.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// note remembers why a lease could not be acquired.
func (b *base) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = err
}

func (b *base) leaseOptions(metadata map[string]string) []lease.Option {
	return append(b.set.leaseOptions[:len(b.set.leaseOptions):len(b.set.leaseOptions)], lease.WithMetadata(metadata))
}

// grace is how long a Join that failed waits for what it gives back.
const grace = time.Second

// Between two attempts to hold a lease, with jitter and growing.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
)

// hold holds h until ctx is done, term after term, and returns when it is given
// up. Under each term f runs; it must return when its context is done. Only an
// end of the Keeper, or of the handle, ends it before: then it returns false.
func (b *base) hold(ctx context.Context, h *lease.Handle, f func(ctx context.Context, t lease.Term)) bool {
	l := &remembering{Handle: h, b: b}
	pause := retryMin
	for ctx.Err() == nil {
		err := lease.Run(ctx, l, func(ctx context.Context, t lease.Term) error {
			pause = retryMin
			f(ctx, t)
			l.lost = !t.CheckAlive()
			return nil
		})
		if errors.Is(err, lease.ErrClosed) {
			return false
		}
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, lease.ErrParentLost) { // that was told already
				b.log.Warn("giving up a lease", zap.String("lease", h.Name()), zap.Error(err))
			}
			break
		}
		b.sleep(ctx, time.Duration(float64(pause)*(0.5+mrand.Float64()/2)))
		pause = min(2*pause, retryMax)
	}
	return true
}

// sleep waits on the Keeper's clock.
func (b *base) sleep(ctx context.Context, d time.Duration) {
	ch := make(chan struct{})
	defer b.keeper.Clock().AfterFunc(d, func() { close(ch) }).Stop()
	select {
	case <-ch:
	case <-ctx.Done():
	}
}

// remembering remembers why a lease could not be acquired, which lease.Run logs and
// tells only at its end. It is for one goroutine.
type remembering struct {
	*lease.Handle
	b    *base
	lost bool // the term that was last
}

func (n *remembering) Acquire(ctx context.Context) (bool, error) {
	won, err := n.Handle.Acquire(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrParentLost) {
		n.b.note(err)
	}
	return won, err
}

// Release is brief about a membership that was lost: what hangs on it has ended with it, and is
// released in its own time. The next membership does not wait for that.
func (n *remembering) Release(ctx context.Context) error {
	if n.lost {
		n.lost = false
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace)
		defer cancel()
	}
	return n.Handle.Release(ctx)
}
