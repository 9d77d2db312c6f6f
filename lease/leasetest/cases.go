package leasetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Who wins.
var bareAcquireCases = []bareCase{
	{name: "acquire/again", run: rivals(func(t *bareT, a, b lease.Lease) {
		for range 5 {
			won, err := t.acquire(a)
			t.check(won && err == nil && t.alive(a), bareAgain, "Acquire: %v, %v", won, err)
		}
		t.refused(b)
		t.free(a)
		won, err := t.acquire(b)
		t.check(won && err == nil, bareRelease, "after it another's Acquire: %v, %v", won, err)
	})},
	{name: "acquire/one-winner", run: func(t *bareT) {
		var ls []lease.Lease
		for range 8 {
			ls = append(ls, t.lease())
		}
		for range 20 {
			won := t.atOnce(8, func(ctx context.Context, i int) bool { ok, _ := ls[i].Acquire(ctx); return ok })
			alive := 0
			for _, l := range ls {
				if t.alive(l) {
					alive++
				}
			}
			t.check(len(won) == 1 && alive == 1, bareOneWinner, "%d of 8 won, %d are alive", len(won), alive)
			t.free(ls[won[0]])
		}
	}},
	{name: "acquire/one-lease-at-once", run: two(func(t *bareT, a, b lease.Lease) {
		for range 10 {
			won := t.atOnce(8, func(ctx context.Context, _ int) bool { ok, err := a.Acquire(ctx); return ok && err == nil })
			t.check(len(won) == 8, bareAgain, "of 8 calls of Acquire of one lease at once %d won", len(won))
			t.refused(b)
			t.free(a)
		}
	})},
	{name: "acquire/context-done", run: two(func(t *bareT, a, b lease.Lease) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var won bool
		var err error
		t.within(t.slack, "Acquire with a context that is done", func() { won, err = a.Acquire(ctx) })
		t.check(!won && err != nil, bareContext, "Acquire with a context that is done: %v, %v", won, err)
		t.check(!t.alive(a), bareContext, "CheckAlive is true")
		t.takes(b, bareGivenBack)
	})},
	{name: "acquire/unanswered", needs: needCut, run: two(func(t *bareT, a, b lease.Lease) {
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
		t.takes(b, bareGivenBack)
		t.check(!t.alive(a), bareExclusive, "who gave up is alive beside another")
	})},
}

// Giving up.
var bareReleaseCases = []bareCase{
	{name: "release/not-held", run: two(func(t *bareT, a, b lease.Lease) {
		err := t.release(a)
		t.check(err == nil, bareReleaseNo, "Release of what was never acquired: %v", err)
		t.win(a)
		t.free(a)
		t.win(b)
		err = t.release(a)
		t.check(err == nil, bareReleaseNo, "Release of what another holds: %v", err)
		t.refused(a)
		err = t.release(a)
		t.check(err == nil, bareReleaseNo, "Release by who was refused: %v", err)
		t.spared(b)
		won, err := t.acquire(t.lease())
		t.check(!won, bareReleaseNo, "it freed the name of another: %v, %v", won, err)
	})},
	{name: "release/and-acquire-again", run: two(func(t *bareT, a, b lease.Lease) {
		for range 20 {
			t.win(a)
			t.refused(b)
			t.free(a)
		}
		t.win(b)
	})},
	{name: "release/at-once", run: rivals(func(t *bareT, a, b lease.Lease) {
		done := t.atOnce(8, func(ctx context.Context, _ int) bool { return a.Release(ctx) == nil })
		t.check(len(done) == 8, bareRelease, "of 8 calls of Release at once %d succeeded", len(done))
		t.win(b)
	})},
	{name: "release/context-done", run: rivals(func(t *bareT, a, b lease.Lease) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		t.within(t.slack, "Release with a context that is done", func() { _ = a.Release(ctx) })
		t.check(!t.alive(a), bareEndsTrust, "CheckAlive is true after a Release whose context was done")
		t.takes(b, bareLate)
	})},
	{name: "release/unanswered", needs: needCut, run: rivals(func(t *bareT, a, b lease.Lease) {
		l := t.listen(a)
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
		t.takes(b, bareLate, func() { t.check(!t.alive(a), bareRevived, "the lease is alive again") })
		t.check(l.count() == 0, bareNotTold, "it was told of a release that got no answer")
	})},
}

// What CheckAlive says.
var bareAliveCases = []bareCase{
	{name: "alive/quick", alone: true, run: rivals(func(t *bareT, a, b lease.Lease) {
		t.alive(a) // that it answers
		began := time.Now()
		for range 1000 {
			_, _ = a.CheckAlive(), b.CheckAlive()
		}
		t.check(time.Since(began) <= t.grace()/4, bareQuick, "2000 calls took %v", time.Since(began))
	})},
	{name: "alive/allocates-nothing", alone: true, run: holder(func(t *bareT, a lease.Lease) {
		t.alive(a)
		n := testing.AllocsPerRun(100, func() { a.CheckAlive() })
		t.check(n == 0, bareAllocates, "%v allocations a call", n)
	})},
	{name: "alive/cut-off", needs: needCut, run: holder(func(t *bareT, a lease.Lease) {
		defer t.cut(a)()
		for range 10 {
			began := time.Now()
			t.alive(a)
			t.check(time.Since(began) <= t.grace()/4, bareQuick, "without a link it took %v", time.Since(began))
			time.Sleep(t.tick())
		}
	})},
	{name: "alive/renewed", run: rivals(func(t *bareT, a, b lease.Lease) {
		t.stays(a, 4*t.w.TTL, bareRenewed)
		t.refused(b)
		t.check(t.alive(a), bareRenewed, "CheckAlive is false, and nothing happened")
	})},
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
		t.takes(ls[0], bareGivenBack)
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

// atOnce makes n calls at one moment, and waits. It returns those that said yes.
func (t *bareT) atOnce(n int, call func(ctx context.Context, i int) bool) (yes []int) {
	t.Helper()
	var g sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		g.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL)
			defer cancel()
			if call(ctx, i) {
				mu.Lock()
				defer mu.Unlock()
				yes = append(yes, i)
			}
		})
	}
	t.within(3*t.w.TTL+t.slack, "what was called at once", g.Wait)
	return yes
}

// stays looks whether a holder is alive for so long.
func (t *bareT) stays(l lease.Lease, d time.Duration, why bareRule) {
	t.Helper()
	t.during(d, func() { t.check(t.alive(l), why, "the holder is not alive any more") })
}

// spared checks that a holder stays: for long enough to see its renewals.
func (t *bareT) spared(l lease.Lease) {
	t.Helper()
	t.stays(l, t.w.TTL+t.slack, bareReleaseNo)
}

// apart looks for so long whether a former holder is not alive, and the next one is.
func (t *bareT) apart(former, holder lease.Lease, d time.Duration, why bareRule) {
	t.Helper()
	t.during(d, func() {
		t.check(!t.alive(former), why, "the former holder is alive")
		t.check(t.alive(holder), bareUndone, "the holder is not alive any more")
	})
}

// What happens to a holder: its link is cut, it crashes, its process is stopped.
var bareTroubleCases = []bareCase{
	{name: "partition/ends-in-time", needs: needCut, run: holder(func(t *bareT, a lease.Lease) {
		time.Sleep(t.w.TTL + t.w.TTL/7) // it has been renewed
		t.check(t.alive(a), bareRenewed, "CheckAlive is false, and nothing happened")
		defer t.loses(a)()
	})},
	{name: "partition/never-two", needs: needCut,
		run: rivals(func(t *bareT, holder, next lease.Lease) {
			for range 4 {
				heal := t.cut(holder)
				t.takes(next, bareLate)
				t.check(!t.alive(holder), bareExclusive, "another has won, and the holder that was cut off is alive")
				t.apart(holder, next, t.w.TTL/2, bareExclusive)
				heal()
				t.apart(holder, next, t.w.TTL, bareRevived)
				t.refused(holder)
				_ = t.release(holder)
				t.spared(next)
				t.refused(t.lease())
				holder, next = next, holder
			}
		})},
	{name: "partition/short", needs: needCut, run: rivals(func(t *bareT, a, b lease.Lease) {
		for range 3 {
			time.Sleep(t.w.TTL)
			heal := t.cut(a)
			time.Sleep(t.w.TTL / 4)
			heal()
			t.check(t.alive(a), bareRenewed, "a cut of a quarter of the TTL ended it")
		}
		time.Sleep(t.w.TTL)
		t.check(t.alive(a), bareRenewed, "it is not renewed after a cut of a quarter of the TTL")
		t.refused(b)
	})},
	{name: "crash/after-the-ttl", needs: needCrash, run: two(func(t *bareT, a, b lease.Lease) {
		began := time.Now()
		t.win(a)
		t.w.Crash(a)
		t.takes(b, bareLate)
		t.check(time.Since(began) >= t.w.TTL, bareEarly, "won %v after its holder had asked for %v", time.Since(began), t.w.TTL)
		t.spared(b)
	})},
	{name: "crash/while-renewed", needs: needCrash, run: rivals(func(t *bareT, a, b lease.Lease) {
		time.Sleep(3 * t.w.TTL)
		t.w.Crash(a)
		t.takes(b, bareLate)
	})},
	{name: "pause/beyond-the-ttl", needs: needPause, run: holder(func(t *bareT, a lease.Lease) {
		alive := true
		t.w.Pause(a, 2*t.w.TTL, func() { alive = a.CheckAlive() })
		t.check(!alive, bareWaking, "CheckAlive is true after a stop of two TTLs")
		t.during(t.w.TTL, func() { t.check(!t.alive(a), bareRevived, "it is alive again, without an Acquire") })
	})},
	{name: "pause/another-took-it", needs: needPause, run: rivals(func(t *bareT, a, b lease.Lease) {
		taken, alive := make(chan struct{}), true
		go func() {
			defer close(taken)
			t.takes(b, bareLate)
		}()
		t.w.Pause(a, 2*t.w.TTL+t.slack, func() { alive = a.CheckAlive() })
		<-taken
		t.check(!alive, bareWaking, "CheckAlive is true beside the next holder")
		t.apart(a, b, t.w.TTL, bareExclusive)
	})},
	{name: "pause/short", needs: needPause, run: holder(func(t *bareT, a lease.Lease) {
		for range 3 {
			time.Sleep(t.w.TTL)
			t.w.Pause(a, t.w.TTL/4, func() {})
			time.Sleep(t.tick())
			t.check(t.alive(a), bareRenewed, "a stop of a quarter of the TTL ended it")
		}
	})},
	{name: "pause/before-acquire", needs: needPause, run: one(func(t *bareT, a lease.Lease) {
		t.w.Pause(a, t.w.TTL, func() {})
		t.win(a)
		t.stays(a, 2*t.w.TTL, bareRenewed)
	})},
}

// loses cuts a holder off, and waits until its lease is not alive.
func (t *bareT) loses(l lease.Lease) (heal func()) {
	t.Helper()
	heal = t.cut(l)
	ok := t.soon(t.w.TTL, func() bool { return !t.alive(l) })
	t.check(ok, bareDeadline, "CheckAlive is true %v after the link was cut", t.w.TTL)
	t.during(t.w.TTL/4, func() { t.check(!t.alive(l), bareRevived, "CheckAlive is true again, with the link cut") })
	return heal
}

// What OnLost tells.
var bareLostCases = []bareCase{
	{name: "lost/told-once", needs: needCut, run: one(func(t *bareT, a lease.Lease) {
		first := t.listen(a)
		t.win(a)
		second := t.listen(a)
		for i := 1; i <= 3; i++ {
			t.stays(a, 2*t.w.TTL, bareRenewed)
			heal := t.loses(a)
			first.told(i)
			second.told(i)
			time.Sleep(2 * t.w.TTL)
			first.told(i)
			second.told(i)
			heal()
			t.takes(a, bareFree)
		}
	})},
	{name: "lost/not-on-release", run: two(func(t *bareT, a, b lease.Lease) {
		la, lb := t.listen(a), t.listen(b)
		t.win(a)
		t.refused(b)
		t.free(a)
		t.win(b)
		t.free(b)
		time.Sleep(2 * t.w.TTL)
		t.check(la.count() == 0 && lb.count() == 0, bareNotTold, "%d and %d were told of releases", la.count(), lb.count())
	})},
	{name: "lost/stop", needs: needCut, run: one(func(t *bareT, a lease.Lease) {
		l, other := t.listen(a), t.listen(a)
		t.check(l.stop(), bareStopped, "stop says that it was not registered")
		t.check(!l.stop(), bareStopped, "the second stop says that it was registered")
		t.win(a)
		defer t.loses(a)()
		other.told(1)
		t.check(l.count() == 0, bareStopped, "it was called all the same")
		t.check(other.stop(), bareStopped, "stop of who was told says that it was not registered")
	})},
	{name: "lost/registered-late", needs: needCut, run: holder(func(t *bareT, a lease.Lease) {
		heal := t.loses(a)
		time.Sleep(t.w.TTL / 4)
		l := t.listen(a)
		time.Sleep(t.w.TTL)
		heal()
		time.Sleep(t.w.TTL)
		t.check(l.count() == 0, barePast, "it was told of a loss that came before")
	})},
	{name: "lost/rude-callbacks", needs: needCut, run: one(func(t *bareT, a lease.Lease) {
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		first := t.listen(a)
		a.OnLost(func(lease.Loss) { panic("leasetest: a callback that panics") })
		a.OnLost(func(lease.Loss) { <-end })
		a.OnLost(func(lease.Loss) {
			a.CheckAlive()
			a.OnLost(func(lease.Loss) {})()
			_ = a.Release(t.Context())
			a.CheckAlive()
		})
		last := t.listen(a)
		for i := 1; i <= 2; i++ {
			t.takes(a, bareOthers)
			heal := t.loses(a)
			ok := t.soon(t.slack, func() bool { return first.count() == i && last.count() == i })
			t.check(ok, bareOthers, "with rude callbacks between them, %d and %d were told of %d losses", first.count(), last.count(), i)
			heal()
		}
	})},
}

// listener notes the losses that it hears of.
type listener struct {
	t    *bareT
	stop func() bool

	mu     sync.Mutex
	losses []lease.Loss
	alive  int // told while the lease was
}

func (t *bareT) listen(l lease.Lease) *listener {
	x := &listener{t: t}
	t.within(t.slack, "OnLost", func() {
		x.stop = l.OnLost(func(loss lease.Loss) {
			alive := false
			func() {
				defer func() { _ = recover() }()
				alive = l.CheckAlive()
			}()
			x.mu.Lock()
			defer x.mu.Unlock()
			x.losses = append(x.losses, loss)
			if alive {
				x.alive++
			}
		})
	})
	t.check(x.stop != nil, bareStopped, "OnLost returned nil")
	stop := x.stop
	x.stop = func() (was bool) {
		t.within(t.slack, "stop of OnLost", func() { was = stop() })
		return was
	}
	return x
}

func (x *listener) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.losses)
}

// told checks that it has been told of so many losses.
func (x *listener) told(n int) {
	x.t.Helper()
	x.t.soon(x.t.slack, func() bool { return x.count() >= n })
	x.mu.Lock()
	defer x.mu.Unlock()
	x.t.check(len(x.losses) == n, bareTold, "it was told %d times of %d losses", len(x.losses), n)
	x.t.check(x.alive == 0, bareToldLate, "CheckAlive was true when it was told")
	for _, loss := range x.losses {
		known := cases.IsAny(loss.Reason, lease.ErrExpired, lease.ErrTakenOver, lease.ErrRecordGone,
			store.ErrInconsistent, lease.ErrClosed, store.ErrParentLost)
		x.t.check(known, bareReason, "it is %v", loss.Reason)
	}
}

// What a lease may offer beside the four methods.
var bareMoreCases = []bareCase{
	{name: "term/tokens-grow", needs: needTerm, run: two(func(t *bareT, a, b lease.Lease) {
		var top store.Token
		for range 10 {
			t.win(a)
			token := t.term(a).Token()
			t.check(token > top, bareToken, "%d after %d", token, top)
			t.win(a)
			top = t.term(a).Token()
			t.check(top == token, bareAgain, "Acquire of what is held made token %d of %d", top, token)
			t.free(a)
			a, b = b, a
		}
	})},
	{name: "term/ends-with-release", needs: needTerm, run: holder(func(t *bareT, a lease.Lease) {
		term := t.term(a)
		t.check(term.CheckAlive() && term.Context().Err() == nil, bareTermEnds, "the term of a lease that is held has ended")
		t.free(a)
		t.over(term)
		t.win(a)
		t.over(term)
	})},
	{name: "term/ends-with-loss", needs: needTerm | needCut,
		run: holder(func(t *bareT, a lease.Lease) {
			term := t.term(a)
			heal := t.loses(a)
			t.over(term)
			heal()
			t.takes(a, bareFree)
			t.over(term)
			t.check(t.term(a).Token() > term.Token(), bareToken, "%d after %d", t.term(a).Token(), term.Token())
		})},
	{name: "term/none", needs: needTerm, run: two(func(t *bareT, a, b lease.Lease) {
		none := func(l lease.Lease, when string) {
			termed, _ := lease.As[lease.Termed](l)
			_, ok := termed.Term()
			t.check(!ok, bareTermNone, "there is one %s", when)
		}
		none(a, "before Acquire")
		t.win(a)
		t.refused(b)
		none(b, "of who was refused")
		t.free(a)
		none(a, "after Release")
	})},
	{name: "wait/told-when-free", needs: needWaiter, run: rivals(func(t *bareT, a, b lease.Lease) {
		w, _ := lease.As[lease.Waiter](b)
		var told atomic.Int32
		waited := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*t.w.TTL+t.slack)
		defer cancel()
		go func() { waited <- w.Wait(ctx) }()
		var stopped bool
		t.within(t.slack, "OnFree, and its stop", func() {
			w.OnFree(func() { told.Add(1) })
			stopped = w.OnFree(func() { told.Add(100) })()
		})
		t.check(stopped, bareWaits, "stop of OnFree says that it did not prevent the call")
		time.Sleep(t.w.TTL / 4)
		t.free(a)
		var err error
		t.within(t.w.TTL+t.slack, "Wait, when the name is free", func() { err = <-waited })
		t.check(err == nil, bareWaits, "Wait: %v", err)
		ok := t.soon(t.w.TTL, func() bool { return told.Load() == 1 })
		t.check(ok, bareWaits, "OnFree was told %d times", told.Load())
	})},
	{name: "wait/ends-with-its-context", needs: needWaiter,
		run: rivals(func(t *bareT, a, b lease.Lease) {
			w, _ := lease.As[lease.Waiter](b)
			var err error
			t.within(t.w.TTL/4+t.slack, "Wait, after its context", func() {
				ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL/4)
				defer cancel()
				err = w.Wait(ctx)
			})
			t.check(errors.Is(err, context.DeadlineExceeded) || err == nil, bareWaits, "Wait: %v", err)
			t.check(t.alive(a), bareUndone, "the holder is not alive any more")
		})},
	{name: "holder/says", needs: needHolder, run: two(func(t *bareT, a, b lease.Lease) {
		held := func(l lease.Lease) bool {
			h, _ := lease.As[lease.HolderFinder](l)
			var ok bool
			var err error
			t.within(t.w.TTL+t.slack, "Holder", func() { _, ok, err = h.Holder(t.Context()) })
			t.check(err == nil, bareHolderSays, "Holder: %v", err)
			return ok
		}
		t.check(!held(a), bareHolderSays, "it finds one before Acquire")
		t.win(a)
		t.check(held(a) && held(b), bareHolderSays, "it finds none of a name that is held")
		t.free(a)
		t.check(!held(a) && !held(b), bareHolderSays, "it finds one after Release")
	})},
}

// term returns the term of a lease that is held.
func (t *bareT) term(l lease.Lease) lease.Term {
	t.Helper()
	termed, _ := lease.As[lease.Termed](l)
	var term lease.Term
	var ok bool
	t.within(t.slack, "Term", func() { term, ok = termed.Term() })
	t.check(ok && term != nil, bareTermNone, "there is none while the lease is held")
	return term
}

// over checks that a term has ended.
func (t *bareT) over(term lease.Term) {
	t.Helper()
	t.check(!term.CheckAlive(), bareTermEnds, "its CheckAlive is true")
	_, alive := term.Check()
	t.check(!alive, bareTermEnds, "its Check says that it is alive")
	done := t.soon(t.slack, func() bool { return term.Context().Err() != nil })
	t.check(done, bareTermEnds, "its context is not done")
	t.check(context.Cause(term.Context()) != context.Canceled, bareTermEnds, "its context does not say why")
}
