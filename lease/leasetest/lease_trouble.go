package leasetest

import (
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// What happens to a holder: its link is cut, it crashes, its process is stopped.
var bareTroubleCases = []bareCase{
	{name: "partition/ends-in-time", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		time.Sleep(t.w.TTL + t.w.TTL/7) // it has been renewed
		t.check(t.alive(a), bareRenewed, "CheckAlive is false, and nothing happened")
		defer t.cut(a)()
		t.ends(a)
	}},
	{name: "partition/both-renew", needs: needCut, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		heal := t.cut(a)
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(!ok || !t.alive(a), bareExclusive, "another has won, and the holder that was cut off is alive")
		t.check(ok, bareLate, "a holder that is cut off keeps the name for longer than %v", t.w.TTL+t.slack)
		t.during(t.w.TTL/2, func() {
			t.check(!t.alive(a), bareExclusive, "who was cut off is alive beside the next holder")
		})
		heal()
		t.during(2*t.w.TTL, func() {
			t.check(!t.alive(a), bareRevived, "who was cut off is alive again, without an Acquire")
			t.check(t.alive(b), bareUndone, "the holder is not alive any more since the former one is back")
		})
		t.refused(a)
	}},
	{name: "partition/never-two", needs: needCut, run: func(t *bareT) {
		ls := []lease.Lease{t.lease(), t.lease()}
		t.win(ls[0])
		for i := range 4 {
			holder, next := ls[i%2], ls[(i+1)%2]
			heal := t.cut(holder)
			_, ok := t.wonWithin(next, t.w.TTL+t.slack, nil)
			t.check(!ok || !t.alive(holder), bareExclusive, "another has won, and the holder that was cut off is alive")
			t.check(ok, bareLate, "a holder that is cut off keeps the name for longer than %v", t.w.TTL+t.slack)
			heal()
			_ = t.release(holder)
			t.stays(next)
		}
	}},
	{name: "partition/short", needs: needCut, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
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
	}},
	{name: "partition/of-who-waits", needs: needCut, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		defer t.cut(b)()
		for range 2 {
			won, _ := t.acquire(b)
			t.check(!won && !t.alive(b), bareClaims, "without a link a name is won that another holds")
		}
		t.check(t.alive(a), bareUndone, "the holder is not alive any more")
	}},
	{name: "partition/acquire-after-loss", needs: needCut, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		heal := t.cut(a)
		t.ends(a)
		heal()
		_, ok := t.wonWithin(a, t.w.TTL+t.slack, nil)
		t.check(ok && t.alive(a), bareFree, "what was lost is not won again")
		t.during(2*t.w.TTL, func() { t.check(t.alive(a), bareRenewed, "it is not renewed when it was won again") })
		t.refused(t.lease())
	}},
	{name: "partition/release-after-loss", needs: needCut, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		heal := t.cut(a)
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(ok, bareLate, "a holder that is cut off keeps the name for longer than %v", t.w.TTL+t.slack)
		heal()
		_ = t.release(a)
		t.stays(b)
		won, _ := t.acquire(t.lease())
		t.check(!won, bareReleaseNo, "a release after a loss freed the name of the next holder")
	}},
	{name: "crash/after-the-ttl", needs: needCrash, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		began := time.Now()
		t.win(a)
		t.w.Crash(a)
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(ok, bareLate, "who crashed keeps the name for longer than %v", t.w.TTL+t.slack)
		t.check(time.Since(began) >= t.w.TTL, bareEarly, "won %v after its holder had asked for %v", time.Since(began), t.w.TTL)
		t.stays(b)
	}},
	{name: "crash/while-renewed", needs: needCrash, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		time.Sleep(3 * t.w.TTL)
		t.w.Crash(a)
		_, ok := t.wonWithin(b, t.w.TTL+t.slack, nil)
		t.check(ok, bareLate, "who crashed keeps the name for longer than %v", t.w.TTL+t.slack)
	}},
	{name: "crash/of-who-was-refused", needs: needCrash, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		t.refused(b)
		t.w.Crash(b)
		t.stays(a)
	}},
	{name: "pause/beyond-the-ttl", needs: needPause, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		alive := true
		t.w.Pause(a, 2*t.w.TTL, func() { alive = a.CheckAlive() })
		t.check(!alive, bareWaking, "CheckAlive is true after a stop of two TTLs")
		t.during(t.w.TTL, func() { t.check(!t.alive(a), bareRevived, "it is alive again, without an Acquire") })
	}},
	{name: "pause/another-took-it", needs: needPause, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		won, alive := make(chan bool, 1), true
		go func() {
			_, ok := t.wonWithin(b, 2*t.w.TTL, nil)
			won <- ok
		}()
		t.w.Pause(a, 2*t.w.TTL+t.slack, func() { alive = a.CheckAlive() })
		t.check(<-won, bareLate, "who is stopped keeps the name for longer than two TTLs")
		t.check(!alive, bareWaking, "CheckAlive is true beside the next holder")
		t.during(t.w.TTL, func() {
			t.check(!t.alive(a), bareExclusive, "who was stopped is alive beside the next holder")
			t.check(t.alive(b), bareUndone, "the holder is not alive any more since the former one goes on")
		})
	}},
	{name: "pause/short", needs: needPause, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		for range 3 {
			time.Sleep(t.w.TTL)
			t.w.Pause(a, t.w.TTL/4, func() {})
			time.Sleep(t.tick())
			t.check(t.alive(a), bareRenewed, "a stop of a quarter of the TTL ended it")
		}
	}},
	{name: "pause/before-acquire", needs: needPause, run: func(t *bareT) {
		a := t.lease()
		t.w.Pause(a, t.w.TTL, func() {})
		t.win(a)
		t.during(2*t.w.TTL, func() { t.check(t.alive(a), bareRenewed, "CheckAlive is false, and nothing happened") })
	}},
}

// ends waits until a lease that gets no answer any more is not alive.
func (t *bareT) ends(l lease.Lease) {
	t.Helper()
	ok := t.soon(t.w.TTL, func() bool { return !t.alive(l) })
	t.check(ok, bareDeadline, "CheckAlive is true %v after the link was cut", t.w.TTL)
	t.during(t.w.TTL/4, func() { t.check(!t.alive(l), bareRevived, "CheckAlive is true again, with the link cut") })
}
