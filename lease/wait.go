package lease

import (
	"context"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// This file hears of names: the watch that serves the Keeper's own leases, and
// the looks at names that are waited for.

// watches are what a Keeper has followed, for itself and for its users.
type watches struct {
	*Keeper
	begun   bool // its own was, if the store has one
	runs    bool // and tells of every change
	polling int  // followers that poll, as the store can't watch
}

// beginLocked starts the Keeper's watch, if the store has one, with the first
// use of any lease.
func (k *watches) beginLocked() {
	if k.begun || k.closed {
		return
	}
	k.begun = true
	if _, ok := k.store.(store.Watcher); ok {
		k.followLocked(k.ctx, func() {}, &follower{k: k.Keeper, emit: k.onEvent, forKeeper: true, up: k.began, down: k.down})
	}
}

// began: what happened before this was not told.
func (k *watches) began() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs = true
	k.recon.listNowLocked()
}

func (k *watches) down() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs = false
}

// onEvent takes up a deletion of any name. It can end a term or wake a waiter, never
// begin a term.
func (k *watches) onEvent(ev store.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.handles[ev.Record.Name]
	if ev.Kind != store.EventDelete || h == nil {
		return
	}
	if h.op != nil || h.claim.Status == settle.Held { // else there is nothing to decide
		k.ops.stepLocked(h.k.ops.ofLocked(h), settle.Event{What: settle.Deleted, Token: ev.Revision}, &said{})
	}
	k.waits.freeLocked(h)
}

// waits are the handles with a waiter.
type waits struct {
	*Keeper
	waiting map[*Handle]struct{}
	herd    herd // of names that became free
}

// waiter is one pending OnFree, or one Wait.
type waiter struct {
	f    func()
	ours bool          // f is not the user's: it needs no goroutine of its own
	gone chan struct{} // closed when the handle or its Keeper is; nil: there is no listener
}

// OnFree implements Waiter. The first look is taken at once; then the watch
// tells, or looks that grow apart from PollMin to PollMax. After Close, the
// handle's or the Keeper's, f is not called any more.
func (h *Handle) OnFree(f func()) (stop func() bool) {
	if f == nil || h.k == nil {
		return func() bool { return false }
	}
	w := &waiter{f: func() {
		if !h.isClosed() { // it may have been, while a herd was spread
			h.k.guard("OnFree", h.name, f)
		}
	}}
	h.k.waits.add(h, w)
	return func() bool { return h.k.waits.remove(h, w) }
}

// isClosed reports whether the handle or its Keeper is.
func (h *Handle) isClosed() bool {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	return h.closed || h.k.closing
}

// add registers w; false if the handle or its Keeper is closed.
func (k *waits) add(h *Handle, w *waiter) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.closed || k.closing {
		return false
	}
	k.watches.beginLocked()
	if len(h.free) == 0 {
		h.pollAt, h.polls = k.clock.Now().Mono, 0
	}
	h.free = append(h.free, w)
	k.waiting[h] = struct{}{}
	k.kick()
	return true
}

// remove reports whether w was still registered.
func (k *waits) remove(h *Handle, w *waiter) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.Index(h.free, w)
	if i < 0 {
		return false
	}
	h.free = slices.Delete(h.free, i, i+1)
	if len(h.free) == 0 {
		delete(k.waiting, h)
	}
	return true
}

// dropLocked tells waiters that they will be told nothing.
func (k *waits) dropLocked(h *Handle) {
	for _, w := range h.free {
		if w.gone != nil {
			close(w.gone)
		}
	}
	h.free = nil
	delete(k.waiting, h)
}

// Wait implements Waiter. Errors: the context's, ErrClosed.
func (h *Handle) Wait(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	if h.CheckAlive() {
		return nil
	}
	ch := make(chan struct{})
	w := &waiter{f: func() { close(ch) }, ours: true, gone: make(chan struct{})}
	if !h.k.waits.add(h, w) {
		return h.k.errorf(h.name, ErrClosed)
	}
	defer h.k.waits.remove(h, w)
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return h.k.errorf(h.name, ctx.Err())
	case <-w.gone:
	case <-h.k.ctx.Done():
	}
	return h.k.errorf(h.name, ErrClosed)
}

// freeLocked tells the waiters for h: at once, unless many names become free together. Then the
// herd is spread. How many are waited for does not count.
func (k *waits) freeLocked(h *Handle) {
	if len(h.free) == 0 {
		return
	}
	spread := k.herd.next(k.clock.Now().Mono)
	waiters := h.free
	h.free = nil
	delete(k.waiting, h)
	fire := func() {
		for _, w := range waiters {
			if w.ours {
				w.f()
			} else {
				go w.f()
			}
		}
	}
	if spread <= 0 {
		fire()
		return
	}
	k.clock.AfterFunc(time.Duration(mrand.Float64()*float64(spread)), fire)
}

// herd is the names that became free of late: a millisecond for each, less what has passed since. So
// names that become free one after another, or one again and again, are none.
type herd struct {
	last time.Duration // when a name did
	size time.Duration
}

// herdTime is the longest time over which a herd is spread.
const herdTime = time.Second

// next counts a name that becomes free now, and returns the time over which to
// spread its waiters.
func (d *herd) next(now time.Duration) time.Duration {
	spread := max(d.size-max(now-d.last, 0), 0) // a clock may be below zero
	*d = herd{last: now, size: min(spread+time.Millisecond, herdTime)}
	return spread
}

// tick looks at the names that are due.
func (k *waits) tick(now store.Reading, soon func(time.Duration)) {
	var names []string
	marks := map[string]Token{}
	for h := range k.waiting {
		if now.Mono >= h.pollAt {
			names = append(names, h.name)
			marks[h.name] = h.claim.Seen
			h.pollAt = k.nextPoll(now.Mono, h.polls)
			h.polls++
		}
		soon(h.pollAt)
	}
	if len(names) == 0 {
		return
	}
	k.wg.Go(func() { k.look(names, marks) })
}

// look looks at names that are waited for.
func (k *waits) look(names []string, marks map[string]Token) {
	found, err := k.get(context.Background(), names)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		return // the next look is soon, or a watch tells
	}
	for _, name := range names {
		h := k.handles[name]
		rec, ok := found[name]
		if ok {
			k.history.readLocked(name, rec.Token, marks[name])
		}
		if h == nil {
			continue
		}
		if !ok || rec.Owner.Incarnation == k.owner.Incarnation {
			k.freeLocked(h)
		}
	}
}

// nextPoll puts the time of the next look on a grid, so that the names of a
// thousand waiters are looked at by few requests. It rounds down: no pause
// becomes longer than PollMax.
func (k *waits) nextPoll(now time.Duration, polls int) time.Duration {
	at, grid := now+k.pollIn(polls), k.cfg.PollMin/4
	return at - (at%grid+grid)%grid // a clock may be below zero
}

// pollIn is the jittered exponential pause after a number of looks.
func (k *waits) pollIn(polls int) time.Duration {
	d := k.cfg.PollMax
	if !k.watches.runs {
		d = k.cfg.PollMin
		for range min(polls, 62) {
			if d >= k.cfg.PollMax/2 {
				d = k.cfg.PollMax
				break
			}
			d *= 2
		}
	}
	return time.Duration(float64(d) * (0.75 + mrand.Float64()/4))
}
