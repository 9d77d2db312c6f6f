package leasetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Who wins.
var bareAcquireCases = []bareCase{
	{name: "acquire/free", run: func(t *bareT) {
		l := t.lease()
		t.check(!t.alive(l), bareExclusive, "CheckAlive is true before anything was acquired")
		t.win(l)
	}},
	{name: "acquire/held", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		t.refused(b)
		t.check(t.alive(a), bareUndone, "the holder is not alive after another was refused")
	}},
	{name: "acquire/again", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		for range 5 {
			won, err := t.acquire(a)
			t.check(won && err == nil && t.alive(a), bareAgain, "Acquire: %v, %v", won, err)
		}
		t.refused(b)
		t.free(a)
		t.win(b)
	}},
	{name: "acquire/one-winner", run: func(t *bareT) {
		var ls []lease.Lease
		for range 8 {
			ls = append(ls, t.lease())
		}
		for range 20 {
			var won, alive atomic.Int32
			var winner atomic.Pointer[lease.Lease]
			t.all(ls, func(l lease.Lease) {
				ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL)
				defer cancel()
				if ok, _ := l.Acquire(ctx); ok {
					won.Add(1)
					winner.Store(&l)
				}
			})
			for _, l := range ls {
				if t.alive(l) {
					alive.Add(1)
				}
			}
			t.check(won.Load() == 1 && alive.Load() == 1, bareOneWinner, "%d of 8 won, %d are alive", won.Load(), alive.Load())
			t.free(*winner.Load())
		}
	}},
	{name: "acquire/one-lease-at-once", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		for range 10 {
			var bad atomic.Int32
			t.all(make([]lease.Lease, 8), func(lease.Lease) {
				ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL)
				defer cancel()
				if ok, err := a.Acquire(ctx); !ok || err != nil {
					bad.Add(1)
				}
			})
			t.check(bad.Load() == 0, bareAgain, "of 8 calls of Acquire of one lease at once %d did not win", bad.Load())
			t.refused(b)
			t.free(a)
		}
	}},
	{name: "acquire/many-refused", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		for range 50 {
			t.refused(b)
		}
		t.check(t.alive(a), bareUndone, "the holder is not alive after another was refused 50 times")
	}},
	{name: "acquire/context-done", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var won bool
		var err error
		t.within(t.slack, "Acquire with a context that is done", func() { won, err = a.Acquire(ctx) })
		t.check(!won && err != nil, bareContext, "Acquire with a context that is done: %v, %v", won, err)
		t.check(!t.alive(a), bareContext, "CheckAlive is true")
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(ok, bareGivenBack, "another does not win the name within its TTL")
	}},
	{name: "acquire/unanswered", needs: needCut, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		heal := t.cut(a)
		var won bool
		var err error
		t.within(t.w.TTL/2+t.slack, "Acquire that gets no answer, after its context", func() {
			ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL/2)
			defer cancel()
			won, err = a.Acquire(ctx)
		})
		t.check(!won && err != nil, bareClaims, "Acquire without an answer: %v, %v", won, err)
		heal()
		t.during(t.w.TTL/2, func() { t.check(!t.alive(a), bareGivenBack, "who gave up holds the name later") })
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(ok, bareGivenBack, "another does not win the name within its TTL")
		t.check(!t.alive(a), bareExclusive, "who gave up is alive beside another")
	}},
}

// Giving up.
var bareReleaseCases = []bareCase{
	{name: "release/frees", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		t.free(a)
		won, err := t.acquire(b)
		t.check(won && err == nil, bareRelease, "after it another's Acquire: %v, %v", won, err)
	}},
	{name: "release/not-held", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		err := t.release(a)
		t.check(err == nil, bareReleaseNo, "Release of what was never acquired: %v", err)
		t.win(b)
		err = t.release(a)
		t.check(err == nil, bareReleaseNo, "Release of what another holds: %v", err)
		t.refused(a)
		err = t.release(a)
		t.check(err == nil, bareReleaseNo, "Release by who was refused: %v", err)
		t.stays(b)
		won, err := t.acquire(t.lease())
		t.check(!won, bareReleaseNo, "it freed the name of another: %v, %v", won, err)
	}},
	{name: "release/twice", run: func(t *bareT) {
		a, b, c := t.lease(), t.lease(), t.lease()
		t.win(a)
		t.free(a)
		t.win(b)
		err := t.release(a)
		t.check(err == nil, bareReleaseNo, "the second Release: %v", err)
		t.stays(b)
		won, _ := t.acquire(c)
		t.check(!won, bareReleaseNo, "the second Release freed the name of the next holder")
	}},
	{name: "release/and-acquire-again", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		for range 20 {
			t.win(a)
			t.refused(b)
			t.free(a)
		}
		t.win(b)
	}},
	{name: "release/at-once", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		var bad atomic.Int32
		t.all(make([]lease.Lease, 8), func(lease.Lease) {
			if a.Release(t.Context()) != nil {
				bad.Add(1)
			}
		})
		t.check(bad.Load() == 0, bareRelease, "of 8 calls of Release at once %d failed", bad.Load())
		t.win(b)
	}},
	{name: "release/context-done", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		t.within(t.slack, "Release with a context that is done", func() { _ = a.Release(ctx) })
		t.check(!t.alive(a), bareEndsTrust, "CheckAlive is true after a Release whose context was done")
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(ok, bareLate, "another does not win the name within its TTL")
	}},
	{name: "release/unanswered", needs: needCut, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		heal := t.cut(a)
		var err error
		done := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL/4)
		defer cancel()
		go func() { defer close(done); err = a.Release(ctx) }()
		time.Sleep(t.tick())
		t.check(!t.alive(a), bareEndsTrust, "CheckAlive is true while Release waits for its answer")
		t.within(t.w.TTL/4+t.slack, "Release that gets no answer, after its context", func() { <-done })
		t.check(err != nil, bareClaims, "Release without an answer returned nil")
		t.check(!t.alive(a), bareEndsTrust, "CheckAlive is true after it")
		heal()
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, func() { t.check(!t.alive(a), bareRevived, "the lease is alive again") })
		t.check(ok, bareLate, "another does not win the name within its TTL")
	}},
}

// What CheckAlive says.
var bareAliveCases = []bareCase{
	{name: "alive/quick", alone: true, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		t.alive(a) // that it answers
		began := time.Now()
		for range 1000 {
			_, _ = a.CheckAlive(), b.CheckAlive()
		}
		t.check(time.Since(began) <= t.grace()/4, bareQuick, "2000 calls took %v", time.Since(began))
	}},
	{name: "alive/allocates-nothing", alone: true, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		t.alive(a)
		n := testing.AllocsPerRun(100, func() { a.CheckAlive() })
		t.check(n == 0, bareAllocates, "%v allocations a call", n)
	}},
	{name: "alive/cut-off", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		defer t.cut(a)()
		for range 10 {
			began := time.Now()
			t.alive(a)
			t.check(time.Since(began) <= t.grace()/4, bareQuick, "without a link it took %v", time.Since(began))
			time.Sleep(t.tick())
		}
	}},
	{name: "alive/renewed", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		t.during(4*t.w.TTL, func() { t.check(t.alive(a), bareRenewed, "CheckAlive is false, and nothing happened") })
		t.refused(b)
		t.check(t.alive(a), bareRenewed, "CheckAlive is false, and nothing happened")
	}},
	{name: "alive/many-goroutines", run: func(t *bareT) {
		ls := []lease.Lease{t.lease(), t.lease(), t.lease()}
		var g sync.WaitGroup
		end := time.Now().Add(t.w.TTL)
		var two, panicked atomic.Int32
		for i := range 12 {
			g.Go(func() {
				defer func() {
					if recover() != nil {
						panicked.Add(1)
					}
				}()
				l := ls[i%3]
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL/10)
					switch rand.IntN(4) {
					case 0:
						_, _ = l.Acquire(ctx)
					case 1:
						_ = l.Release(ctx)
					case 2:
						defer l.OnLost(func(lease.Loss) {})()
					default:
						if both(l, ls[(i+1)%3]) {
							two.Add(1)
						}
					}
					cancel()
					time.Sleep(t.tick() / 10)
				}
			})
		}
		t.within(2*t.w.TTL+t.slack, "what many goroutines called", g.Wait)
		t.check(panicked.Load() == 0, bareReturns, "a call panicked")
		t.check(two.Load() == 0, bareExclusive, "two were alive at once, %d times", two.Load())
		for _, l := range ls {
			_ = t.release(l)
		}
		_, ok := t.wonWithin(ls[0], t.w.TTL+t.slack, nil)
		t.check(ok, bareGivenBack, "when all have released, the name is not won within its TTL")
	}},
}

// both reports whether two are alive, again and again: it may pass from one to the other between
// two questions.
func both(a, b lease.Lease) bool {
	for range 10 {
		if !a.CheckAlive() || !b.CheckAlive() {
			return false
		}
	}
	return true
}

// all calls f for all at one moment, and waits.
func (t *bareT) all(ls []lease.Lease, f func(lease.Lease)) {
	t.Helper()
	var g sync.WaitGroup
	for _, l := range ls {
		g.Go(func() { f(l) })
	}
	t.within(3*t.w.TTL+t.slack, "what was called at once", g.Wait)
}

// stays looks at a holder for long enough to see its renewals.
func (t *bareT) stays(l lease.Lease) {
	t.Helper()
	t.during(t.w.TTL+t.slack, func() { t.check(t.alive(l), bareReleaseNo, "the holder is not alive any more") })
}
