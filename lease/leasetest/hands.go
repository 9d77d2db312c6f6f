package leasetest

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// passage is a way in which a name changes hands.
type passage struct {
	name  string
	needs needs
	waits bool
	brief bool // a's session is to end by itself
	over  bool // a's session is over then
	// take ends r, which is a's, and returns what stands then. b, on a client of its
	// own, claims with nonce if the name is free.
	take func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record
}

var passages = []passage{
	{name: "release", take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		a.freed(r)
		return b.winNonce(r.Name, nonce)
	}},
	{name: "revoke", take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		b.freed(r)
		return b.winNonce(r.Name, nonce)
	}},
	{name: "close", over: true, take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		a.close()
		return b.winNonce(r.Name, nonce)
	}},
	{name: "close-by-another", over: true, take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		ctx, cancel := t.context()
		defer cancel()
		if err := b.store.CloseSession(ctx, a.session); err != nil {
			t.Fatalf("CloseSession through another client: %v", err)
		}
		return b.winNonce(r.Name, nonce)
	}},
	{name: "expiry", waits: true, brief: true, over: true, take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		a.letExpire(b, r.Name)
		return b.winNonce(r.Name, nonce)
	}},
	{name: "supersede", take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		c := t.supersede(r)
		c.Nonce = nonce
		return a.winClaim(c, ruleSupersede)
	}},
	{name: "supersede-elsewhere", take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		sibling := t.open(t.client(), a.session.Owner, a.session.TTL)
		c := t.supersede(r)
		c.Nonce = nonce
		return sibling.winClaim(c, ruleSupersede)
	}},
	{name: "transfer", needs: needTransfer, take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		return a.giveNonce(r, b, nonce)
	}},
	{name: "transfer-by-another", needs: needTransfer, take: func(t *T, a, b *node, r lease.Record, nonce uint64) lease.Record {
		return b.giveNonce(r, b, nonce)
	}},
}

// handsCases are one case for each way, and one that waits.
var handsCases = func() (all []testCase) {
	for _, p := range passages {
		all = append(all, testCase{name: "hands/" + p.name, needs: p.needs, waits: p.waits, run: p.run})
	}
	return append(all, testCase{name: "hands/renewal-of-another's", waits: true, run: renewalOfAnothers})
}()

// winNonce wins a free name with a nonce that is given. It is fatal.
func (n *node) winNonce(name string, nonce uint64) lease.Record {
	n.t.Helper()
	return n.winClaim(lease.Claim{Name: name, Nonce: nonce}, ruleFree)
}

// giveNonce moves r to another node's offer with that nonce. It is fatal.
func (n *node) giveNonce(r lease.Record, to *node, nonce uint64) lease.Record {
	n.t.Helper()
	o := to.offer(r.Name)
	o.Nonce = nonce
	out := n.transfer(lease.Transfer{Held: r.Held(), To: o})[0]
	n.t.require(out.OK && out.Err == nil, ruleTransfer, "%q token %d was refused: %+v", r.Name, r.Token, out)
	return out.Record
}

// run takes a name from a in the one way, and then tries all that a may still
// believe, and all that differs in one field from what stands.
func (p passage) run(t *T) {
	for _, same := range []bool{false, true} { // the nonce: then only the token tells the two apart
		a, b := t.node(), t.node()
		transfers := b.transfers()
		if p.brief {
			a = t.brief()
		}
		name, beside := "hands/"+p.name, b.win("beside/"+p.name)
		old, again := a.win(name), nonce()
		if same {
			again = old.Nonce
		}
		now := p.take(t, a, b, old, again)
		if !p.over {
			p.after(t, a, old, now)
			b.stands(now, ruleHands)
		}
		for _, h := range mistaken(old, now, beside.Name) {
			out := a.release(h)[0]
			t.require(!out.OK, ruleHands, "%+v released, after %s, what stood as %+v", h, p.name, now.Held())
			if transfers {
				out = b.transfer(lease.Transfer{Held: h, To: b.offer(h.Name), Metadata: map[string]string{"x": "y"}})[0]
				t.require(!out.OK, ruleHands, "%+v moved, after %s, what stood as %+v", h, p.name, now.Held())
			}
			b.stands(now, ruleHands)
		}
		b.stands(beside, ruleHands)
		b.freed(now)
		b.freed(beside)
	}
}

// after is what a, whose session lives, still tries: to renew, and to go on as if
// nothing had been.
func (p passage) after(t *T, a *node, old, now lease.Record) {
	t.Helper()
	for _, over := range []lease.Token{old.Token, now.Token} {
		if own := now.Owner == a.session.Owner; own && over == now.Token {
			continue // which it may
		}
		c := t.claim(old.Name)
		c.Supersedes, c.Nonce = over, old.Nonce
		a.refused(c, now, ruleHands)
	}
	g := a.renew()
	t.check(g.Err == nil, ruleRenew, "after %s a live session is not renewed: %v", p.name, g.Err)
}

// mistaken are what was known of old, and what differs in one field from now.
func mistaken(old, now lease.Record, beside string) (all []lease.Held) {
	for _, h := range []lease.Held{
		old.Held(),
		{Name: now.Name, Token: now.Token, Nonce: old.Nonce},
		{Name: now.Name, Token: old.Token, Nonce: now.Nonce},
		{Name: now.Name, Token: now.Token - 1, Nonce: now.Nonce},
		{Name: now.Name, Token: now.Token + 1, Nonce: now.Nonce},
		{Name: now.Name, Token: 0, Nonce: now.Nonce},
		{Name: now.Name, Token: now.Token, Nonce: now.Nonce - 1},
		{Name: now.Name, Token: now.Token, Nonce: now.Nonce + 1},
		{Name: now.Name, Token: now.Token, Nonce: 0},
		{Name: beside, Token: now.Token, Nonce: now.Nonce},
	} {
		if h != now.Held() && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}

// renewalOfAnothers: a goes on renewing its session while what once was its own is
// b's, who does not. However it came to b, it ends with b's session.
func renewalOfAnothers(t *T) {
	a, observer := t.node(), t.node()
	released, revoked := a.win("released"), a.win("revoked")
	a.freed(released)
	observer.freed(revoked)
	b := t.brief()
	names := []string{"released", "revoked"}[:t.batch(a.store, 2)]
	for _, name := range names {
		b.win(name)
	}
	for latest := b.acked.Add(b.session.TTL + t.slack); ; time.Sleep(t.tick()) {
		asked := time.Now()
		g := a.renew()
		t.require(g.Err == nil, ruleRenew, "a live session is not renewed: %v", g.Err)
		left := observer.get(names...)
		if len(left) == 0 {
			return
		}
		t.inTime(!asked.After(latest), ruleRenewOnly, "%d of %d records stand %v after their session began, of a TTL of %v",
			len(left), len(names), asked.Sub(b.opened), b.session.TTL)
	}
}
