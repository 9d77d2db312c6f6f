package leasetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// What a lease may offer beside the four methods.
var bareMoreCases = []bareCase{
	{name: "term/tokens-grow", needs: needTerm, run: func(t *bareT) {
		ls := []lease.Lease{t.lease(), t.lease()}
		var top lease.Token
		for i := range 10 {
			l := ls[i%2]
			t.win(l)
			term := t.term(l)
			t.check(term.Token() > top, bareToken, "%d after %d", term.Token(), top)
			top = term.Token()
			t.win(l)
			t.check(t.term(l).Token() == top, bareAgain, "Acquire of what is held made token %d of %d", t.term(l).Token(), top)
			t.free(l)
		}
	}},
	{name: "term/ends-with-release", needs: needTerm, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		term := t.term(a)
		t.check(term.CheckAlive() && term.Context().Err() == nil, bareTermEnds, "the term of a lease that is held has ended")
		t.free(a)
		t.over(term)
		t.win(a)
		t.over(term)
	}},
	{name: "term/ends-with-loss", needs: needTerm | needCut, run: func(t *bareT) {
		a := t.lease()
		t.win(a)
		term := t.term(a)
		heal := t.cut(a)
		t.ends(a)
		t.over(term)
		heal()
		_, ok := t.wonWithin(a, t.w.TTL+t.slack, nil)
		t.check(ok, bareFree, "what was lost is not won again")
		t.over(term)
		t.check(t.term(a).Token() > term.Token(), bareToken, "%d after %d", t.term(a).Token(), term.Token())
	}},
	{name: "term/none", needs: needTerm, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
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
	}},
	{name: "wait/told-when-free", needs: needWaiter, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
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
	}},
	{name: "wait/ends-with-its-context", needs: needWaiter, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
		t.win(a)
		w, _ := lease.As[lease.Waiter](b)
		var err error
		t.within(t.w.TTL/4+t.slack, "Wait, after its context", func() {
			ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL/4)
			defer cancel()
			err = w.Wait(ctx)
		})
		t.check(errors.Is(err, context.DeadlineExceeded) || err == nil, bareWaits, "Wait: %v", err)
		t.check(t.alive(a), bareUndone, "the holder is not alive any more")
	}},
	{name: "holder/says", needs: needHolder, run: func(t *bareT) {
		a, b := t.lease(), t.lease()
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
	}},
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
