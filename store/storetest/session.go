package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// The cases hands/close and hands/expiry ask what can still be done under a session that is gone.
var sessionCases = []testCase{
	{name: "session/close", run: two(func(t *storeT, n, other *node) {
		sibling := n.again() // of the same owner
		names := n.many(20)
		b, c := sibling.win("b"), other.win("c")
		n.close()
		t.check(len(other.get(names...)) == 0, ruleClose, "%d of %d records stand after the session was closed", len(other.get(names...)), len(names))
		other.stands(b, ruleCloseOnly)
		other.stands(c, ruleCloseOnly)
		other.winAll(names, ruleFree)
	})},
	{name: "session/close-against-acquire", run: one(sessionCloseRace)},

	{name: "session/expires-for-acquirers", waits: true, run: brief(func(t *storeT, n, other *node) {
		n.watchExpiry(func() bool { return other.try("a").OK }, "a")
	})},
	{name: "session/expires-from-lists", needs: needList, waits: true,
		run: brief(func(t *storeT, n, other *node) {
			n.watchExpiry(func() bool { return len(other.list("a")) == 0 }, "a")
		})},
	{name: "session/acquire-does-not-renew", waits: true, run: brief(func(t *storeT, n, other *node) {
		n.pass(0.6)
		n.win("b")
		n.letExpire(other, "a")
		n.letExpire(other, "b")
	})},
	{name: "session/open-again-extends", waits: true, run: brief(func(t *storeT, n, other *node) {
		n.pass(0.6)
		last := *n
		n.reopen()
		if last.overdue() {
			t.noVerdict("the machine was too slow to open a session with a TTL of %v again in time", last.session.TTL)
		}
		n.pass(0.6)
		n.lives(other, n.own, ruleReopen)
		n.letExpire(other, "a")
	})},
	{name: "session/renewals-keep-all", waits: true, run: brief(sessionKeepsAll)},
	{name: "session/expires-alone", waits: true, run: brief(func(t *storeT, n, other *node) {
		lasting := t.brief()
		r := lasting.win("b")
		n.watchExpiry(func() bool {
			if time.Since(lasting.opened) > lasting.session.TTL/3 {
				lasting.renewed()
			}
			_, held := other.get("a")["a"]
			return !held
		}, "a")
		lasting.lives(other, r, ruleEarly)
	})},
	// In these cases the owner of the session makes the first call after its TTL: a store that removes
	// expired records when it meets them has met none.
	{name: "session/expired-unseen-is-gone", waits: true, run: brief(func(t *storeT, n, other *node) {
		n.outlive()
		g := n.renew()
		t.inTime(errors.Is(g.Err, store.ErrSessionGone), ruleRevive, "a renewal after expiry gave %+v", g)
		other.free("a", ruleRevive)
	})},
	{name: "session/expired-acquires-nothing", waits: true,
		run: brief(func(t *storeT, n, other *node) {
			n.outlive()
			outs, err := n.acquires(t.supersede(n.own))
			t.inTime(errors.Is(err, store.ErrSessionGone), ruleGoneAcquire, "outcomes %+v, error %v", outs, err)
			other.free("a", ruleGoneAcquire)
			other.win("a")
		})},
	{name: "session/expiry-frees-supersedes", waits: true, run: brief(func(t *storeT, n, other *node) {
		// An expired name is free for every session, whatever its claim supersedes.
		sibling := t.open(t.client(), n.session.Owner, time.Minute)
		n.letExpire(other, "a")
		sibling.winClaim(t.supersede(n.own), ruleFree)
	})},
}

// many wins some names, as many as the store takes in one call.
func (n *node) many(want int) []string {
	n.t.Helper()
	names := numbered("many/%d", n.t.batch(n.store, want))
	n.winAll(names, ruleFree)
	return names
}

// sessionCloseRace closes a session while claims are made under it: a claim that
// won before leaves nothing, and one that came after is refused with ErrSessionGone.
func sessionCloseRace(t *storeT, observer *node) {
	for round := range 15 {
		n := t.node()
		var mu sync.Mutex
		var names []string
		t.together(4, func(i int) {
			if i == 0 {
				t.pace()
				n.close()
				return
			}
			for j := range 20 {
				name := fmt.Sprintf("%d/%d/%d", round, i, j)
				_, err := n.acquires(t.claim(name))
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
				if errors.Is(err, store.ErrSessionGone) {
					return
				}
				t.must(err, "Acquire while the session is closed")
				t.pace()
			}
		})
		for batch := range slices.Chunk(names, t.batch(observer.store, len(names))) {
			left := observer.get(batch...)
			t.require(len(left) == 0, ruleClose, "records of a closed session stand: %+v", left)
		}
	}
}

// pass sleeps a part of the node's TTL.
func (n *node) pass(part float64) { time.Sleep(time.Duration(part * float64(n.session.TTL))) }

// outlive sleeps until the node's session must be gone.
func (n *node) outlive() {
	time.Sleep(time.Until(n.acked.Add(n.session.TTL + n.t.slack + time.Millisecond)))
}

// renewed renews a session that must still be live. It is fatal.
func (n *node) renewed() {
	n.t.Helper()
	t, sent := n.t, n.opened
	ttl := n.session.TTL
	g := n.renew()
	if g.Err != nil && n.overdue() {
		t.noVerdict("the machine was too slow to renew a TTL of %v in time", ttl)
	}
	t.require(g.Err == nil, ruleEarly, "%v after its last renewal was sent, a session with a TTL of %v could not be renewed: %v",
		time.Since(sent), ttl, g.Err)
}

// lives checks that r stands, as it must while the node's session does. It is
// fatal.
func (n *node) lives(observer *node, r store.Record, why rule) {
	n.t.Helper()
	got, held := observer.get(r.Name)[r.Name]
	if !held && n.overdue() {
		n.t.noVerdict("the machine was too slow to look at a record within its TTL of %v", n.session.TTL)
	}
	n.t.require(held, why, "%q is gone %v after the last renewal was sent, of a TTL of %v", r.Name, time.Since(n.opened), n.session.TTL)
	n.t.sameRecord(got, r, why)
}

// sessionKeepsAll renews one session over many TTLs: every record under it
// stays what it was.
func sessionKeepsAll(t *storeT, n, other *node) {
	names := n.many(50)
	was := other.get(names...)
	ttls := 3
	if t.opts.fake {
		ttls = 30
	}
	for end := time.Now().Add(time.Duration(ttls) * n.session.TTL); time.Now().Before(end); {
		n.pass(0.3)
		n.renewed()
	}
	left := other.get(names...)
	if len(left) < len(names) && n.overdue() {
		t.noVerdict("the machine was too slow to look at records within their TTL of %v", n.session.TTL)
	}
	for name, r := range was {
		t.sameRecord(left[name], r, ruleRenew)
	}
	n.letExpire(other, names[0])
}

// passage is a way in which a name may change hands.
type passage struct {
	name  string
	needs needs
	waits bool
	brief bool // a's session is to end by itself
	over  bool // a's session is over then
	// frees does it, if the name is free then; take does the others, and returns the next holder and
	// its record.
	frees func(h hand)
	take  func(h hand) (*node, store.Record)
}

// hand is a name in a's hand, as r. A claim or move that takes it bears the nonce.
type hand struct {
	a, b  *node
	r     store.Record
	nonce uint64
}

var passages = []passage{
	{name: "nothing", take: func(h hand) (*node, store.Record) { return h.a, h.r }},
	{name: "release", frees: func(h hand) { h.a.freed(h.r) }},
	{name: "revoke", frees: func(h hand) { h.b.freed(h.r) }},
	{name: "close", over: true, frees: func(h hand) { h.a.close() }},
	{name: "close-by-another", over: true, frees: func(h hand) { h.b.closes(h.a) }},
	{name: "expiry", waits: true, brief: true, over: true,
		frees: func(h hand) { h.a.letExpire(h.b, h.r.Name) }},
	{name: "supersede",
		take: func(h hand) (*node, store.Record) { return h.a, h.a.supersedes(h.r, h.nonce) }},
	{name: "supersede-elsewhere", take: func(h hand) (*node, store.Record) {
		sibling := h.a.t.open(h.a.t.client(), h.a.session.Owner, h.a.session.TTL)
		return sibling, sibling.supersedes(h.r, h.nonce)
	}},
	{name: "transfer", needs: needTransfer,
		take: func(h hand) (*node, store.Record) { return h.b, h.a.moves(h.r, h.b, h.nonce) }},
	{name: "transfer-by-another", needs: needTransfer,
		take: func(h hand) (*node, store.Record) { return h.b, h.b.moves(h.r, h.b, h.nonce) }},
	{name: "transfer-and-back", needs: needTransfer, take: func(h hand) (*node, store.Record) {
		return h.a, h.b.moves(h.a.give(h.r, h.b), h.a, h.nonce)
	}},
}

// supersedes replaces r by a record of this nonce. It is fatal.
func (n *node) supersedes(r store.Record, nonce uint64) store.Record {
	return n.winClaim(store.Claim{Name: r.Name, Nonce: nonce, Supersedes: r.Token}, ruleSupersede)
}

// moves gives r to another node under this nonce. It is fatal.
func (n *node) moves(r store.Record, to *node, nonce uint64) store.Record {
	m := to.taking(r.Held())
	m.To.Nonce = nonce
	return n.given(m, to)
}

// handsCases are one case for each way, and one that waits.
var handsCases = func() (all []testCase) {
	for _, p := range passages {
		all = append(all, testCase{name: "hands/" + p.name, needs: p.needs, waits: p.waits, run: p.run})
	}
	return append(all, testCase{
		name: "hands/renewal-of-another's", waits: true, run: two(renewalOfAnothers)})
}()

// run takes a name from a in this way, and then tries what a may still believe, and what differs
// in one field from the record that stands.
func (p passage) run(t *storeT) {
	for _, same := range []bool{false, true} { // the nonce: then only the token tells the two apart
		a, b := t.node(), t.node()
		if p.brief {
			a = t.brief()
		}
		name, beside := "hands/"+p.name, b.win("beside/"+p.name)
		old, again := a.win(name), nonce()
		if same {
			again = old.Nonce
		}
		h := hand{a, b, old, again}
		holder, now := b, old
		if p.take != nil {
			holder, now = p.take(h)
		} else {
			p.frees(h)
			why := ruleRelease
			if p.over {
				t.sessionGone(a)
				why = ruleClose
			}
			b.free(name, why)
			t.mistaken(a, b, old, store.Record{Name: name}, beside)
			now = b.winClaim(store.Claim{Name: name, Nonce: again}, ruleFree)
		}
		t.mistaken(a, b, old, now, beside)
		if t.can(needWhile) {
			b.freed(b.winClaim(t.under("under/"+p.name, now), ruleWhile))
		}
		restarted := t.owner()
		restarted.ID, restarted.Address = now.Owner.ID, now.Owner.Address
		claimants := []*node{b, t.open(b.store, restarted, b.session.TTL), t.open(b.store, now.Owner, b.session.TTL)}
		if !p.over {
			claimants = append(claimants, a)
			t.check(a.renew().Err == nil, ruleRenew, "after %s a live session is not renewed", p.name)
		}
		t.refusedAll(claimants, old, now)
		if holder != a {
			a.close() // perhaps again
			b.stands(now, ruleCloseOnly)
		}
		b.freed(beside)
		if same {
			holder.freed(now)
		} else {
			holder.close()
			t.node().free(name, ruleClose)
		}
	}
}

// refusedAll claims a held name with every token and nonce that does not suffice.
func (t *storeT) refusedAll(claimants []*node, old, now store.Record) {
	t.Helper()
	for _, n := range claimants {
		own := n.session.Owner.Incarnation == now.Owner.Incarnation
		for _, over := range []store.Token{0, old.Token, now.Token, now.Token - 1, now.Token + 1, 1 << 40} {
			why := ruleSupersedeBy
			switch {
			case over == 0:
				why = ruleHeld
			case own && over == now.Token:
				continue
			case !own:
				why = ruleSupersedeOf
			}
			for _, nonce := range []uint64{nonce(), now.Nonce} {
				n.refused(store.Claim{Name: now.Name, Nonce: nonce, Supersedes: over}, now, why)
			}
		}
	}
}

// mistaken releases, moves and claims under the old ownership, and what differs in one field from
// now. Nothing may be applied.
func (t *storeT) mistaken(a, b *node, old, now, beside store.Record) {
	t.Helper()
	free, around := now.Token == 0, now
	if free {
		around = old
	}
	unchanged := func(why rule) {
		t.Helper()
		if free {
			b.free(now.Name, why)
		} else {
			b.stands(now, why)
		}
	}
	var tried []store.Held
	for _, h := range []store.Held{
		old.Held(),
		{Name: around.Name, Token: around.Token, Nonce: old.Nonce},
		{Name: around.Name, Token: old.Token, Nonce: around.Nonce},
		{Name: around.Name, Token: around.Token - 1, Nonce: around.Nonce},
		{Name: around.Name, Token: around.Token + 1, Nonce: around.Nonce},
		{Name: around.Name, Token: 0, Nonce: around.Nonce},
		{Name: around.Name, Token: around.Token, Nonce: around.Nonce - 1},
		{Name: around.Name, Token: around.Token, Nonce: around.Nonce + 1},
		{Name: around.Name, Token: around.Token, Nonce: 0},
		{Name: beside.Name, Token: around.Token, Nonce: around.Nonce},
		{Name: "hands/never", Token: old.Token, Nonce: old.Nonce},
	} {
		if !free && h == now.Held() || slices.Contains(tried, h) {
			continue
		}
		tried = append(tried, h)
		why := mistake(h, now)
		out := a.release(h)[0]
		t.require(!out.OK, why, "by %+v something was released; what stood: %+v", h, now.Held())
		unchanged(why)
		if t.can(needTransfer) {
			m := b.taking(h)
			m.Metadata = map[string]string{"x": "y"}
			out = b.transfer(m)[0]
			t.require(!out.OK, ruleTransferRefused, "by %+v something was moved; what stood: %+v", h, now.Held())
			if out.Err == nil && !free && h.Name == now.Name {
				t.sameRecord(out.Record, now, ruleHolder)
			}
			unchanged(ruleTransferRefused)
		}
		if t.can(needWhile) {
			b.orphans(h, "hands/never", beside.Name)
		}
	}
	b.stands(beside, ruleReleaseOnly)
	b.free("hands/never", ruleTransferRefused)
}

// orphans claims names while h stands, which does not.
func (n *node) orphans(h store.Held, names ...string) {
	n.t.Helper()
	var claims []store.Claim
	for _, name := range names[:n.t.batch(n.store, len(names))] {
		c := n.t.claim(name)
		if c.While = h; n.store.Limits().ValidateClaim(c) == nil {
			claims = append(claims, c)
		}
	}
	outs, err := n.acquires(claims...)
	n.t.must(err, "Acquire of %v while %+v", names, h)
	for _, out := range outs {
		n.t.require(!out.OK && errors.Is(out.Err, store.ErrParentLost), ruleWhile, "while %+v, which does not stand: %+v", h, out)
	}
}

// mistake is the rule that a release by h breaks.
func mistake(h store.Held, now store.Record) rule {
	switch {
	case h.Name != now.Name:
		return ruleReleaseOnly
	case now.Token == 0:
		return ruleReleaseOnce
	case h.Token != now.Token:
		return ruleReleaseToken
	}
	return ruleReleaseNonce
}

// sessionGone makes every call under a session that is gone, alone and among live ones.
func (t *storeT) sessionGone(gone *node) {
	t.Helper()
	other, live := t.node(), t.nodeOn(gone.store)
	t.require(errors.Is(gone.renew().Err, store.ErrSessionGone), ruleGoneRenew, "the renewal was granted")
	t.goneAmongLive(live, gone)
	names := []string{"gone/a", "gone/b"}[:t.batch(gone.store, 2)]
	var claims []store.Claim
	for _, name := range names {
		claims = append(claims, t.claim(name))
	}
	outs, err := gone.acquires(claims...)
	t.require(errors.Is(err, store.ErrSessionGone), ruleGoneAcquire, "outcomes %+v, error %v", outs, err)
	for _, name := range names {
		other.free(name, ruleGoneAcquire)
	}
	t.check(errors.Is(gone.renew().Err, store.ErrSessionGone), ruleGoneRenew, "a second renewal was granted")
	gone.close() // no error
	if t.can(needTransfer) {
		r := live.win("gone/given")
		live.deniedMove(gone.taking(r.Held()), ruleTransferGone, store.ErrSessionGone)
		live.freed(r) // it is the mover's as before
	}
	if t.can(needSessionList) {
		gone.listsGone(gone)
		other.listsGone(gone)
	}
}

// goneAmongLive renews a gone session in one call with a live one.
func (t *storeT) goneAmongLive(live, gone *node) {
	t.Helper()
	r := live.win("live")
	grants := t.renewAll(live, gone, live)
	for i, wantGone := range []bool{false, true, false} {
		t.check(errors.Is(grants[i].Err, store.ErrSessionGone) == wantGone && (wantGone || grants[i].Err == nil),
			ruleGoneRenew, "grant %d is %+v; the session is gone: %v", i, grants[i], wantGone)
	}
	live.stands(r, ruleRenew)
	live.freed(r)
}

// renewalOfAnothers: a renews its session, b does not, and b holds names that a once held. They
// expire with b's session.
func renewalOfAnothers(t *storeT, a, observer *node) {
	names := []string{"released", "revoked"}
	a.freed(a.win("released"))
	observer.freed(a.win("revoked"))
	b := t.brief()
	b.winAll(names, ruleFree)
	for latest := b.acked.Add(b.session.TTL + t.slack); ; time.Sleep(t.tick()) {
		asked := time.Now()
		g := a.renew()
		t.require(g.Err == nil, ruleRenew, "a live session is not renewed: %v", g.Err)
		left := observer.get(names[:t.batch(a.store, 2)]...)
		if len(left) == 0 {
			return
		}
		t.inTime(!asked.After(latest), ruleRenewOnly, "%d of %d records stand %v after their session began, of a TTL of %v",
			len(left), len(names), asked.Sub(b.opened), b.session.TTL)
	}
}
