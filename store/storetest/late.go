package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// landing is how long after it was sent a late request reaches the store: long
// enough for what the case does before.
func (t *storeT) landing() time.Duration {
	if t.opts.exact() {
		return 150 * time.Millisecond
	}
	return 400*time.Millisecond + t.opts.stall
}

// late is a case of a request that package faultstore holds up, and that lands when something else
// has happened to its name.
type late struct {
	name  string
	op    faultstore.Op
	held  bool // the sender holds the name already
	then  meanwhile
	rule  rule // why it must not change what stands then
	needs needs
}

// meanwhile happens before the request lands. It returns what stands then: nothing, if its token is 0.
// first is what the sender n holds, if it does.
type meanwhile func(t *storeT, n, other *node, first store.Record) store.Record

// settles: the sender sends another claim.
func settles(_ *storeT, n, _ *node, first store.Record) store.Record {
	if first.Token == 0 {
		return n.win("a")
	}
	return n.superseded(first)
}

// passes: another has the name.
func passes(t *storeT, n, other *node, first store.Record) store.Record {
	if first.Token != 0 {
		n.freed(first)
		return other.win("a")
	}
	sent, out := time.Now(), other.try("a")
	if !out.OK && time.Since(sent) >= t.landing() {
		t.noVerdict("the machine was too slow to claim within %v", t.landing())
	}
	t.require(out.OK, ruleFree, "%q was free, and is refused by %+v", "a", out.Record)
	return out.Record
}

// closes: the sender's session is closed.
func closes(_ *storeT, n, _ *node, _ store.Record) store.Record {
	n.close()
	return store.Record{}
}

var lates = []late{
	{"acquire-lands-on-another's", faultstore.Acquire, false, passes, ruleLateAcquire, 0},
	{"acquire-lands-after-settling", faultstore.Acquire, false, settles, ruleLateAcquire, 0},
	{"acquire-lands-under-closed-session", faultstore.Acquire, false, closes, ruleGoneAcquire, 0},
	{"superseding-lands-after-settling", faultstore.Acquire, true, settles, ruleLateAcquire, 0},
	{"superseding-lands-on-another's", faultstore.Acquire, true, passes, ruleLateAcquire, 0},
	{"release-lands-on-own-next", faultstore.Release, true, settles, ruleLateRelease, 0},
	{"release-lands-on-another's", faultstore.Release, true, passes, ruleLateRelease, 0},
	{"transfer-lands-after-settling", faultstore.Transfer, true, settles, ruleLateTransfer, needTransfer},
	{"transfer-lands-on-another's", faultstore.Transfer, true, passes, ruleLateTransfer, needTransfer},
	{"transfer-lands-on-closed-session", faultstore.Transfer, true, func(_ *storeT, _, other *node, first store.Record) store.Record {
		other.close()
		return first
	}, ruleTransferGone, needTransfer},
	{"close-lands-on-another's", faultstore.CloseSession, true, passes, ruleCloseOnly, 0},
}

func (l late) run(t *storeT) {
	f, n := t.faulty()
	other := t.node()
	var first store.Record
	c := t.claim("a")
	if l.held {
		first = n.win("a")
		c = t.supersede(first)
	}
	f.once(l.op, t.landsLate())
	switch l.op {
	case faultstore.Acquire:
		t.lost(errOf(n.acquires(c)))
	case faultstore.Release:
		t.lost(errOf(n.releases(first.Held())))
	case faultstore.Transfer:
		t.lost(errOf(n.transfers(other.taking(first.Held()))))
	default:
		ctx, cancel := t.context()
		t.lost(n.store.CloseSession(ctx, n.session))
		cancel()
	}
	then := l.then(t, n, other, first)
	f.Wait()
	observer := t.node()
	if then.Token == 0 {
		observer.free("a", l.rule)
		observer.win("a")
		return
	}
	observer.stands(then, l.rule)
}

var lateCases = func() (all []testCase) {
	for _, l := range lates {
		all = append(all, testCase{name: "late/" + l.name, needs: l.needs, run: l.run})
	}
	return append(all, []testCase{
		{name: "late/acquire-lands-on-free", run: func(t *storeT) {
			f, n := t.faulty()
			f.once(faultstore.Acquire, t.landsLate())
			c := t.claim("a")
			t.lost(errOf(n.acquires(c)))
			n.free("a", ruleFree) // a read settles nothing
			f.Wait()
			r := n.get("a")["a"]
			t.require(r.Nonce == c.Nonce && r.Session == n.session.ID, ruleFree, "it landed on a free name, and there stands %+v", r)
		}},
		{name: "late/acquire-unanswered", run: func(t *storeT) {
			f, n := t.faulty()
			f.once(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ApplyThenFail})
			c := t.claim("a")
			t.lost(errOf(n.acquires(c)))
			r, held := n.get("a")["a"]
			t.require(held && r.Nonce == c.Nonce, ruleSeenByAll, "an acquire that was applied is not to be seen: %+v", r)
			n.refused(t.claim("a"), r, ruleHeld) // the same caller's next claim does not take it for its own
			n.stands(n.superseded(r), ruleSupersede)
		}},
		{name: "late/release-unanswered", run: func(t *storeT) {
			f, n := t.faulty()
			r := n.win("a")
			f.once(faultstore.Release, faultstore.Fault{Kind: faultstore.ApplyThenFail})
			t.lost(errOf(n.releases(r.Held())))
			t.check(!n.release(r.Held())[0].OK, ruleReleaseOnce, "token %d was released twice", r.Token) // sent again
			n.win("a")
		}},
		{name: "late/transfer-unanswered", needs: needTransfer, run: func(t *storeT) {
			f, n := t.faulty()
			other := t.node()
			first := n.win("a")
			f.once(faultstore.Transfer, faultstore.Fault{Kind: faultstore.ApplyThenFail})
			m := other.taking(first.Held())
			t.lost(errOf(n.transfers(m)))
			r := other.get("a")["a"]
			t.require(r.Nonce == m.To.Nonce && r.Owner == m.To.Owner, ruleTransfer, "it was applied, and there stands %+v", r)
			n.refused(t.supersede(first), r, ruleSupersedeOf) // the mover settles: it is the target's
			other.superseded(r)
		}},
		{name: "late/renewal-lands-after-expiry", waits: true, run: func(t *storeT) {
			f := t.faults()
			n, other := t.open(f, t.owner(), t.ttl), t.node()
			n.win("a")
			f.once(faultstore.Renew, faultstore.Fault{
				Kind: faultstore.LandLate, Delay: time.Until(n.acked.Add(n.session.TTL + t.slack + 10*time.Millisecond)),
			})
			ctx, cancel := t.context()
			t.lost(errOf(n.store.Renew(ctx, []store.Session{n.session})))
			cancel()
			f.Wait()
			got, held := other.get("a")["a"]
			t.inTime(!held, ruleRevive, "\"a\" should be free; it stands: %+v", got)
			other.win("a")
			t.require(errors.Is(n.renew().Err, store.ErrSessionGone), ruleGoneRenew, "the renewal was granted")
		}},
		{name: "late/reply-after-deadline", run: func(t *storeT) {
			f, n := t.faulty()
			f.once(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Minute})
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), t.landing())
			defer cancel()
			c := t.claim("a")
			t.lost(errOf(n.acquireCtx(ctx, c)))
			r := n.get("a")["a"]
			t.inTime(r.Nonce == c.Nonce, ruleSeenByAll, "an acquire that was applied is not to be seen: %+v", r)
			n.freed(r)
		}},
	}...)
}()

func (t *storeT) landsLate() faultstore.Fault {
	return faultstore.Fault{Kind: faultstore.LandLate, Delay: t.landing()}
}

// faults is a client through which requests go astray.
type faults struct {
	*faultstore.Store
	t *storeT
}

func (t *storeT) faults() faults {
	f := faults{faultstore.Wrap(t.client()), t}
	t.Cleanup(f.Store.Wait)
	return f
}

// faulty opens a node on a client through which requests can go astray.
// It is fatal.
func (t *storeT) faulty() (faults, *node) {
	f := t.faults()
	return f, t.nodeOn(f)
}

// once lets the next call of op meet the fault.
func (f faults) once(op faultstore.Op, fault faultstore.Fault) {
	var met atomic.Bool
	f.SetRule(func(c faultstore.Call) faultstore.Fault {
		if c.Op == op && met.CompareAndSwap(false, true) {
			if fault.Kind == faultstore.LandLate {
				f.t.lands.Store(time.Now().Add(fault.Delay).UnixNano())
			}
			return fault
		}
		return faultstore.Fault{}
	})
}

// Wait waits for the late requests. The case has done all that was to happen before.
func (f faults) Wait() {
	f.t.notLanded()
	f.t.lands.Store(0)
	f.Store.Wait()
}

// notLanded ends the case without a verdict if calls to a store that is disturbed
// took so long that a late request landed before its time.
func (t *storeT) notLanded() {
	t.Helper()
	if at := t.lands.Load(); at != 0 && t.opts.stall > 0 && time.Now().UnixNano() >= at {
		t.noVerdict("the store was too slow: a late request landed before the case was ready for it")
	}
}

func errOf[A any](_ A, err error) error { return err }

// lost checks that a request went astray as the case planned.
func (t *storeT) lost(err error) {
	t.Helper()
	if !errors.Is(err, faultstore.ErrInjected) {
		t.Fatalf("the request was to go astray, its error is %v", err)
	}
}
