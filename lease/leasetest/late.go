package leasetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// landing is how long after it was sent a late request reaches the store: long
// enough for what the case does before.
func (t *T) landing() time.Duration {
	if t.opts.exact() {
		return 150 * time.Millisecond
	}
	return 400*time.Millisecond + t.opts.stall
}

// The requests of these cases go astray on their way (package faultstore). What
// is tested is what the store makes of them when they come.
var lateCases = []testCase{
	{name: "late/acquire-unanswered", run: func(t *T) {
		f, n := t.faulty()
		f.once(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		c := t.claim("a")
		n.lost(c)
		r, held := n.get("a")["a"]
		t.require(held && r.Nonce == c.Nonce, ruleSeenByAll, "an acquire that was applied is not to be seen: %+v", r)
		n.refused(t.claim("a"), r, ruleHeld) // the same caller's next claim does not take it for its own
		settled := n.winClaim(t.supersede(r), ruleSupersede)
		n.stands(settled, ruleSupersede)
	}},
	{name: "late/acquire-lands-on-free", run: func(t *T) {
		f, n := t.faulty()
		f.once(faultstore.Acquire, t.late())
		c := t.claim("a")
		n.lost(c)
		n.free("a", ruleFree) // a read settles nothing
		f.Wait()
		r := n.get("a")["a"]
		t.require(r.Nonce == c.Nonce && r.Session == n.session.ID, ruleFree, "it landed on a free name, and there stands %+v", r)
	}},
	{name: "late/acquire-lands-on-another's", run: func(t *T) {
		f, n := t.faulty()
		other := t.node()
		f.once(faultstore.Acquire, t.late())
		sent := time.Now()
		n.lost(t.claim("a"))
		out := other.try("a")
		if !out.OK && time.Since(sent) >= t.landing() {
			t.noVerdict("the machine was too slow to claim within %v", t.landing())
		}
		t.require(out.OK, ruleFree, "%q was free, and is refused by %+v", "a", out.Record)
		r := out.Record
		f.Wait()
		other.stands(r, ruleLateAcquire)
		other.freed(r)
		other.free("a", ruleLateAcquire)
	}},
	{name: "late/acquire-lands-after-settling", run: func(t *T) {
		f, n := t.faulty()
		f.once(faultstore.Acquire, t.late())
		n.lost(t.claim("a"))
		r := n.win("a") // the same owner, the same session
		f.Wait()
		n.stands(r, ruleLateAcquire)
	}},
	{name: "late/superseding-lands-after-settling", run: func(t *T) {
		f, n := t.faulty()
		first := n.win("a")
		f.once(faultstore.Acquire, t.late())
		n.lost(t.supersede(first))
		r := n.winClaim(t.supersede(first), ruleSupersede)
		f.Wait()
		n.stands(r, ruleLateAcquire)
	}},
	{name: "late/superseding-lands-on-another's", run: func(t *T) {
		f, n := t.faulty()
		other := t.node()
		first := n.win("a")
		f.once(faultstore.Acquire, t.late())
		n.lost(t.supersede(first))
		n.freed(first)
		r := other.win("a")
		f.Wait()
		other.stands(r, ruleLateAcquire)
	}},
	{name: "late/acquire-lands-under-closed-session", run: func(t *T) {
		f, n := t.faulty()
		other := t.node()
		f.once(faultstore.Acquire, t.late())
		n.lost(t.claim("a"))
		n.close()
		f.Wait()
		other.free("a", ruleGoneAcquire)
		other.win("a")
	}},
	{name: "late/release-unanswered", run: func(t *T) {
		f, n := t.faulty()
		r := n.win("a")
		f.once(faultstore.Release, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		n.lostRelease(r)
		out := n.release(r.Held())[0] // sent again
		t.check(!out.OK, ruleReleaseOnce, "token %d was released twice", r.Token)
		n.win("a")
	}},
	{name: "late/release-lands-on-own-next", run: func(t *T) {
		f, n := t.faulty()
		first := n.win("a")
		f.once(faultstore.Release, t.late())
		n.lostRelease(first)
		r := n.winClaim(t.supersede(first), ruleSupersede)
		f.Wait()
		n.stands(r, ruleLateRelease)
	}},
	{name: "late/release-lands-on-another's", run: func(t *T) {
		f, n := t.faulty()
		other := t.node()
		first := n.win("a")
		f.once(faultstore.Release, t.late())
		n.lostRelease(first)
		n.freed(first)
		r := other.win("a")
		f.Wait()
		other.stands(r, ruleLateRelease)
	}},
	{name: "late/transfer-unanswered", needs: needTransfer, run: func(t *T) {
		f, n := t.faulty()
		other := t.node()
		first := n.win("a")
		f.once(faultstore.Transfer, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		to := other.offer("a")
		n.lostTransfer(first, to)
		r := other.get("a")["a"]
		t.require(r.Nonce == to.Nonce && r.Owner == to.Owner, ruleTransfer, "it was applied, and there stands %+v", r)
		n.refused(t.supersede(first), r, ruleSupersedeOf) // the mover settles: it is the target's
		other.winClaim(t.supersede(r), ruleSupersede)
	}},
	{name: "late/transfer-lands-after-settling", needs: needTransfer, run: func(t *T) {
		f, n := t.faulty()
		other := t.node()
		first := n.win("a")
		f.once(faultstore.Transfer, t.late())
		n.lostTransfer(first, other.offer("a"))
		r := n.winClaim(t.supersede(first), ruleSupersede)
		f.Wait()
		n.stands(r, ruleLateTransfer)
	}},
	{name: "late/transfer-lands-on-another's", needs: needTransfer, run: func(t *T) {
		f, n := t.faulty()
		target, other := t.node(), t.node()
		first := n.win("a")
		f.once(faultstore.Transfer, t.late())
		n.lostTransfer(first, target.offer("a"))
		n.freed(first)
		r := other.win("a")
		f.Wait()
		other.stands(r, ruleLateTransfer)
	}},
	{name: "late/transfer-lands-on-closed-session", needs: needTransfer, run: func(t *T) {
		f, n := t.faulty()
		target := t.node()
		r := n.win("a")
		f.once(faultstore.Transfer, t.late())
		n.lostTransfer(r, target.offer("a"))
		target.close()
		f.Wait()
		n.stands(r, ruleTransferGone)
	}},
	{name: "late/close-lands-on-another's", run: func(t *T) {
		f, n := t.faulty()
		other := t.node()
		first := n.win("a")
		f.once(faultstore.CloseSession, t.late())
		ctx, cancel := t.context()
		err := n.store.CloseSession(ctx, n.session)
		cancel()
		t.mustBeLost(err)
		n.freed(first)
		r := other.win("a")
		f.Wait()
		other.stands(r, ruleCloseOnly)
	}},
	{name: "late/renewal-lands-after-expiry", waits: true, run: func(t *T) {
		f := t.faults()
		n, other := t.open(f, t.owner(), t.ttl), t.node()
		n.win("a")
		f.once(faultstore.Renew, faultstore.Fault{
			Kind: faultstore.LandLate, Delay: time.Until(n.acked.Add(n.session.TTL + t.slack + 10*time.Millisecond)),
		})
		ctx, cancel := t.context()
		_, err := n.store.Renew(ctx, []lease.Session{n.session})
		cancel()
		t.mustBeLost(err)
		f.Wait()
		got, held := other.get("a")["a"]
		t.inTime(!held, ruleRevive, "\"a\" should be free; it stands: %+v", got)
		other.win("a")
		sessionGone(t, n)
	}},
	{name: "late/reply-after-deadline", run: func(t *T) {
		f, n := t.faulty()
		f.once(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Minute})
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), t.landing())
		defer cancel()
		c := t.claim("a")
		_, err := n.acquireCtx(ctx, c)
		t.mustBeLost(err)
		r := n.get("a")["a"]
		t.inTime(r.Nonce == c.Nonce, ruleSeenByAll, "an acquire that was applied is not to be seen: %+v", r)
		n.freed(r)
	}},
}

func (t *T) late() faultstore.Fault {
	return faultstore.Fault{Kind: faultstore.LandLate, Delay: t.landing()}
}

// faults is a client through which requests go astray.
type faults struct {
	*faultstore.Store
	t *T
}

func (t *T) faults() faults {
	f := faults{faultstore.Wrap(t.client()), t}
	t.Cleanup(f.Store.Wait)
	return f
}

// faulty opens a node on a client that can be told to let requests go astray.
// It is fatal.
func (t *T) faulty() (faults, *node) {
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

// Wait waits for the late requests. All that was to happen before has happened.
func (f faults) Wait() {
	f.t.notLanded()
	f.t.lands.Store(0)
	f.Store.Wait()
}

// notLanded ends the case without a verdict if calls to a store that is disturbed
// took so long that a late request landed before its time.
func (t *T) notLanded() {
	t.Helper()
	if at := t.lands.Load(); at != 0 && t.opts.stall > 0 && time.Now().UnixNano() >= at {
		t.noVerdict("the store was too slow: a late request landed before the case was ready for it")
	}
}

// mustBeLost checks that a request went astray as the case planned.
func (t *T) mustBeLost(err error) {
	t.Helper()
	if !errors.Is(err, faultstore.ErrInjected) {
		t.Fatalf("the request was to go astray, its error is %v", err)
	}
}

// lost sends a claim whose reply does not come. It is fatal.
func (n *node) lost(c lease.Claim) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	_, err := n.acquireCtx(ctx, c)
	n.t.mustBeLost(err)
}

// lostRelease sends a release whose reply does not come. It is fatal.
func (n *node) lostRelease(r lease.Record) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	_, err := n.t.releaseCtx(ctx, n.store, r.Held())
	n.t.mustBeLost(err)
}

// lostTransfer sends a transfer whose reply does not come. It is fatal.
func (n *node) lostTransfer(r lease.Record, to lease.Offer) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	_, err := n.t.transferCtx(ctx, n.store, lease.Transfer{Held: r.Held(), To: to})
	n.t.mustBeLost(err)
}
