package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// passage is a way in which a name may change hands.
type passage struct {
	name  string
	needs needs
	waits bool
	brief bool // a's session is to end by itself
	over  bool // a's session is over then
	// take does it to r, which is a's, and returns its holder and the record: no holder if the
	// name is free. A claim or move of take bears the nonce.
	take func(t *storeT, a, b *node, r store.Record, nonce uint64) (*node, store.Record)
}

var passages = []passage{
	{name: "nothing", take: func(_ *storeT, a, _ *node, r store.Record, _ uint64) (*node, store.Record) { return a, r }},
	{name: "release", take: func(_ *storeT, a, _ *node, r store.Record, _ uint64) (*node, store.Record) {
		a.freed(r)
		return nil, r
	}},
	{name: "revoke", take: func(_ *storeT, _, b *node, r store.Record, _ uint64) (*node, store.Record) {
		b.freed(r)
		return nil, r
	}},
	{name: "close", over: true, take: func(_ *storeT, a, _ *node, r store.Record, _ uint64) (*node, store.Record) {
		a.close()
		return nil, r
	}},
	{name: "close-by-another", over: true, take: func(_ *storeT, a, b *node, r store.Record, _ uint64) (*node, store.Record) {
		b.closes(a)
		return nil, r
	}},
	{name: "expiry", waits: true, brief: true, over: true, take: func(_ *storeT, a, b *node, r store.Record, _ uint64) (*node, store.Record) {
		a.letExpire(b, r.Name)
		return nil, r
	}},
	{name: "supersede", take: func(t *storeT, a, _ *node, r store.Record, nonce uint64) (*node, store.Record) {
		c := t.supersede(r)
		c.Nonce = nonce
		return a, a.winClaim(c, ruleSupersede)
	}},
	{name: "supersede-elsewhere", take: func(t *storeT, a, _ *node, r store.Record, nonce uint64) (*node, store.Record) {
		c := t.supersede(r)
		c.Nonce = nonce
		sibling := t.open(t.client(), a.session.Owner, a.session.TTL)
		return sibling, sibling.winClaim(c, ruleSupersede)
	}},
	{name: "transfer", needs: needTransfer, take: func(_ *storeT, a, b *node, r store.Record, nonce uint64) (*node, store.Record) {
		m := b.taking(r.Held())
		m.To.Nonce = nonce
		return b, a.given(m, b)
	}},
	{name: "transfer-by-another", needs: needTransfer, take: func(_ *storeT, _, b *node, r store.Record, nonce uint64) (*node, store.Record) {
		m := b.taking(r.Held())
		m.To.Nonce = nonce
		return b, b.given(m, b)
	}},
	{name: "transfer-and-back", needs: needTransfer, take: func(_ *storeT, a, b *node, r store.Record, nonce uint64) (*node, store.Record) {
		m := a.taking(a.give(r, b).Held())
		m.To.Nonce = nonce
		return a, b.given(m, a)
	}},
}

// handsCases are one case for each way, and one that waits.
var handsCases = func() (all []testCase) {
	for _, p := range passages {
		all = append(all, testCase{name: "hands/" + p.name, needs: p.needs, waits: p.waits, run: p.run})
	}
	return append(all, testCase{name: "hands/renewal-of-another's", waits: true, run: renewalOfAnothers})
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
		holder, now := p.take(t, a, b, old, again)
		if p.over {
			t.sessionGone(a)
		}
		if holder == nil {
			if p.over {
				b.free(name, ruleClose)
			}
			b.free(name, ruleRelease)
			t.mistaken(a, b, old, store.Record{Name: name}, beside)
			holder, now = b, b.winClaim(store.Claim{Name: name, Nonce: again}, ruleFree)
		}
		t.mistaken(a, b, old, now, beside)
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

// mistaken releases and moves by the old ownership, and by what differs in one field from now.
// Nothing may be applied.
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
	}
	b.stands(beside, ruleReleaseOnly)
	b.free("hands/never", ruleTransferRefused)
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
func renewalOfAnothers(t *storeT) {
	a, observer := t.node(), t.node()
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
