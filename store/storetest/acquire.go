package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/store"
)

var acquireCases = []testCase{
	{name: "acquire/free", run: held(func(t *storeT, n, other *node) {
		n.stands(n.own, ruleSeenByAll)
		other.stands(n.own, ruleSeenByAll)
	})},
	{name: "acquire/at-once", run: func(t *storeT) { atOnce(t, 64, 1, 10) }},
	{name: "acquire/supersedes-metadata", run: one(func(t *storeT, n *node) {
		c := t.claim("a")
		c.Metadata = map[string]string{"kept": "no"}
		c = t.supersede(n.winClaim(c, ruleFree))
		c.Metadata = map[string]string{"new": "yes"}
		t.node().stands(n.winClaim(c, ruleSupersede), ruleSupersede)
	})},
	{name: "acquire/supersedes-free", run: one(func(t *storeT, n *node) {
		c := t.claim("a")
		c.Supersedes = 7
		r := n.winClaim(c, ruleFree)
		n.freed(r)
		n.winClaim(t.supersede(r), ruleFree)
	})},
	{name: "acquire/supersedes-at-once", run: held(func(t *storeT, n, _ *node) {
		r := n.own
		for range 10 {
			i, outs := t.oneOf(8, ruleSupersedeBy, func(int) store.Outcome { return n.acquire(t.supersede(r))[0] })
			r = outs[i].Record
		}
	})},
	{name: "token/over-many-changes", run: held(tokenMany)},
	{name: "release/at-once", run: two(func(t *storeT, a, b *node) { // and transfers beside
		ns := []*node{a, b, t.node(), t.node()}
		for range 40 {
			r := a.win("a")
			moves := func(i int) bool { return i%2 == 1 && t.can(needTransfer) }
			i, outs := t.oneOf(len(ns), ruleTransferOnce, func(i int) store.Outcome {
				t.pace()
				if moves(i) {
					return ns[i].transfer(ns[i].taking(r.Held()))[0]
				}
				return ns[i].release(r.Held())[0]
			})
			if moves(i) {
				b.stands(outs[i].Record, ruleTransferOnce)
				b.freed(outs[i].Record)
			}
			b.free("a", ruleTransferOnce)
		}
	})},
}

// atOnce has requests claim the same names at one moment, several for each node: their nonces tell
// them apart. Each name is claimed twice: a new one, and one that was held before.
func atOnce(t *storeT, requests, size, rounds int) {
	ns := t.nodes(8)
	size = t.batch(ns[0].store, size)
	for round := range rounds {
		outs := make([][]store.Outcome, requests)
		t.together(requests, func(i int) {
			claims := make([]store.Claim, size)
			for j := range claims { // each in another order
				claims[j] = t.claim(fmt.Sprintf("%d/%d", round/2, (i*3+j)%size))
			}
			outs[i] = ns[i%len(ns)].acquire(claims...)
		})
		won := make(map[string]store.Record)
		for _, out := range slices.Concat(outs...) {
			if r := out.Record; out.OK {
				t.require(won[r.Name].Token == 0, ruleOneWinner, "%q was won as %+v and as %+v", r.Name, won[r.Name], r)
				won[r.Name] = r
			}
		}
		t.require(len(won) == size, ruleOneWinner, "%d of %d names were won", len(won), size)
		for _, out := range slices.Concat(outs...) {
			t.sameRecord(out.Record, won[out.Record.Name], ruleHolder)
		}
		for _, r := range won {
			ns[0].stands(r, ruleSeenByAll)
			ns[0].freed(r)
		}
	}
}

// tokenMany takes one name through every way of changing hands, in drawn order. Every success
// is compared with all earlier ones of its name (won).
func tokenMany(t *storeT, n, other *node) {
	r := n.own
	for range 40 {
		switch t.random(4) {
		case 0:
			n.freed(r)
			n, other = other, n
			r = n.win("a")
		case 1:
			r = n.superseded(r)
		case 2:
			n.close()
			n = t.node()
			r = n.win("a")
		case 3:
			if t.can(needTransfer) {
				r = n.give(r, other)
				n, other = other, n
			}
		}
		n.stands(r, ruleSeenByAll)
	}
}

// large is the size of a large batch where the store's Limits allow it.
const large = 1000

var batchCases = []testCase{
	{name: "batch/large", run: two(batchLarge)},
	{name: "batch/one-name-twice", run: one(batchTwice)},
	{name: "batch/at-once", run: func(t *storeT) { atOnce(t, 8, 20, 6) }},
	{name: "batch/empty", run: held(batchEmpty)},
	{name: "batch/arguments-are-not-kept", run: one(batchArguments)},
}

func batchLarge(t *storeT, n, other *node) {
	size := t.batch(n.store, large)
	claims := make([]store.Claim, size)
	names := make([]string, size)
	for i := range claims {
		names[i] = fmt.Sprintf("batch/%d", (i*7919)%size+size) // not in the order of the names
		claims[i] = t.claim(names[i])
		claims[i].Metadata = map[string]string{"i": fmt.Sprint(i)}
	}
	taken := other.win(names[size/2])
	refusals := map[int]store.Record{size / 2: taken}
	if size > 3 {
		refusals[size-1] = n.win(names[size-1])
		claims[size-2] = t.supersede(n.win(names[size-2]))
	}
	held := make([]store.Held, 0, size)
	for i, out := range n.acquire(claims...) {
		refusal, refused := refusals[i]
		t.require(out.Record.Name == names[i], ruleOrder, "outcome %d is about %q, the claim about %q", i, out.Record.Name, names[i])
		t.require(out.OK != refused, ruleBatchAll, "claim %d of %d, of %q: OK %v", i, size, names[i], out.OK)
		if refused {
			t.sameRecord(out.Record, refusal, ruleHolder)
		}
		held = append(held, out.Record.Held())
	}
	found := n.get(names...)
	t.require(len(found) == size, ruleGet, "asked for %d held names, got %d", size, len(found))
	for i, h := range held {
		t.require(found[names[i]].Held() == h, ruleGet, "%q: got %+v, want %+v", names[i], found[names[i]].Held(), h)
	}
	held[size/2].Nonce++ // now surely no ownership
	held[size/3] = store.Held{Name: "free", Token: 3, Nonce: 3}
	left := map[string]bool{}
	for i, out := range n.release(held...) {
		left[names[i]] = i == size/2 || i == size/3
		t.require(out.OK != left[names[i]], ruleOrder, "release %d of %d, of %q: OK %v", i, size, held[i].Name, out.OK)
	}
	found = n.get(names...)
	for _, name := range names {
		t.require((found[name].Name != "") == left[name], ruleRelease, "%q after a release of %d names: %+v", name, size, found[name])
	}
	n.stands(taken, ruleReleaseOnly)
}

// batchTwice: a store may refuse such a batch, whole or in part, but not let one
// ownership be two.
func batchTwice(t *storeT, n *node) {
	if t.batch(n.store, 3) < 3 {
		t.Logf("the store takes batches of %d: no name fits in twice", t.batch(n.store, 3))
		return
	}
	outs, err := n.acquires(t.claim("a"), t.claim("b"), t.claim("a"))
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

func batchEmpty(t *storeT, n, _ *node) {
	ctx, cancel := t.context()
	defer cancel()
	nothing[store.Outcome](t, "Acquire")(n.store.Acquire(ctx, n.session, nil))
	nothing[store.Outcome](t, "Release")(n.store.Release(ctx, nil))
	nothing[store.Grant](t, "Renew")(n.store.Renew(ctx, nil))
	nothing[store.Record](t, "Get")(n.store.Get(ctx))
	if t.can(needTransfer) {
		nothing[store.Outcome](t, "Transfer")(n.store.(store.Transferrer).Transfer(ctx, nil))
	}
	n.stands(n.own, ruleEmpty)
}

// nothing checks what a call about nothing returns.
func nothing[A any](t *storeT, call string) func(answers []A, err error) {
	return func(answers []A, err error) {
		t.check(err == nil && len(answers) == 0, ruleEmpty,
			"%s: %d answers, error %v", call, len(answers), err)
	}
}

// batchArguments changes the maps that the store was given and returned: no record changes.
func batchArguments(t *storeT, n *node) {
	given := map[string]string{"k": "v"}
	c := t.claim("a")
	c.Metadata = given
	claims := []store.Claim{c}
	r := n.acquire(claims...)[0].Record
	claims[0].Name = "other"
	want := r
	want.Metadata = map[string]string{"k": "v"}
	for _, m := range []map[string]string{given, r.Metadata, n.get("a")["a"].Metadata, t.node().try("a").Record.Metadata} {
		if m != nil { // the claim's, the outcome's, the reader's, the loser's
			m["k"] = "changed"
		}
		n.stands(want, ruleMapShared)
	}
}

// Claims that are won only while another ownership stands: leases under leases. The cases hands/*
// claim while what does not stand.
var whileCases = []testCase{
	{name: "while/stands", needs: needWhile, run: held(whileStands)},
	{name: "while/superseding", needs: needWhile, run: held(whileSuperseding)},
	{name: "while/in-a-batch", needs: needWhile, run: two(whileBatch)},
	{name: "while/as-it-goes", needs: needWhile, run: two(whileGoing)},
	{name: "while/invalid", needs: needWhile, run: held(func(t *storeT, n, _ *node) {
		p := n.own
		for _, on := range []store.Held{
			{Name: "w/child", Token: p.Token, Nonce: p.Nonce}, {Name: p.Name, Nonce: p.Nonce}, {Token: p.Token, Nonce: p.Nonce},
			{Name: "/", Token: p.Token}, {Name: "\xff", Token: p.Token},
		} {
			c := t.claim("w/child")
			c.While = on
			n.denied(c, store.ErrInvalid, ruleInvalid)
		}
	})},
	{name: "while/unsupported", needs: needNoWhile, run: one(func(t *storeT, n *node) {
		n.denied(t.under("w/child", n.win("w/parent")), store.ErrUnsupported, ruleUnsupported)
	})},
}

// under is a claim of name while r stands.
func (t *storeT) under(name string, r store.Record) store.Claim {
	c := t.claim(name)
	c.While = r.Held()
	return c
}

// replacing is a claim under r that supersedes a token.
func (t *storeT) replacing(child store.Record, token store.Token, r store.Record) store.Claim {
	c := t.under(child.Name, r)
	c.Supersedes = token
	return c
}

// orphaned sends a claim whose While does not stand. It is fatal.
func (n *node) orphaned(c store.Claim) {
	n.t.Helper()
	n.denied(c, store.ErrParentLost, ruleWhile)
}

func whileStands(t *storeT, a, b *node) {
	p := a.own
	own := a.winClaim(t.under("w/own", p), ruleWhile)
	theirs := b.winClaim(t.under("w/theirs", p), ruleWhile) // under another's
	third := b.winClaim(t.under("w/third", own), ruleWhile)
	b.refused(t.under("w/own", p), own, ruleHeld)
	upper := p
	upper.Name = "A"
	a.orphaned(t.under("w/child", upper))
	a.freed(p)
	for _, r := range []store.Record{own, theirs, third} { // what was won stays, and lives on
		b.stands(r, ruleWhileStays)
	}
	a.renew()
	b.freed(b.winClaim(t.under("w/again", theirs), ruleWhile))
	b.freed(a.superseded(own)) // the next claim has a condition of its own, or none
}

func whileSuperseding(t *storeT, a, b *node) {
	p := a.own
	sibling := a.again()
	child := a.winClaim(t.under("w/child", p), ruleWhile)
	for _, n := range []*node{a, sibling, a} { // under the session of what stands, and under another
		child = n.winClaim(t.replacing(child, child.Token, p), ruleSupersede)
	}
	a.refused(t.replacing(child, child.Token+1, p), child, ruleSupersedeBy)
	b.refused(t.replacing(child, child.Token, p), child, ruleSupersedeOf)
	a.freed(p)
	for _, n := range []*node{a, sibling, b} {
		n.orphaned(t.replacing(child, child.Token, p))
	}
	a.freed(child)
	a.orphaned(t.replacing(child, child.Token, p)) // nothing stands any more
}

func whileBatch(t *storeT, a, b *node) {
	p, q := a.win("w/p"), b.win("w/q")
	gone := b.win("w/gone")
	b.freed(gone)
	held := b.win("w/held")
	claims := []store.Claim{
		t.claim("w/1"), t.under("w/2", p), t.under("w/3", gone), t.under("w/held", p), t.under("w/5", q), t.under("w/held", gone), t.claim("w/7"),
	}
	claims = claims[:t.batch(a.store, len(claims))]
	outs, err := a.acquires(claims...)
	t.require(err == nil, ruleWhile, "a batch with a claim whose While does not stand: %v", err)
	for i, out := range outs {
		switch c := claims[i]; {
		case c.While == gone.Held():
			t.require(!out.OK && errors.Is(out.Err, store.ErrParentLost), ruleWhile, "claim %d of %q: %+v", i, c.Name, out)
		case c.Name == held.Name:
			t.require(!out.OK && out.Err == nil, ruleHeld, "claim %d of %q: %+v", i, c.Name, out)
			t.sameRecord(out.Record, held, ruleHolder)
		default:
			t.require(out.OK, ruleWhile, "claim %d of %q: %+v", i, c.Name, out)
		}
	}
	b.free("w/3", ruleWhile)
}

// whileGoing claims while the parent is being released. If the child's name was free after
// that, nothing wins it later.
func whileGoing(t *storeT, a, b *node) {
	for i := range 40 {
		p := a.win(fmt.Sprintf("w/parent/%d", i))
		child := fmt.Sprintf("w/child/%d", i)
		var free bool
		var out store.Outcome
		t.together(2, func(i int) {
			t.pace()
			if i == 0 {
				a.release(p.Held())
				free = len(a.get(child)) == 0
				return
			}
			outs, err := b.acquires(t.under(child, p))
			t.must(err, "Acquire of %q", child)
			out = outs[0]
		})
		t.require(!out.OK || !free, ruleWhile, "%q was won after %q was released, and the name was seen free", child, p.Name)
		t.require(out.OK || errors.Is(out.Err, store.ErrParentLost), ruleWhile, "%q, while %q is released: %+v", child, p.Name, out)
	}
}
