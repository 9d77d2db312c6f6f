// Package faultclock is a store.Clock for tests: one node's view of time, which
// can be frozen, made to drift, stepped or put to sleep while the rest of the
// test goes on. It runs on the time package, and so on fake time inside a
// testing/synctest bubble.
package faultclock

import (
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Clock is one node's clock. Safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	anchor time.Time     // when the fields below were brought up to date
	mono   time.Duration // at anchor
	wall   int64         // at anchor
	rate   float64       // of both clocks against the time package's
	frozen bool          // no timer fires
	asleep bool          // mono stands still, and no timer fires
	timers map[*timer]struct{}
}

var _ store.Clock = (*Clock)(nil)

// New returns a clock that tells the system clock's time, so that the readings of
// several nodes compare as long as none of their clocks was changed.
func New() *Clock {
	t, now := time.Now(), store.SystemClock().Now()
	// The moment of now, whatever came between the two.
	t = t.Add(time.Duration(now.Wall - t.UnixNano()))
	return &Clock{anchor: t, mono: now.Mono, wall: now.Wall, rate: 1, timers: map[*timer]struct{}{}}
}

// Now implements store.Clock.
func (c *Clock) Now() store.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// now reckons from the anchor, which only a change moves, so that looking often
// loses nothing to rounding.
func (c *Clock) now() store.Reading { return c.at(time.Now()) }

func (c *Clock) at(t time.Time) store.Reading {
	d := time.Duration(float64(t.Sub(c.anchor)) * c.rate)
	r := store.Reading{Mono: c.mono, Wall: c.wall + int64(d)}
	if !c.asleep {
		r.Mono += d
	}
	return r
}

// AfterFunc implements store.Clock.
func (c *Clock) AfterFunc(d time.Duration, f func()) store.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{c: c, at: c.now().Mono + d, f: f}
	c.timers[t] = struct{}{}
	t.arm()
	return t
}

// Freeze is SIGSTOP as a clock sees it: time passes, but no timer fires until
// Thaw; then those that are due fire at once.
func (c *Clock) Freeze() { c.change(func() { c.frozen = true }) }

// Thaw ends Freeze.
func (c *Clock) Thaw() { c.change(func() { c.frozen = false }) }

// SetRate makes both clocks run at rate (above 0) times the true speed.
func (c *Clock) SetRate(rate float64) { c.change(func() { c.rate = rate }) }

// StepWall moves the wall clock by d, either way.
func (c *Clock) StepWall(d time.Duration) { c.change(func() { c.wall += int64(d) }) }

// Sleep suspends the machine: the monotonic clock stands still and no timer
// fires until Wake, while the wall clock goes on.
func (c *Clock) Sleep() { c.change(func() { c.asleep = true }) }

// Wake ends Sleep.
func (c *Clock) Wake() { c.change(func() { c.asleep = false }) }

func (c *Clock) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now()
	now := c.at(t)
	c.anchor, c.mono, c.wall = t, now.Mono, now.Wall
	f()
	for t := range c.timers {
		t.arm()
	}
}

// timer is one pending AfterFunc.
type timer struct {
	c  *Clock
	at time.Duration // by c's monotonic clock
	f  func()
	t  *time.Timer
}

// arm sets the real timer again. The caller holds the clock's lock.
func (t *timer) arm() {
	if t.t != nil {
		t.t.Stop()
		t.t = nil
	}
	if t.c.frozen || t.c.asleep {
		return
	}
	d := time.Duration(math.Ceil(float64(t.at-t.c.now().Mono) / t.c.rate))
	t.t = time.AfterFunc(max(d, 0), t.fire)
}

func (t *timer) fire() {
	c := t.c
	c.mu.Lock()
	if _, ok := c.timers[t]; !ok || c.frozen || c.asleep {
		c.mu.Unlock()
		return
	}
	if c.now().Mono < t.at { // rounding
		t.arm()
		c.mu.Unlock()
		return
	}
	delete(c.timers, t)
	c.mu.Unlock()
	t.f()
}

// Stop implements store.Timer.
func (t *timer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.t != nil {
		t.t.Stop()
	}
	_, ok := t.c.timers[t]
	delete(t.c.timers, t)
	return ok
}
