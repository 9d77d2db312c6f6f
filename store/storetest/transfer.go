package storetest

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// The cases hands/* move by what is no ownership, and to sessions that are gone.
var transferCases = []testCase{
	{name: "transfer/mixed", needs: needTransfer, run: transferMixed},
	{name: "transfer/metadata", needs: needTransfer, run: two(func(t *storeT, a, b *node) {
		c := t.claim("a")
		c.Metadata = map[string]string{"shards": "32", "odd": "ü%/ "}
		r := a.winClaim(c, ruleFree)
		kept := a.give(r, b)
		t.check(maps.Equal(kept.Metadata, c.Metadata), ruleTransferMeta, "was %v, is %v", c.Metadata, kept.Metadata)
		a.stands(kept, ruleTransferMeta)
		for _, m := range []map[string]string{{"new": "1"}, {}} {
			move := a.taking(kept.Held())
			move.Metadata = m
			given := b.given(move, a)
			t.check(maps.Equal(given.Metadata, m), ruleTransferMeta, "given %v, is %v", m, given.Metadata)
			a.stands(given, ruleTransferMeta)
			kept = a.give(given, b)
		}
	})},
	{name: "transfer/to-expired-session", needs: needTransfer, waits: true,
		run: brief(func(t *storeT, b, a *node) {
			r := a.win("b")
			b.outlive()
			if t.opts.stall > 0 || t.opts.observed {
				t.inTime(errors.Is(b.renew().Err, store.ErrSessionGone), ruleRevive, "a renewal after expiry was granted")
			}
			out := a.transfer(b.taking(r.Held()))[0] // the first call after its end
			t.require(!out.OK && errors.Is(out.Err, store.ErrSessionGone), ruleTransferGone, "outcome %+v", out)
			a.stands(r, ruleTransferGone)
		})},
	{name: "transfer/outlives-mover", needs: needTransfer, waits: true,
		run: brief(func(t *storeT, a, other *node) {
			r := a.own
			r = a.give(r, t.node())
			a.outlive()
			other.stands(r, ruleTransferExpiry)
		})},
	{name: "transfer/expires-with-target", needs: needTransfer, waits: true,
		run: brief(func(t *storeT, b, a *node) {
			r := a.win("b")
			b.pass(0.5)
			a.give(r, b) // attaching renews nothing
			b.letExpire(a, "b")
		})},
	{name: "transfer/renewed-by-target", needs: needTransfer, waits: true,
		run: brief(func(t *storeT, a, other *node) {
			r := a.own
			b := t.brief()
			r = a.give(r, b)
			for range 3 {
				b.pass(0.6)
				b.renewed()
			}
			b.lives(other, r, ruleTransferExpiry)
		})},
	{name: "transfer/unsupported", needs: needNoTransfer, run: held(func(t *storeT, n, b *node) {
		tr, ok := n.store.(store.Transferrer)
		if !ok {
			return
		}
		ctx, cancel := t.context()
		defer cancel()
		outs, err := tr.Transfer(ctx, []store.Transfer{b.taking(n.own.Held())})
		said := errors.Is(err, store.ErrUnsupported) || len(outs) == 1 && errors.Is(outs[0].Err, store.ErrUnsupported)
		t.check(said, ruleUnsupported, "Transfer: %+v, error %v", outs, err)
		n.stands(n.own, ruleUnsupported)
	})},
	{name: "transfer/no-gap", needs: needTransfer, run: held(transferNoGap)},
	{name: "transfer/two-targets-at-once", needs: needTransfer, run: func(t *storeT) {
		ns := t.nodes(4)
		r := ns[0].win("a")
		for range 20 {
			i, outs := t.oneOf(len(ns), ruleTransferOnce, func(i int) store.Outcome { return ns[i].transfer(ns[i].taking(r.Held()))[0] })
			r = outs[i].Record
			ns[0].stands(r, ruleTransferOnce)
		}
	}},
	{name: "transfer/against-release", needs: needTransfer, run: two(func(t *storeT, a, b *node) {
		for range 25 {
			r := a.win("a")
			i, outs := t.oneOf(2, ruleTransferOnce, func(i int) store.Outcome {
				t.pace()
				if i == 0 {
					return a.transfer(b.taking(r.Held()))[0]
				}
				return b.release(r.Held())[0]
			})
			if i == 0 {
				b.stands(outs[0].Record, ruleTransferOnce)
				b.freed(outs[0].Record)
			} else {
				b.free("a", ruleTransferOnce)
			}
		}
	})},
	{name: "transfer/against-close", needs: needTransfer, run: func(t *storeT) {
		// The record is the mover's or gone: it does not stand under a session that is closed.
		a := t.node()
		for range 25 {
			b := t.node()
			r := a.win("a")
			var moved store.Outcome
			t.together(2, func(i int) {
				t.pace()
				if i == 0 {
					moved = a.transfer(b.taking(r.Held()))[0]
				} else {
					b.close()
				}
			})
			if moved.OK {
				a.free("a", ruleClose)
			} else {
				a.stands(r, ruleTransferGone)
				a.freed(r)
			}
		}
	}},
}

// transferMixed: one call with moves that apply and moves that do not, each
// answered in its place.
func transferMixed(t *storeT) {
	a, b, gone := t.node(), t.node(), t.node()
	gone.close()
	w, x, y, z := a.win("w"), a.win("x"), b.win("y"), a.win("z")
	stale := x.Held()
	stale.Nonce++
	moves := []store.Transfer{b.taking(z.Held()), b.taking(stale), gone.taking(w.Held()), a.taking(y.Held())}
	moves = moves[:t.batch(a.store, len(moves))]
	want := []bool{true, false, false, true}
	for i, out := range a.transfer(moves...) {
		t.require(out.OK == want[i], ruleOrder, "move %d, of %q: %+v, want OK %v", i, moves[i].Name, out, want[i])
		t.check(errors.Is(out.Err, store.ErrSessionGone) == (i == 2), ruleTransferGone, "move %d, of %q: Err %v", i, moves[i].Name, out.Err)
		if out.OK {
			a.stands(out.Record, ruleTransfer)
		}
	}
	a.stands(w, ruleTransferGone)
	a.stands(x, ruleTransferRefused)
}

// transferNoGap passes a name to and fro while others claim it and look: no
// claim ever wins, and no read finds it free.
func transferNoGap(t *storeT, a, b *node) {
	r := a.own
	var stop atomic.Bool
	thirds := t.nodes(3)
	wait := t.background(len(thirds), func(i int) {
		for !stop.Load() && !t.Failed() {
			out := thirds[i].try("a")
			t.check(!out.OK, ruleTransferAtomic, "a third won token %d", out.Record.Token)
			t.check(len(thirds[i].get("a")) == 1, ruleTransferAtomic, "a third saw the name free")
			t.pace()
		}
	})
	const within = 300 * time.Millisecond
	for end := time.Now().Add(within); time.Now().Before(end) && !t.Failed(); {
		out := a.transfer(b.taking(r.Held()))[0]
		t.require(out.OK, ruleTransfer, "token %d, which nothing else moves, was refused: %+v", r.Token, out)
		r = out.Record
		a, b = b, a
		t.pace()
	}
	stop.Store(true)
	wait()
}

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
