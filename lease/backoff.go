package lease

import (
	"context"
	mrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// backoff is pauses that grow from least to most, each taken with jitter: between half of it and
// all of it.
type backoff struct {
	least, most time.Duration
	next        time.Duration // 0: least
}

// pause waits, or ends with ctx and its error.
func (b *backoff) pause(ctx context.Context) error { return boundary.Pause(ctx, b.grow()) }

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
