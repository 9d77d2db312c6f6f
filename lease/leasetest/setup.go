package leasetest

import (
	"errors"
	"reflect"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Cases that a backend must arrange: see the options BadRecords and Restart.
var setupCases = []testCase{
	{name: "setup/bad-record", needs: needBadRecords, run: badRecord},
	{name: "setup/bad-record-in-lists", needs: needBadRecords | needList, run: badRecordListed},
	{name: "setup/bad-record-in-watches", needs: needBadRecords | needWatch, run: badRecordWatched},
	{name: "setup/restart", needs: needRestart, run: restarted},
}

// badRecord claims, reads and releases where something foreign stands.
func badRecord(t *T) {
	client, spoil := t.opts.bad(t)
	t.client = client
	n := t.node()
	spoil("b/bad")
	r := n.win("b/good")
	names := []string{"b/bad", "b/other"}[:t.batch(n.store, 2)]
	for _, over := range []lease.Token{0, 1, r.Token} {
		claims := make([]lease.Claim, len(names))
		for i, name := range names {
			claims[i] = t.claim(name)
			claims[i].Supersedes = over
		}
		ctx, cancel := t.context()
		outs, err := n.store.Acquire(ctx, n.session, claims)
		cancel()
		t.require(err == nil && len(outs) == len(names), ruleBadOther, "Acquire: %d outcomes, error %v", len(outs), err)
		t.check(!outs[0].OK && errors.Is(outs[0].Err, lease.ErrBadRecord), ruleBadAcquire, "superseding %d: %+v", over, outs[0])
		if len(names) > 1 {
			t.require(outs[1].OK, ruleBadOther, "a free name in the same batch: %+v", outs[1])
			n.freed(outs[1].Record)
		}
	}
	ctx, cancel := t.context()
	defer cancel()
	outs, err := n.store.Release(ctx, []lease.Held{{Name: "b/bad", Token: 1, Nonce: 1}})
	t.check(err != nil || len(outs) == 1 && !outs[0].OK, ruleBadRead, "a release of what is no record: %+v", outs)
	found, err := n.store.Get(ctx, "b/bad")
	t.check(err == nil && len(found) == 1 && reflect.DeepEqual(found[0], lease.Record{Name: "b/bad"}), ruleBadGet, "Get: %+v, error %v", found, err)
	for _, names := range [][]string{{"b/bad", "b/good", "b/free"}, {"b/free", "b/good", "b/bad"}} {
		got, err := t.getCtx(ctx, n.store, names...)
		t.check(err == nil && len(got) == 2 && got["b/good"].Token == r.Token && got["b/bad"].Token == 0, ruleBadGet, "Get of %v: %+v, error %v", names, got, err)
	}
	n.stands(r, ruleBadOther)
	n.close()
	t.node().win("b/good")
}

func badRecordListed(t *T) {
	client, spoil := t.opts.bad(t)
	t.client = client
	n := t.node()
	for _, name := range []string{"b/1", "b/3", "b/5"} {
		n.win(name)
	}
	spoil("b/2")
	spoil("b/4")
	ctx, cancel := t.context()
	defer cancel()
	good, bad := 0, 0
	for r, err := range n.store.List(ctx, "b/") {
		switch {
		case err == nil:
			t.check(r.Token != 0, ruleBadRead, "listed: %+v", r)
			good++
		case errors.Is(err, lease.ErrBadRecord):
			t.check(r.Name == "b/2" || r.Name == "b/4", ruleBadList, "%v came with the name %q", err, r.Name)
			bad++
		default:
			t.Fatalf("List: %v", err)
		}
	}
	t.check(good == 3 && bad == 2, ruleBadList, "3 records and 2 others stand, listed were %d and %d", good, bad)
}

func badRecordWatched(t *T) {
	client, spoil := t.opts.bad(t)
	t.client = client
	n := t.node()
	n.win("b/1")
	spoil("b/2")
	w := t.watch(n.store, "b/")
	w.synced()
	spoil("b/3")
	r := n.win("b/4")
	w.sees(lease.EventPut, "b/4", r.Token)
	for _, name := range []string{"b/2", "b/3"} {
		ok := w.until(func(events []seen) bool { return has(events, lease.EventBad, name, 0) })
		t.check(ok, ruleBadWatch, "nothing of %q: %s", name, show(w.all()))
	}
	t.check(len(w.check()) == 2, ruleBadOther, "2 records stand: %s", show(w.all()))
}

// restarted takes tokens, restarts the backing store, and takes more.
func restarted(t *T) {
	client, restart := t.opts.restart(t)
	t.client = client
	n := t.node()
	for range 10 {
		n.freed(n.win("r/free"))
	}
	kept := n.win("r/kept")
	restart()
	var r lease.Record
	again := t.eventually(func() bool {
		ctx, cancel := t.context()
		defer cancel()
		outs, err := n.acquireCtx(ctx, t.claim("r/free"))
		if err == nil && !outs[0].OK { // an attempt before, that got no answer
			outs, err = n.acquireCtx(ctx, t.supersede(outs[0].Record))
		}
		if err != nil || !outs[0].OK {
			time.Sleep(t.tick())
			return false
		}
		r = outs[0].Record // its token is checked against those before
		return true
	})
	t.require(again, ruleRestart, "%v after the restart a free name can't be acquired", callBound)
	n.stands(kept, ruleRestart)
	n.stands(r, ruleRestart)
	n.freed(kept)
	n.freed(r)
	t.node().win("r/kept")
}
