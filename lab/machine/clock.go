//go:build linux

package machine

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
)

// Now reads the machine's monotonic clock, which is the same for all processes.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(ts.Nano())
}

// Clock is the machine's, so that the readings of all Keepers compare; from a reading on at a quarter of
// its rate, if that is not zero.
type Clock struct{ Slow store.Reading }

// Now implements store.Clock.
func (c Clock) Now() store.Reading {
	r := store.Reading{Mono: Now(), Wall: time.Now().UnixNano()}
	if c.Slow != (store.Reading{}) {
		r.Mono, r.Wall = c.Slow.Mono+(r.Mono-c.Slow.Mono)/4, c.Slow.Wall+(r.Wall-c.Slow.Wall)/4
	}
	return r
}

// AfterFunc implements store.Clock.
func (Clock) AfterFunc(d time.Duration, f func()) store.Timer { return time.AfterFunc(d, f) }

// Until calls is every 5 ms until it is true. ErrNever says that it was not within so long.
func Until(ctx context.Context, within time.Duration, what string, is func() bool) error {
	for end := Now() + within; !is(); {
		if Now() >= end {
			return fmt.Errorf("%s: %w within %v", what, ErrNever, within)
		}
		if err := Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Pause waits for d or for ctx to end.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
