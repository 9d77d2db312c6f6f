package leasetest

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/lease"
)

// large is the size of a large batch where the store's Limits allow it.
const large = 1000

var batchCases = []testCase{
	{name: "batch/mixed", run: batchMixed},
	{name: "batch/large", run: batchLarge},
	{name: "batch/one-name-twice", run: batchTwice},
	{name: "batch/at-once", run: batchAtOnce},
	{name: "batch/empty", run: batchEmpty},
	{name: "batch/arguments-are-not-kept", run: batchArguments},
}

// batchMixed: a batch of free, held, own and superseding claims answers each in
// its place.
func batchMixed(t *T) {
	n, other := t.node(), t.node()
	if t.batch(n.store, 6) < 6 {
		t.Logf("the store takes batches of %d: nothing to mix", t.batch(n.store, 6))
		return
	}
	held := other.win("held")
	own, super := n.win("own"), n.win("super")
	claims := []lease.Claim{
		t.claim("z"), t.claim("held"), t.claim("a"), t.claim("own"), t.supersede(super), t.claim("m"),
	}
	standing := map[string]lease.Record{"held": held, "own": own}
	want := []bool{true, false, true, false, true, true}
	for i, out := range n.acquire(claims...) {
		name := claims[i].Name
		t.require(out.Record.Name == name && out.OK == want[i], ruleOrder,
			"claim %d, of %q: OK %v with the record of %q, want OK %v", i, name, out.OK, out.Record.Name, want[i])
		if !out.OK {
			t.sameRecord(out.Record, standing[name], ruleHolder)
			continue
		}
		n.stands(out.Record, ruleSeenByAll)
	}
	n.stands(held, ruleHeld)
	n.stands(own, ruleHeld)
}

func batchLarge(t *T) {
	n, other := t.node(), t.node()
	size := t.batch(n.store, large)
	claims := make([]lease.Claim, size)
	names := make([]string, size)
	for i := range claims {
		names[i] = fmt.Sprintf("batch/%d", (i*7919)%size+size) // not in the order of the names
		claims[i] = t.claim(names[i])
		claims[i].Metadata = map[string]string{"i": fmt.Sprint(i)}
	}
	taken := other.win(names[size/2])
	held := make([]lease.Held, 0, size)
	for i, out := range n.acquire(claims...) {
		t.require(out.Record.Name == names[i], ruleOrder, "outcome %d is about %q, the claim about %q", i, out.Record.Name, names[i])
		t.require(out.OK == (i != size/2), ruleBatchAll, "claim %d of %d, of %q: OK %v", i, size, names[i], out.OK)
		held = append(held, out.Record.Held())
	}
	found := n.get(names...)
	t.require(len(found) == size, ruleGet, "asked for %d held names, got %d", size, len(found))
	for i, h := range held {
		t.require(found[names[i]].Held() == h, ruleGet, "%q: got %+v, want %+v", names[i], found[names[i]].Held(), h)
	}
	held[size/2].Nonce++ // now surely no ownership
	for i, out := range n.release(held...) {
		t.require(out.OK == (i != size/2), ruleOrder, "release %d of %d, of %q: OK %v", i, size, names[i], out.OK)
	}
	found = n.get(names...)
	t.require(len(found) == 1, ruleRelease, "%d of %d names stand after their release, want 1", len(found), size)
	n.stands(taken, ruleReleaseOnly)
}

// batchTwice: a store may refuse such a batch, whole or in part, but not let one
// ownership be two.
func batchTwice(t *T) {
	n := t.node()
	if t.batch(n.store, 3) < 3 {
		t.Logf("the store takes batches of %d: no name fits in twice", t.batch(n.store, 3))
		return
	}
	ctx, cancel := t.context()
	defer cancel()
	claims := []lease.Claim{t.claim("a"), t.claim("b"), t.claim("a")}
	outs, err := n.acquireCtx(ctx, claims...)
	if err != nil {
		t.Logf("refused whole: %v", err)
		return
	}
	got, held := n.get("a")["a"]
	for _, i := range []int{0, 2} {
		if outs[i].OK {
			t.check(held && got.Held() == outs[i].Record.Held(), ruleBatchTwice, "won %+v, and there stands %+v", outs[i].Record, got)
		}
	}
}

// batchAtOnce: of overlapping batches, each name has one winner.
func batchAtOnce(t *T) {
	const nodes = 8
	first := t.node()
	size := t.batch(first.store, 20)
	for round := range 5 {
		var ns [nodes]*node
		var outs [nodes][]lease.Outcome
		for i := range ns {
			ns[i] = t.node()
		}
		t.together(nodes, func(i int) {
			claims := make([]lease.Claim, size)
			for j := range claims { // each in another order
				claims[j] = t.claim(fmt.Sprintf("%d/%d", round, (i*3+j)%size))
			}
			ctx, cancel := t.context()
			defer cancel()
			var err error
			if outs[i], err = ns[i].acquireCtx(ctx, claims...); err != nil {
				t.Errorf("Acquire of %d claims: %v", size, err)
			}
		})
		wins := make(map[string]int)
		for _, o := range outs {
			for _, out := range o {
				if out.OK {
					wins[out.Record.Name]++
				}
			}
		}
		for j := range size {
			name := fmt.Sprintf("%d/%d", round, j)
			t.require(t.Failed() || wins[name] == 1, ruleOneWinner, "%q was won %d times by overlapping batches", name, wins[name])
		}
	}
}

func batchEmpty(t *T) {
	n := t.node()
	r := n.win("a")
	within := func(call func(context.Context)) {
		ctx, cancel := t.context()
		defer cancel()
		call(ctx)
	}
	within(func(ctx context.Context) {
		outs, err := n.store.Acquire(ctx, n.session, nil)
		t.check(err == nil && len(outs) == 0, ruleEmpty, "Acquire: %d outcomes, error %v", len(outs), err)
	})
	within(func(ctx context.Context) {
		outs, err := n.store.Release(ctx, nil)
		t.check(err == nil && len(outs) == 0, ruleEmpty, "Release: %d outcomes, error %v", len(outs), err)
	})
	within(func(ctx context.Context) {
		grants, err := n.store.Renew(ctx, nil)
		t.check(err == nil && len(grants) == 0, ruleEmpty, "Renew: %d grants, error %v", len(grants), err)
	})
	within(func(ctx context.Context) {
		found, err := n.store.Get(ctx)
		t.check(err == nil && len(found) == 0, ruleEmpty, "Get: %d records, error %v", len(found), err)
	})
	if tr, ok := n.store.(lease.TransferStore); ok && probe(t)&needTransfer != 0 {
		within(func(ctx context.Context) {
			outs, err := tr.Transfer(ctx, nil)
			t.check(err == nil && len(outs) == 0, ruleEmpty, "Transfer: %d outcomes, error %v", len(outs), err)
		})
	}
	n.stands(r, ruleEmpty)
}

// batchArguments: what a caller does to its arguments afterwards changes nothing.
func batchArguments(t *T) {
	n := t.node()
	given := map[string]string{"k": "v"}
	c := t.claim("a")
	c.Metadata = given
	claims := []lease.Claim{c}
	r := n.acquire(claims...)[0].Record
	want := r
	want.Metadata = map[string]string{"k": "v"}
	given["k"] = "changed"
	claims[0].Name = "other"
	n.stands(want, ruleMapShared)
	if r.Metadata != nil { // the outcome's
		r.Metadata["k"] = "changed"
	}
	n.stands(want, ruleMapShared)
	got := n.get("a")["a"]
	if got.Metadata != nil { // the reader's
		got.Metadata["k"] = "changed"
	}
	n.stands(want, ruleMapShared)
	out := t.node().try("a")
	if out.Record.Metadata != nil { // the loser's
		out.Record.Metadata["k"] = "changed"
	}
	n.stands(want, ruleMapShared)
}
