package lease

import (
	"context"
	"maps"
	"math"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// This file tells those that wait for names, by what others hear or by looks of its own.

// waits are the names with a waiter.
type waits struct {
	*names
	history *history
	waiting map[*entry]*waiting
	herd    herd // of names that became free
}

// waiting is what waits for one name.
type waiting struct {
	waiters []*waiter
	pollAt  time.Duration
	polls   int
}

// waiter is one pending OnFree, or one Wait. It hears, under the lock, that the name is believed to be free
// or, with false, that its handle or its Keeper was closed.
type waiter struct{ told func(free bool) }

// mostWaiting bounds how many names Info tells.
const mostWaiting = 1000

// namesLocked lists the names with a waiter, in order.
func (k *waits) namesLocked() []string {
	names := make([]string, 0, min(len(k.waiting), mostWaiting))
	for h := range k.waiting {
		if names = append(names, h.name); len(names) == mostWaiting {
			break
		}
	}
	slices.Sort(names)
	return names
}

func (k *waits) addLocked(h *entry, w *waiter) {
	if k.waiting[h] == nil {
		k.waiting[h] = &waiting{pollAt: k.clock.Now().Mono}
	}
	k.waiting[h].waiters = append(k.waiting[h].waiters, w)
	k.kick()
}

// remove reports whether w was still registered.
func (k *waits) remove(h *entry, w *waiter) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.waiting[h]
	if of == nil || !slices.Contains(of.waiters, w) {
		return false
	}
	of.waiters = slices.DeleteFunc(of.waiters, func(x *waiter) bool { return x == w })
	if len(of.waiters) == 0 {
		delete(k.waiting, h)
	}
	return true
}

// takeLocked takes the waiters for h away.
func (k *waits) takeLocked(h *entry) []*waiter {
	of := k.waiting[h]
	if of == nil {
		return nil
	}
	delete(k.waiting, h)
	return of.waiters
}

// dropLocked tells waiters that they will be told nothing.
func (k *waits) dropLocked(h *entry) {
	for _, w := range k.takeLocked(h) {
		w.told(false)
	}
}

// againLocked has all names looked at soon.
func (k *waits) againLocked() {
	for _, of := range k.waiting {
		of.pollAt, of.polls = k.clock.Now().Mono, 0
	}
}

// freeLocked tells the waiters for h: at once, unless many names become free together. Then the
// herd is spread. How many are waited for does not count.
func (k *waits) freeLocked(h *entry) {
	waiters := k.takeLocked(h)
	if waiters == nil {
		return
	}
	spread := k.herd.next(k.clock.Now().Mono)
	fire := func() {
		for _, w := range waiters {
			w.told(true)
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
	marks := map[string]Token{}
	for h, of := range k.waiting {
		if now.Mono >= of.pollAt {
			marks[h.name] = h.claim.Seen
			of.pollAt = k.nextPoll(now.Mono, of.polls)
			of.polls++
		}
		soon(of.pollAt)
	}
	if len(marks) > 0 {
		k.wg.Go(func() { k.look(marks) })
	}
}

// look looks at names that are waited for, of which the highest tokens that were seen are known.
func (k *waits) look(marks map[string]Token) {
	found, err := k.get(context.Background(), slices.Collect(maps.Keys(marks))...)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		return // the next look is soon, or a watch tells
	}
	for name, mark := range marks {
		rec, ok := found[name]
		if ok {
			k.history.readLocked(name, rec.Token, mark)
		}
		if h := k.handles[name]; h != nil && (!ok || rec.Owner.Incarnation == k.owner.Incarnation) {
			k.freeLocked(h)
		}
	}
}

// nextPoll is when the jittered exponential pause after a number of looks is over. It is put on a grid, so
// that the names of a thousand waiters are looked at by few requests, and rounded down: no pause becomes
// longer than PollMax.
func (k *waits) nextPoll(now time.Duration, polls int) time.Duration {
	d := float64(k.cfg.PollMax)
	if !k.watched {
		d = min(d, math.Ldexp(float64(k.cfg.PollMin), polls))
	}
	at, grid := now+time.Duration(d*(0.75+mrand.Float64()/4)), k.cfg.PollMin/4
	return at - (at%grid+grid)%grid // a clock may be below zero
}
