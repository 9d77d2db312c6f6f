package leasetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// What OnLost tells.
var bareLostCases = []bareCase{
	{name: "lost/told-once", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		first := t.listen(a)
		t.win(a)
		second := t.listen(a)
		defer t.cut(a)()
		t.ends(a)
		first.told(1)
		second.told(1)
		time.Sleep(2 * t.w.TTL)
		first.told(1)
		second.told(1)
	}},
	{name: "lost/each-loss", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		l := t.listen(a)
		for i := 1; i <= 3; i++ {
			_, ok := t.wonWithin(a, t.w.TTL+t.slack, nil)
			t.check(ok, bareFree, "what was lost is not won again")
			heal := t.cut(a)
			t.ends(a)
			l.told(i)
			heal()
		}
	}},
	{name: "lost/taken-over", needs: needCut, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		l := t.listen(a)
		t.win(a)
		heal := t.cut(a)
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(ok, bareLate, "a holder that is cut off keeps the name for longer than %v", t.w.TTL+t.slack)
		heal()
		time.Sleep(t.w.TTL)
		l.told(1)
	}},
	{name: "lost/not-on-release", run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		la, lb := t.listen(a), t.listen(b)
		t.win(a)
		t.refused(b)
		t.free(a)
		t.win(b)
		t.free(b)
		time.Sleep(2 * t.w.TTL)
		t.check(la.count() == 0 && lb.count() == 0, bareNotTold, "%d and %d were told of releases", la.count(), lb.count())
	}},
	{name: "lost/not-on-release-without-a-link", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		l := t.listen(a)
		t.win(a)
		defer t.cut(a)()
		_ = t.release(a)
		time.Sleep(2 * t.w.TTL)
		t.check(l.count() == 0, bareNotTold, "it was told of a release that got no answer")
	}},
	{name: "lost/stop", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		l, other := t.listen(a), t.listen(a)
		t.check(l.stop(), bareStopped, "stop says that it was not registered")
		t.check(!l.stop(), bareStopped, "the second stop says that it was registered")
		t.win(a)
		defer t.cut(a)()
		t.ends(a)
		other.told(1)
		t.check(l.count() == 0, bareStopped, "it was called all the same")
		t.check(other.stop(), bareStopped, "stop of who was told says that it was not registered")
	}},
	{name: "lost/registered-late", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		heal := t.cut(a)
		t.ends(a)
		time.Sleep(t.w.TTL / 4)
		l := t.listen(a)
		time.Sleep(t.w.TTL)
		heal()
		time.Sleep(t.w.TTL)
		t.check(l.count() == 0, barePast, "it was told of a loss that came before")
	}},
	{name: "lost/callback-panics", needs: needCut, run: func(t *bareT) {
		t.rudely(func(lease.Lease) { panic("leasetest: a callback that panics") })
	}},
	{name: "lost/callback-hangs", needs: needCut, run: func(t *bareT) {
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		t.rudely(func(lease.Lease) { <-end })
	}},
	{name: "lost/callback-calls-back", needs: needCut, run: func(t *bareT) {
		t.rudely(func(l lease.Lease) {
			l.CheckAlive()
			stop := l.OnLost(func(lease.Loss) {})
			stop()
			_ = l.Release(t.Context())
			l.CheckAlive()
		})
	}},
	{name: "lost/callback-stops-itself", needs: needCut, run: func(t *bareT) {
		var mu sync.Mutex
		var stop func() bool
		var stopped atomic.Bool
		a := t.lease()
		mu.Lock()
		stop = a.OnLost(func(lease.Loss) {
			mu.Lock()
			defer mu.Unlock()
			stopped.Store(stop())
		})
		mu.Unlock()
		t.win(a)
		heal := t.cut(a)
		t.ends(a)
		t.check(t.soon(t.slack, stopped.Load), bareStopped, "a callback can't stop itself")
		heal()
		_, ok := t.wonWithin(a, t.w.TTL+t.slack, nil)
		t.check(ok, bareOthers, "a callback that stopped itself keeps the lease from being won again")
	}},
}

// rudely loses a lease two times, one of whose callbacks does what it should not.
func (t *bareT) rudely(f func(lease.Lease)) {
	a := t.lease()
	first := t.listen(a)
	a.OnLost(func(lease.Loss) { f(a) })
	last := t.listen(a)
	for i := 1; i <= 2; i++ {
		_, ok := t.wonWithin(a, t.w.TTL+t.slack, nil)
		t.check(ok, bareOthers, "the lease is not won again after a callback of it was rude")
		heal := t.cut(a)
		t.ends(a)
		ok = t.soon(t.slack, func() bool { return first.count() == i && last.count() == i })
		t.check(ok, bareOthers, "with a rude callback between them, %d and %d were told of %d losses", first.count(), last.count(), i)
		heal()
	}
}

// listener notes what it is told.
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
		x.t.check(isReason(loss.Reason), bareReason, "it is %v", loss.Reason)
	}
}

func isReason(err error) bool {
	for _, one := range []error{lease.ErrExpired, lease.ErrTakenOver, lease.ErrRecordGone, lease.ErrInconsistent, lease.ErrClosed, lease.ErrParentLost} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
