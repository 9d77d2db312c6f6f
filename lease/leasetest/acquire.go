package leasetest

import (
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/lease"
)

var acquireCases = []testCase{
	{name: "acquire/free", run: func(t *T) {
		n := t.node()
		r := n.win("a")
		n.stands(r, ruleSeenByAll)
		t.node().stands(r, ruleSeenByAll)
	}},
	{name: "acquire/held", run: func(t *T) {
		holder, other := t.node(), t.node()
		r := holder.win("a")
		for range 3 {
			other.refused(t.claim("a"), r, ruleHeld)
		}
		other.stands(r, ruleHeld)
	}},
	{name: "acquire/other-names-stay-free", run: func(t *T) {
		holder, other := t.node(), t.node()
		r := holder.win("a/b")
		for _, name := range []string{"a", "a/bb", "a/b/c", "A/b", "b"} {
			other.win(name)
		}
		holder.stands(r, ruleHeld)
	}},
	{name: "acquire/after-release", run: func(t *T) {
		a, b := t.node(), t.node()
		for range 3 {
			a.freed(a.win("a"))
			b.freed(b.win("a"))
		}
	}},
	{name: "acquire/same-id-new-incarnation", run: acquireSameID},
	{name: "acquire/two-at-once", run: func(t *T) { acquireAtOnce(t, 2, 40) }},
	{name: "acquire/sixty-four-at-once", run: func(t *T) { acquireAtOnce(t, 64, 5) }},
	{name: "acquire/one-owner-at-once", run: acquireOneOwner},
}

// acquireSameID: a restarted process bears the name of the old one and is not it.
func acquireSameID(t *T) {
	old := t.node()
	r := old.win("a")
	reborn := t.owner()
	reborn.ID, reborn.Address = old.session.Owner.ID, old.session.Owner.Address
	n := t.open(t.client(), reborn, old.session.TTL)
	n.refused(t.claim("a"), r, ruleHeld)
	n.refused(t.supersede(r), r, ruleSupersedeOf)
	n.stands(r, ruleHeld)
}

// acquireAtOnce lets nodes claim one name at one moment, again and again.
func acquireAtOnce(t *T, nodes, rounds int) {
	clients := make([]lease.Store, min(nodes, 8))
	for i := range clients {
		clients[i] = t.client()
	}
	ns := make([]*node, nodes)
	for i := range ns {
		ns[i] = t.nodeOn(clients[i%len(clients)])
	}
	for round := range rounds {
		var mu sync.Mutex
		var winners []*node
		var refusals, records []lease.Record
		t.together(nodes, func(i int) {
			out, err := ns[i].tryCtx("a")
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if out.OK {
				winners, records = append(winners, ns[i]), append(records, out.Record)
			} else {
				refusals = append(refusals, out.Record)
			}
		})
		if t.Failed() {
			return
		}
		t.require(len(winners) == 1, ruleOneWinner, "round %d: %d of %d won: %+v", round, len(winners), nodes, records)
		for _, r := range refusals {
			t.sameRecord(r, records[0], ruleHolder)
		}
		winners[0].freed(records[0])
	}
}

// acquireOneOwner: several claims of one session at one moment are as exclusive
// as those of strangers: the nonce is what tells them apart.
func acquireOneOwner(t *T) {
	n := t.node()
	for round := range 10 {
		name := fmt.Sprintf("a/%d", round)
		var mu sync.Mutex
		var won []lease.Record
		t.together(8, func(int) {
			if out, err := n.tryCtx(name); err == nil && out.OK {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, out.Record)
			}
		})
		t.require(len(won) == 1, ruleOneWinner, "%d of 8 claims of one session won: %+v", len(won), won)
		n.stands(won[0], ruleSeenByAll)
	}
}

var claimCases = []testCase{
	{name: "acquire/own-without-supersedes", run: func(t *T) {
		n := t.node()
		r := n.win("a")
		n.refused(t.claim("a"), r, ruleHeld)
		n.again().refused(t.claim("a"), r, ruleHeld)
		same := t.claim("a")
		same.Nonce = r.Nonce
		n.refused(same, r, ruleHeld)
	}},
	{name: "acquire/supersedes-own", run: acquireSupersedes},
	{name: "acquire/supersedes-under-other-session", run: acquireSupersedesSession},
	{name: "acquire/supersedes-wrong-token", run: func(t *T) {
		n := t.node()
		first := n.win("a")
		r := n.winClaim(t.supersede(first), ruleSupersede)
		for _, token := range []lease.Token{first.Token, r.Token - 1, r.Token + 1, 1 << 40} {
			if token == 0 || token == r.Token {
				continue
			}
			c := t.claim("a")
			c.Supersedes = token
			n.refused(c, r, ruleSupersedeBy)
		}
		n.stands(r, ruleSupersedeBy)
	}},
	{name: "acquire/supersedes-another's", run: func(t *T) {
		holder, other := t.node(), t.node()
		r := holder.win("a")
		other.refused(t.supersede(r), r, ruleSupersedeOf)
		copied := t.supersede(r)
		copied.Nonce = r.Nonce
		other.refused(copied, r, ruleSupersedeOf)
		other.stands(r, ruleSupersedeOf)
	}},
	{name: "acquire/supersedes-free", run: func(t *T) {
		n := t.node()
		c := t.claim("a")
		c.Supersedes = 7
		r := n.winClaim(c, ruleFree)
		n.freed(r)
		n.winClaim(t.supersede(r), ruleFree)
	}},
	{name: "acquire/supersedes-at-once", run: func(t *T) {
		n := t.node()
		r := n.win("a")
		for range 10 {
			var mu sync.Mutex
			var won []lease.Record
			t.together(8, func(int) {
				ctx, cancel := t.context()
				defer cancel()
				outs, err := n.acquireCtx(ctx, t.supersede(r))
				if err != nil {
					t.Errorf("Acquire: %v", err)
				} else if outs[0].OK {
					mu.Lock()
					defer mu.Unlock()
					won = append(won, outs[0].Record)
				}
			})
			t.require(len(won) == 1, ruleSupersedeBy, "%d of 8 claims superseded token %d: %+v", len(won), r.Token, won)
			r = won[0]
		}
	}},
}

// acquireSupersedes: superseding is a new ownership. The old one is over.
func acquireSupersedes(t *T) {
	n, other := t.node(), t.node()
	c := t.claim("a")
	c.Metadata = map[string]string{"kept": "no"}
	old := n.winClaim(c, ruleFree)
	c = t.supersede(old)
	c.Metadata = map[string]string{"new": "yes"}
	r := n.winClaim(c, ruleSupersede)
	n.stands(r, ruleSupersede)
	other.refused(t.claim("a"), r, ruleHeld)
	out := n.release(old.Held())[0]
	t.check(!out.OK, ruleReleaseToken, "token %d, superseded by %d, was released", old.Token, r.Token)
	n.stands(r, ruleReleaseToken)
	n.freed(r)
	other.win("a")
}

// acquireSupersedesSession: a record superseded under another session of the
// incarnation belongs to that session from then on.
func acquireSupersedesSession(t *T) {
	first := t.node()
	second := first.again()
	old := first.win("a")
	r := second.winClaim(t.supersede(old), ruleSupersede)
	first.close()
	second.stands(r, ruleCloseOnly)
	second.close()
	t.node().free("a", ruleClose)
}
