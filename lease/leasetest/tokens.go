package leasetest

import (
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/lease"
)

// Every success that a case sees is compared with all earlier ones of its name
// (T.won); these cases make sure that each way of changing hands was taken.
var tokenCases = []testCase{
	{name: "token/over-release", run: func(t *T) {
		a, b := t.node(), t.node()
		for range 5 {
			a.freed(a.win("a"))
			b.freed(b.win("a"))
		}
	}},
	{name: "token/over-supersede", run: func(t *T) {
		n := t.node()
		r := n.win("a")
		for range 5 {
			r = n.winClaim(t.supersede(r), ruleSupersede)
		}
		n.freed(r)
		t.node().win("a")
	}},
	{name: "token/over-close", run: func(t *T) {
		for range 4 {
			n := t.node()
			n.win("a")
			n.win("b")
			n.close()
		}
	}},
	{name: "token/over-expiry", waits: true, run: func(t *T) {
		n := t.brief()
		n.win("a")
		other := t.node()
		n.letExpire(other, "a")
		other.win("a")
	}},
	{name: "token/over-transfer", needs: needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		r := a.win("a")
		for range 4 {
			r = b.give(a.give(r, b), a)
		}
		a.freed(r)
		b.win("a")
	}},
	{name: "token/over-many-changes", run: tokenMany},
	{name: "token/never-shared", run: tokenNeverShared},
}

// tokenMany takes one name through every way of changing hands, in drawn order.
func tokenMany(t *T) {
	_, transfers := t.client().(lease.TransferStore)
	transfers = transfers && probe(t)&needTransfer != 0
	n, other := t.node(), t.node()
	r := n.win("a")
	for range 40 {
		switch t.random(4) {
		case 0:
			n.freed(r)
			n, other = other, n
			r = n.win("a")
		case 1:
			r = n.winClaim(t.supersede(r), ruleSupersede)
		case 2:
			n.close()
			n = t.node()
			r = n.win("a")
		case 3:
			if transfers {
				r = n.give(r, other)
				n, other = other, n
			}
		}
		n.stands(r, ruleSeenByAll)
	}
}

// tokenNeverShared: over many clients at once, no token of a name appears twice.
func tokenNeverShared(t *T) {
	const nodes, rounds = 8, 25
	var ns [nodes]*node
	for i := range ns {
		ns[i] = t.node()
	}
	var mu sync.Mutex
	owners := make(map[lease.Token]string)
	t.together(nodes, func(i int) {
		for range rounds {
			out, err := ns[i].tryCtx("a")
			if err != nil {
				return
			}
			if out.OK {
				me := fmt.Sprintf("%s nonce %d", ns[i].session.Owner.ID, out.Record.Nonce)
				mu.Lock()
				was, taken := owners[out.Record.Token]
				owners[out.Record.Token] = me
				mu.Unlock()
				t.check(!taken, ruleToken, "token %d was issued to %s and to %s", out.Record.Token, was, me)
				ctx, cancel := t.context()
				if _, err := t.releaseCtx(ctx, ns[i].store, out.Record.Held()); err != nil {
					t.Errorf("Release: %v", err)
				}
				cancel()
			}
			t.pace()
		}
	})
}
