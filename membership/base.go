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

	mu    sync.Mutex // guards what the parts know
	after []func()   // log lines, to be written by unlock
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

// turns are called where a term of a lease begins, and where it ends: before that is released.
type turns struct{ began, ended func(lease.Term) }

// hold holds h until ctx is done, term after term, and returns when it is given up, or when the Keeper
// or the handle has ended.
func (b *base) hold(ctx context.Context, h *lease.Handle, f turns) {
	l := &brief{Handle: h}
	for pause := retryMin; ctx.Err() == nil; pause = min(2*pause, retryMax) {
		err := lease.Run(ctx, l, func(ctx context.Context, t lease.Term) error {
			pause = retryMin
			if f.began != nil {
				f.began(t)
				defer f.ended(t)
			}
			<-ctx.Done()
			l.lost = !t.CheckAlive()
			return nil
		})
		switch {
		case errors.Is(err, lease.ErrClosed):
			return
		case ctx.Err() == nil:
			b.sleep(ctx, time.Duration(float64(pause)*(0.5+mrand.Float64()/2)))
		case err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, lease.ErrParentLost): // that was told already
			b.log.Warn("giving up a lease", zap.String("lease", h.Name()), zap.Error(err))
		}
	}
}

// held is a lease that is being held, term after term.
type held struct {
	stop context.CancelFunc
	done chan struct{} // closed when it is given up
}

// end has it given up, and waits for that until ctx is done. x may be nil.
func (x *held) end(ctx context.Context) {
	if x != nil {
		x.stop()
		wait(ctx, x.done)
	}
}

func wait(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// holdAside is hold on a goroutine of the group's, after the one before, which may be nil, has ended.
func (b *base) holdAside(ctx context.Context, h *lease.Handle, before *held, f turns) *held {
	x := &held{done: make(chan struct{})}
	ctx, x.stop = context.WithCancel(ctx)
	b.holders.Go(func() {
		defer close(x.done)
		if before != nil {
			<-before.done
		}
		b.hold(ctx, h, f)
	})
	return x
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

// brief is brief about the release of a membership that was lost: what hangs on it has ended with it,
// and is released in its own time. The next membership does not wait for that. It is for one goroutine.
type brief struct {
	*lease.Handle
	lost bool // the term that was last
}

// Release implements lease.Lease.
func (l *brief) Release(ctx context.Context) error {
	if l.lost {
		l.lost = false
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace)
		defer cancel()
	}
	return l.Handle.Release(ctx)
}
