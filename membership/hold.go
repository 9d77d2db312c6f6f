package membership

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
)

// Between two attempts to hold a lease, with jitter and growing.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
)

// hold holds h until ctx is done, term after term, and returns when it is given
// up. Under each term f runs; it must return when its context is done. Only an
// end of the Keeper, or of the handle, ends it before: then it returns false.
func (g *Group) hold(ctx context.Context, h *lease.Handle, f func(ctx context.Context, t lease.Term)) bool {
	l := &remembering{Handle: h, g: g}
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
				g.log.Warn("giving up a lease", zap.String("lease", h.Name()), zap.Error(err))
			}
			break
		}
		g.sleep(ctx, time.Duration(float64(pause)*(0.5+mrand.Float64()/2)))
		pause = min(2*pause, retryMax)
	}
	return true
}

// sleep waits on the Keeper's clock.
func (g *Group) sleep(ctx context.Context, d time.Duration) {
	ch := make(chan struct{})
	defer g.keeper.Clock().AfterFunc(d, func() { close(ch) }).Stop()
	select {
	case <-ch:
	case <-ctx.Done():
	}
}

// remembering remembers why a lease could not be acquired, which lease.Run logs and
// tells only at its end. It is for one goroutine.
type remembering struct {
	*lease.Handle
	g    *Group
	lost bool // the term that was last
}

func (n *remembering) Acquire(ctx context.Context) (bool, error) {
	won, err := n.Handle.Acquire(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrParentLost) {
		n.g.note(err)
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
