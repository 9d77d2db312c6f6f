package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var keeperCases = []testCase{
	{name: "keeper/one-holder", run: keeperOneHolder},
	{name: "keeper/batches", run: keeperBatches},
	{name: "keeper/crash", waits: true, run: keeperCrash},
	{name: "keeper/transfer", needs: needTransfer, run: keeperTransfer},
	{name: "keeper/contention-astray", waits: true, run: keeperContention},
	{name: "keeper/parent", needs: needWhile, run: one(keeperParent)},
}

// keeper starts an engine over a store, with the run's TTL. It is fatal.
func (t *storeT) keeper(s store.Store) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(s, lease.Config{
		ID: t.owner().ID, TTL: max(t.ttl, lease.MinTTL), PollMin: 50 * time.Millisecond, PollMax: 500 * time.Millisecond,
	})
	t.must(err, "NewKeeper")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 100*time.Millisecond)
		defer cancel()
		_ = k.Close(ctx) // cases leave leases held; what is left expires
	})
	return k
}

// handle makes a handle. It is fatal.
func (t *storeT) handle(k *lease.Keeper, name string) *lease.Handle {
	t.Helper()
	h, err := k.Lease(name)
	t.must(err, "Lease of %q", name)
	return h
}

// contender makes a handle of k/a over an engine of its own. It is fatal.
func (t *storeT) contender() *lease.Handle { return t.handle(t.keeper(t.client()), "k/a") }

// unknown ends the case without a verdict if err says no more than that the store
// did not answer within the engine's bounds. One that is disturbed may fail in any
// way; else there must have been no answer, as on a machine that is too slow.
func (t *storeT) unknown(err error) {
	t.Helper()
	slow := !t.opts.fake && errors.Is(err, context.DeadlineExceeded)
	if err == nil || t.opts.stall == 0 && !slow ||
		cases.IsAny(err, store.ErrInconsistent, lease.ErrTransferRefused, store.ErrBadRecord,
			store.ErrInvalid, store.ErrUnsupported, store.ErrParentLost) {
		return
	}
	t.noVerdict("the store was too slow for the engine: %v", err)
}

// expired ends the case without a verdict if a term that should be alive ended
// because no renewal came through in time.
func (t *storeT) expired(term lease.Term) {
	t.Helper()
	cause := context.Cause(term.Context())
	if !term.CheckAlive() && !t.opts.exact() && (cause == nil || errors.Is(cause, lease.ErrExpired)) {
		t.noVerdict("no renewal came through in time: the machine or the store was too slow")
	}
}

// acquired claims through a handle; an error fails the case.
func (t *storeT) acquired(h *lease.Handle) bool {
	t.Helper()
	ctx, cancel := t.context()
	defer cancel()
	ok, err := h.Acquire(ctx)
	t.unknown(err)
	if err != nil {
		t.broken(ruleKeeper, "Acquire of %q: %v", h.Name(), err)
	}
	return ok && err == nil
}

func (t *storeT) releases(h *lease.Handle) {
	t.Helper()
	ctx, cancel := t.context()
	defer cancel()
	err := h.Release(ctx)
	t.unknown(err)
	t.check(err == nil, ruleKeeper, "Release of %q: %v", h.Name(), err)
}

// wins acquires a name that must be free and returns the term. It is fatal.
func (t *storeT) wins(h *lease.Handle, why rule) lease.Term {
	t.Helper()
	began := time.Now()
	t.require(t.acquired(h), why, "%q, a name that is free, was not acquired", h.Name())
	return t.term(h, began)
}

// term is the living one of a handle that acquired since began. It is fatal.
func (t *storeT) term(h *lease.Handle, began time.Time) lease.Term {
	t.Helper()
	term, ok := h.Term()
	if took := time.Since(began); !ok && took >= max(t.ttl, lease.MinTTL)/4 && !t.opts.exact() {
		t.noVerdict("the store was too slow for the engine: an Acquire took %v", took)
	}
	t.require(ok, ruleKeeper, "%q was acquired and has no living term", h.Name())
	return term
}

// keptFrom checks that another handle does not acquire what term holds, as long as
// it does. It is fatal.
func (t *storeT) keptFrom(other *lease.Handle, term lease.Term) {
	t.Helper()
	if t.acquired(other) || other.CheckAlive() {
		t.expired(term) // perhaps while the other was waiting for its answer
		t.require(false, ruleHeld, "two keepers hold one name")
	}
}

// acquires keeps trying through a handle until it wins; false if it never did.
func (t *storeT) acquires(h *lease.Handle, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(t.tick()) {
		ctx, cancel := t.context()
		ok, _ := h.Acquire(ctx)
		cancel()
		if ok {
			return true
		}
	}
	return false
}

func keeperOneHolder(t *storeT) {
	a, b := t.contender(), t.contender()
	var last store.Token
	for range 3 {
		term := t.wins(a, ruleKeeper)
		token := term.Token()
		t.check(token > last, ruleToken, "token %d after %d", token, last)
		last = token
		t.keptFrom(b, term)
		ctx, cancel := t.context()
		r, held, err := b.Holder(ctx)
		cancel()
		t.unknown(err)
		if err != nil || !held || r.Token != token {
			t.expired(term)
			t.broken(ruleHolder, "Holder: %+v, %v, %v; the token is %d", r, held, err, token)
		}
		woken := make(chan error, 1)
		ctx, cancel = t.context()
		go func() { woken <- b.Wait(ctx) }()
		t.releases(a)
		t.check(!a.CheckAlive(), ruleRelease, "alive after Release")
		err = <-woken
		cancel()
		t.unknown(err)
		t.check(err == nil, ruleKeeper, "Wait: %v", err)
		a, b = b, a
	}
}

// keeperBatches acquires many names at one moment, as a node that starts does.
func keeperBatches(t *storeT) {
	const names = 150
	k := t.keeper(t.client())
	var hs [names]*lease.Handle
	for i := range hs {
		hs[i] = t.handle(k, fmt.Sprintf("k/%d", i))
	}
	t.together(names, func(i int) { t.check(t.acquired(hs[i]), ruleKeeper, "%q was not acquired", hs[i].Name()) })
	other := t.handle(t.keeper(t.client()), "k/7")
	t.keptFrom(other, t.wins(hs[7], ruleKeeper)) // if it has not expired, this is what it holds
	t.together(names, func(i int) { t.releases(hs[i]) })
	t.check(t.acquired(other), ruleRelease, "a name that was released was not acquired")
}

// keeperCrash cuts a holder off: it stops trusting before anybody else can win,
// and another node wins.
func keeperCrash(t *storeT) {
	f := t.faults()
	holder, other := t.handle(t.keeper(f), "k/a"), t.contender()
	lost := make(chan lease.Loss, 8)
	holder.OnLost(func(l lease.Loss) { lost <- l })
	token, ttl := t.wins(holder, ruleKeeper).Token(), max(t.ttl, lease.MinTTL)
	f.Partition()
	defer f.Heal()
	var next lease.Term
	for end := time.Now().Add(2*ttl + t.slack + prompt); ; time.Sleep(t.tick()) {
		began := time.Now()
		if t.acquired(other) {
			t.check(!holder.CheckAlive(), ruleEarly, "another keeper won while the holder, cut off, still trusted")
			next = t.term(other, began)
			break
		}
		t.inTime(time.Now().Before(end), ruleLate, "the lease of a keeper that is cut off does not become free")
	}
	t.check(next.Token() > token, ruleToken, "token %d after %d", next.Token(), token)
	select {
	case l := <-lost:
		t.check(errors.Is(l.Reason, lease.ErrExpired) && l.Token == token, ruleKeeper, "lost: %+v", l)
	case <-time.After(prompt):
		t.broken(ruleKeeper, "OnLost was not called")
	}
	f.Heal()
	time.Sleep(ttl)
	alive := other.CheckAlive()
	if !alive && !t.opts.exact() {
		t.noVerdict("no renewal came through in time: the machine or the store was too slow")
	}
	t.check(!holder.CheckAlive() && alive, ruleHeld, "after the cut healed: alive %v and %v", holder.CheckAlive(), alive)
	t.check(len(lost) == 0, ruleKeeper, "OnLost was called %d times more", len(lost))
}

func keeperTransfer(t *storeT) {
	a, b := t.contender(), t.contender()
	third := t.contender()
	last := t.wins(a, ruleKeeper).Token()
	for range 4 {
		ctx, cancel := t.context()
		offer, err := b.Offer(ctx)
		t.unknown(err)
		t.require(err == nil, ruleTransfer, "Offer: %v", err)
		began := time.Now()
		outdated := func() { // then the target does not want it any more
			if took := time.Since(began); took >= offer.Lifetime/2 && !t.opts.exact() {
				t.noVerdict("the store was too slow for an offer of %v: %v have passed", offer.Lifetime, took)
			}
		}
		err = a.Transfer(ctx, offer)
		t.unknown(err)
		if err != nil {
			outdated()
		}
		t.require(err == nil && !a.CheckAlive(), ruleTransfer, "Transfer: %v; the mover is alive: %v", err, a.CheckAlive())
		if t.acquired(third) {
			outdated()
			t.broken(ruleTransferAtomic, "a third won between Transfer and Adopt")
		}
		adopting := time.Now()
		ok, err := b.Adopt(ctx, offer)
		cancel()
		t.unknown(err)
		if !ok {
			outdated()
		}
		t.require(ok && err == nil, ruleTransfer, "Adopt: %v, %v", ok, err)
		token := t.term(b, adopting).Token()
		t.check(token > last, ruleToken, "token %d after %d", token, last)
		last = token
		a, b = b, a
	}
}

// keeperContention lets keepers fight for one name while requests go astray.
// A node that is alive is so alone.
func keeperContention(t *storeT) {
	const keepers = 4
	var (
		mu      sync.Mutex
		holders = make(map[int]*lease.Handle)
		hs      [keepers]*lease.Handle
		fs      [keepers]*faultstore.Store
		wins    atomic.Int32
	)
	for i := range hs {
		fs[i] = t.faults()
		hs[i] = t.handle(t.keeper(fs[i]), "k/a")
		fs[i].SetRule(func(faultstore.Call) faultstore.Fault { return t.mishap() })
	}
	ttl := max(t.ttl, lease.MinTTL)
	end := time.Now().Add(2 * ttl)
	t.together(keepers, func(i int) {
		for time.Now().Before(end) {
			ctx, cancel := t.context()
			ok, _ := hs[i].Acquire(ctx)
			if ok {
				wins.Add(1)
				mu.Lock()
				for j, h := range holders {
					if j != i && h.CheckAlive() && hs[i].CheckAlive() && h.CheckAlive() {
						t.broken(ruleHeld, "keepers %d and %d are alive at once", j, i)
					}
				}
				holders[i] = hs[i]
				mu.Unlock()
				time.Sleep(time.Duration(t.random(20)) * time.Millisecond)
				_ = hs[i].Release(ctx) // its fate may be unknown; no other may trust meanwhile
			}
			cancel()
			time.Sleep(time.Duration(t.random(20)) * time.Millisecond)
		}
	})
	for i := range fs {
		fs[i].SetRule(nil)
	}
	t.inTime(wins.Load() > 0, ruleKeeper, "none ever won")
	t.inTime(t.acquires(hs[0], 4*ttl+t.slack), ruleKeeper, "when requests arrive again, the name can't be acquired")
}

// plain is a store that tells nothing, so that an engine over it finds out by asking.
type plain struct{ store.Store }

// keeperParent takes a parent's record away behind its Keeper's back: the store alone knows.
func keeperParent(t *storeT, other *node) {
	k := t.keeper(plain{other.store})
	parent := t.handle(k, "k/parent")
	child, err := k.Lease("k/child", lease.WithParent(parent))
	t.must(err, "Lease under a parent")
	ctx, cancel := t.context()
	defer cancel()
	won, err := child.Acquire(ctx)
	t.require(!won && errors.Is(err, store.ErrParentLost), ruleKeeper, "acquired before its parent: %v, error %v", won, err)
	t.wins(parent, ruleFree)
	term := t.wins(child, ruleWhile)
	released := make(chan error, 1)
	go func() { released <- parent.Release(ctx) }()
	<-term.Context().Done()
	t.check(!term.CheckAlive() && errors.Is(context.Cause(term.Context()), store.ErrParentLost), ruleKeeper, "after its parent's release: alive %v, %v", term.CheckAlive(), context.Cause(term.Context()))
	t.check(other.get(parent.Name())[parent.Name()].Name != "", ruleKeeper, "its parent was given up before it")
	t.releases(child)
	err = <-released
	t.unknown(err)
	t.check(err == nil, ruleKeeper, "its parent was not given up after it: %v", err)

	above := t.wins(parent, ruleFree)
	other.freed(other.get(parent.Name())[parent.Name()])
	won, err = child.Acquire(ctx)
	if !above.CheckAlive() {
		t.noVerdict("the parent was found out about before it was claimed under")
	}
	t.unknown(err)
	t.require(!won && errors.Is(err, store.ErrParentLost), ruleKeeper, "acquired while the parent's record is gone: %v, error %v", won, err)
	other.free(child.Name(), ruleKeeper)
}
