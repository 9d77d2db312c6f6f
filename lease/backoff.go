package lease

import (
	"context"
	mrand "math/rand/v2"
	"time"
)

// backoff is pauses that grow from least to most, each taken with jitter: between half of it and
// all of it.
type backoff struct {
	least, most time.Duration
	next        time.Duration // 0: least
}

// pause waits, or ends with ctx and its error.
func (b *backoff) pause(ctx context.Context) error { return b.rest(ctx, nil, nil, nil) }

// rest is pause that ends when begins is closed, too, and with ErrClosed when left or gone is.
func (b *backoff) rest(ctx context.Context, begins, left, gone <-chan struct{}) error {
	t := time.NewTimer(b.grow())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-begins:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-left:
	case <-gone:
	}
	return ErrClosed
}

// grow returns the pause that is due.
func (b *backoff) grow() time.Duration {
	d := max(b.next, b.least)
	b.next = b.most
	if d < b.most/2 {
		b.next = 2 * d
	}
	return time.Duration(float64(d) * (0.5 + mrand.Float64()/2))
}

// reset has pauses begin at the least again.
func (b *backoff) reset() { b.next = 0 }
