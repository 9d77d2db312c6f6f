package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/store"
)

var acquireCases = []testCase{
	{name: "acquire/free", run: held(func(t *storeT, n, other *node) {
		n.stands(n.own, ruleSeenByAll)
		other.stands(n.own, ruleSeenByAll)
	})},
	{name: "acquire/two-at-once", run: func(t *storeT) { acquireAtOnce(t, 2, 40) }},
	{name: "acquire/sixty-four-at-once", run: func(t *storeT) { acquireAtOnce(t, 64, 5) }},
	{name: "acquire/one-owner-at-once",
		run: one(func(t *storeT, n *node) { // the nonce tells the claims of a session apart
			for round := range 10 {
				name := fmt.Sprintf("a/%d", round)
				i, outs := t.oneOf(8, ruleOneWinner, func(int) store.Outcome { return n.try(name) })
				n.stands(outs[i].Record, ruleSeenByAll)
			}
		})},
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
	{name: "token/never-shared", run: tokenNeverShared},
	{name: "release/at-once", run: one(func(t *storeT, n *node) {
		for range 20 {
			r := n.win("a")
			t.oneOf(4, ruleReleaseOnce, func(int) store.Outcome { return n.release(r.Held())[0] })
		}
	})},
}

// acquireAtOnce lets nodes claim one name at one moment, again and again.
func acquireAtOnce(t *storeT, nodes, rounds int) {
	clients := make([]store.Store, min(nodes, 8))
	for i := range clients {
		clients[i] = t.client()
	}
	ns := make([]*node, nodes)
	for i := range ns {
		ns[i] = t.nodeOn(clients[i%len(clients)])
	}
	for range rounds {
		winner, outs := t.oneOf(nodes, ruleOneWinner, func(i int) store.Outcome { return ns[i].try("a") })
		for _, out := range outs {
			t.sameRecord(out.Record, outs[winner].Record, ruleHolder)
		}
		ns[winner].freed(outs[winner].Record)
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

// tokenNeverShared: over many clients at once, no token of a name appears twice.
func tokenNeverShared(t *storeT) {
	const nodes, rounds = 8, 25
	ns := t.nodes(nodes)
	var owners sync.Map
	t.together(nodes, func(i int) {
		for range rounds {
			if out := ns[i].try("a"); out.OK {
				was, taken := owners.LoadOrStore(out.Record.Token, out.Record)
				t.check(!taken, ruleToken, "token %d was issued for %+v and for %+v", out.Record.Token, out.Record, was)
				ns[i].release(out.Record.Held())
			}
			t.pace()
		}
	})
}

// large is the size of a large batch where the store's Limits allow it.
const large = 1000

var batchCases = []testCase{
	{name: "batch/mixed", run: two(batchMixed)},
	{name: "batch/large", run: two(batchLarge)},
	{name: "batch/one-name-twice", run: one(batchTwice)},
	{name: "batch/at-once", run: batchAtOnce},
	{name: "batch/empty", run: held(batchEmpty)},
	{name: "batch/arguments-are-not-kept", run: one(batchArguments)},
}

// batchMixed: a batch of free, held, own and superseding claims answers each in
// its place.
func batchMixed(t *storeT, n, other *node) {
	if t.batch(n.store, 6) < 6 {
		t.Logf("the store takes batches of %d: nothing to mix", t.batch(n.store, 6))
		return
	}
	held := other.win("held")
	own, super := n.win("own"), n.win("super")
	claims := []store.Claim{
		t.claim("z"), t.claim("held"), t.claim("a"), t.claim("own"), t.supersede(super), t.claim("m"),
	}
	standing := map[string]store.Record{"held": held, "own": own}
	for i, out := range n.acquire(claims...) {
		name := claims[i].Name
		refusal, refused := standing[name]
		t.require(out.Record.Name == name && out.OK != refused, ruleOrder,
			"claim %d, of %q: OK %v with the record of %q, want OK %v", i, name, out.OK, out.Record.Name, !refused)
		if refused {
			t.sameRecord(out.Record, refusal, ruleHolder)
		}
		n.stands(out.Record, ruleSeenByAll)
	}
	n.stands(held, ruleHeld)
	n.stands(own, ruleHeld)
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
	held := make([]store.Held, 0, size)
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

// batchAtOnce: of overlapping batches, each name has one winner.
func batchAtOnce(t *storeT) {
	const nodes = 8
	first := t.node()
	size := t.batch(first.store, 20)
	for round := range 5 {
		ns := t.nodes(nodes)
		var outs [nodes][]store.Outcome
		t.together(nodes, func(i int) {
			claims := make([]store.Claim, size)
			for j := range claims { // each in another order
				claims[j] = t.claim(fmt.Sprintf("%d/%d", round, (i*3+j)%size))
			}
			outs[i] = ns[i].acquire(claims...)
		})
		wins := make(map[string]int)
		for _, out := range slices.Concat(outs[:]...) {
			if out.OK {
				wins[out.Record.Name]++
			}
		}
		for j := range size {
			name := fmt.Sprintf("%d/%d", round, j)
			t.require(wins[name] == 1, ruleOneWinner, "%q was won %d times by overlapping batches", name, wins[name])
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

// Claims that are won only while another ownership stands: leases under leases.
var whileCases = []testCase{
	{name: "while/stands", needs: needWhile, run: held(whileStands)},
	{name: "while/gone", needs: needWhile, run: held(whileGone)},
	{name: "while/superseding", needs: needWhile, run: held(whileSuperseding)},
	{name: "while/transferred", needs: needWhile | needTransfer,
		run: held(func(t *storeT, a, b *node) {
			now := a.give(a.own, b)
			a.orphaned(t.under("w/child", a.own))
			b.freed(b.winClaim(t.under("w/child", now), ruleWhile))
		})},
	{name: "while/closed", needs: needWhile, run: held(func(t *storeT, a, b *node) {
		b.freed(b.winClaim(t.under("w/child", a.own), ruleWhile))
		a.close()
		b.orphaned(t.under("w/child", a.own))
	})},
	{name: "while/expired", needs: needWhile, waits: true, run: brief(func(t *storeT, n, other *node) {
		n.letExpire(other, "a")
		other.orphaned(t.under("w/child", n.own))
	})},
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
	a.freed(p)
	for _, r := range []store.Record{own, theirs, third} { // what was won stays, and lives on
		b.stands(r, ruleWhileStays)
	}
	a.renew()
	b.freed(b.winClaim(t.under("w/again", theirs), ruleWhile))
	b.freed(a.superseded(own)) // the next claim has a condition of its own, or none
}

func whileGone(t *storeT, a, b *node) {
	p := a.own
	beside := b.win("w/beside")
	for _, h := range []store.Held{
		{Name: "w/none", Token: p.Token, Nonce: p.Nonce},
		{Name: p.Name, Token: p.Token + 1, Nonce: p.Nonce},
		{Name: p.Name, Token: p.Token, Nonce: p.Nonce + 1},
		{Name: p.Name, Token: p.Token, Nonce: p.Nonce - 1},
		{Name: p.Name, Token: beside.Token, Nonce: beside.Nonce},
		{Name: "A", Token: p.Token, Nonce: p.Nonce},
	} {
		for _, name := range []string{"w/free", "w/beside"} {
			c := t.claim(name)
			c.While = h
			a.orphaned(c)
		}
	}
	next := a.superseded(p)
	a.orphaned(t.under("w/child", p))
	a.freed(a.winClaim(t.under("w/child", next), ruleWhile))
	a.freed(next)
	a.orphaned(t.under("w/child", next))
	last := b.winClaim(store.Claim{Name: p.Name, Nonce: p.Nonce}, ruleFree) // another's, with the nonce of the first
	a.orphaned(t.under("w/child", p))
	a.freed(a.winClaim(t.under("w/child", last), ruleWhile))
	a.freed(a.win("w/child"))
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
