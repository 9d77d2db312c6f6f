package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/input"
)

// RunOption sets something of RunForever.
type RunOption func(*runOptions)

type runOptions struct{ least, most time.Duration }

// WithBackoff sets the pauses of RunForever: the first is least, each is twice the one before and
// most at the longest, and of each between half and all is taken, at random. Default 1 s and 30 s;
// least is 1 ms at least, most is at least that and a year at most.
func WithBackoff(least, most time.Duration) RunOption {
	return func(o *runOptions) { o.least, o.most = least, most }
}

// RunForever calls f under l, as Run does, again and again: it leads, and after a loss it waits and
// leads again. The result of f decides what is next:
//
//   - an error that is ErrStop: RunForever returns it;
//   - the term had ended before f returned: again, after a pause, whatever else f returned. So it
//     is if f gave the lease up itself, by Release or Transfer;
//   - nil, and the term stood: f's work is over for good, and RunForever returns nil;
//   - another error: it is logged, the lease is released, so that another may try, and after a
//     pause this one does, too;
//   - a panic is passed on after the release.
//
// Pauses grow, with jitter (WithBackoff), and start again after a term that lasted longer than the
// longest. Between terms other calls of Run for l have their turn.
//
// It ends with ctx, and then returns what Run would: f's error, or that of ctx together with why
// the last attempt failed. It ends with ErrClosed when the Keeper or the handle was closed, and with
// ErrInvalid. Anything else that keeps it from acquiring is waited out, ErrBadRecord too.
func RunForever(ctx context.Context, l Lease, f func(ctx context.Context, t Term) error, opts ...RunOption) error {
	const what = "lease.RunForever"
	if err := checkRun(ctx, what, l, f); err != nil {
		return err
	}
	o := runOptions{least: time.Second, most: 30 * time.Second}
	if err := input.Apply(&o, nil, ErrInvalid, opts); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if o.least < time.Millisecond || o.most < o.least || o.most > longest {
		return fmt.Errorf("lease.WithBackoff: %w: %v and %v, must be at least 1ms, the second at least the first, and at most %v",
			ErrInvalid, o.least, o.most, longest)
	}
	pauses := backoff{least: o.least, most: o.most}
	for waits := false; ; {
		var began time.Time
		out, err := runTerm(ctx, what, l, nil, func(ctx context.Context, t Term) error {
			began = time.Now()
			return f(ctx, t)
		})
		ended := errors.Join(err, out.error())
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid)):
			return err
		case err == nil && out.loss == nil && out.err == nil, errors.Is(out.err, ErrStop), errors.Is(out.loss, ErrClosed):
			return ended
		case ctx.Err() != nil && out.err != nil && out.loss == nil:
			return ended
		}
		if !began.IsZero() && time.Since(began) > o.most {
			pauses.reset()
		}
		if err == nil || !waits { // it goes on to fail: that was told
			warn(l)("the work under a lease has ended, it is begun again after a pause", zap.String("lease", nameOf(l)), zap.Error(ended))
		}
		waits = err != nil
		if err := pauses.pause(ctx); err != nil {
			return fmt.Errorf("%w; before that: %w", err, ended)
		}
	}
}
