package actors

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Alarm is a timer of a loop: its function runs in a turn of that loop, and no more once the
// Alarm was stopped or set again. The zero value is not set. It belongs to the loop.
type Alarm struct{ set *alarm }

type alarm struct {
	timer store.Timer
	at    time.Duration // by SetBy
}

// Set has post, which may be called on any goroutine, get f after d.
func (a *Alarm) Set(clock store.Clock, post func(func()), d time.Duration, f func()) {
	a.Stop()
	s := &alarm{}
	a.set = s
	s.timer = clock.AfterFunc(d, func() {
		post(func() {
			if a.set == s {
				a.set = nil
				f()
			}
		})
	})
}

// SetBy is Set, unless the Alarm is set for at or an earlier time already; now is the same clock's.
func (a *Alarm) SetBy(clock store.Clock, post func(func()), now, at time.Duration, f func()) {
	if a.set != nil && a.set.at <= at {
		return
	}
	a.Set(clock, post, at-now, f)
	a.set.at = at
}

// Stop ends it.
func (a *Alarm) Stop() {
	if s := a.set; s != nil {
		a.set = nil
		s.timer.Stop()
	}
}

// Pending reports whether it is set.
func (a *Alarm) Pending() bool { return a.set != nil }

// Backoff is the pause after n tries: it doubles from least to most, with jitter.
func Backoff(n int, least, most time.Duration) time.Duration {
	d := most
	if n < 30 && least<<n < d {
		d = least << n
	}
	return d/2 + rand.N(d/2+1)
}
