package leasetest

import (
	"sync/atomic"

	"github.com/holdfast-go/holdfast/lease"
)

var releaseCases = []testCase{
	{name: "release/removes", run: func(t *T) {
		n, other := t.node(), t.node()
		kept := n.win("b")
		r := n.win("a")
		n.freed(r)
		n.free("a", ruleRelease)
		other.free("a", ruleRelease)
		other.stands(kept, ruleReleaseOnly)
		other.win("a")
	}},
	{name: "release/wrong-token", run: func(t *T) {
		n := t.node()
		r := n.win("a")
		for _, token := range []lease.Token{0, r.Token - 1, r.Token + 1} {
			held := r.Held()
			held.Token = token
			out := n.release(held)[0]
			t.check(!out.OK, ruleReleaseToken, "token %d was released by %d", r.Token, token)
			n.stands(r, ruleReleaseToken)
		}
	}},
	{name: "release/wrong-nonce", run: func(t *T) {
		n := t.node()
		r := n.win("a")
		for _, nonce := range []uint64{0, r.Nonce - 1, r.Nonce + 1} {
			held := r.Held()
			held.Nonce = nonce
			out := n.release(held)[0]
			t.check(!out.OK, ruleReleaseNonce, "nonce %d was released by %d", r.Nonce, nonce)
			n.stands(r, ruleReleaseNonce)
		}
	}},
	{name: "release/wrong-name", run: func(t *T) {
		n := t.node()
		a, b := n.win("a"), n.win("b")
		out := n.release(lease.Held{Name: "b", Token: a.Token, Nonce: a.Nonce})[0]
		t.check(!out.OK, ruleReleaseOnly, "b was released by the token and nonce of a")
		n.stands(a, ruleReleaseOnly)
		n.stands(b, ruleReleaseOnly)
	}},
	{name: "release/stale-after-takeover", run: func(t *T) {
		n, other := t.node(), t.node()
		old := n.win("a")
		n.freed(old)
		r := other.win("a")
		out := n.release(old.Held())[0]
		t.check(!out.OK, ruleReleaseToken, "token %d was released by %d", r.Token, old.Token)
		other.stands(r, ruleReleaseToken)
	}},
	{name: "release/stale-after-own-return", run: func(t *T) {
		n := t.node()
		old := n.win("a")
		n.freed(old)
		c := t.claim("a")
		c.Nonce = old.Nonce // only the token tells the two apart
		r := n.winClaim(c, ruleFree)
		out := n.release(old.Held())[0]
		t.check(!out.OK, ruleReleaseToken, "token %d was released by %d", r.Token, old.Token)
		n.stands(r, ruleReleaseToken)
	}},
	{name: "release/unheld", run: func(t *T) {
		n := t.node()
		out := n.release(lease.Held{Name: "a", Token: 1, Nonce: 1})[0]
		t.check(!out.OK, ruleReleaseOnce, "a name that was never held was released")
		r := n.win("a")
		n.freed(r)
		out = n.release(r.Held())[0]
		t.check(!out.OK, ruleReleaseOnce, "token %d was released twice", r.Token)
		n.free("a", ruleRelease)
	}},
	{name: "release/mixed", run: releaseMixed},
	{name: "release/at-once", run: func(t *T) {
		n := t.node()
		for range 20 {
			r := n.win("a")
			var removed atomic.Int32
			t.together(4, func(int) {
				ctx, cancel := t.context()
				defer cancel()
				outs, err := t.releaseCtx(ctx, n.store, r.Held())
				if err != nil {
					t.Errorf("Release: %v", err)
				} else if outs[0].OK {
					removed.Add(1)
				}
			})
			t.require(removed.Load() == 1, ruleReleaseOnce, "token %d was released %d times", r.Token, removed.Load())
		}
	}},
}

// releaseMixed: one call about names that are ours, another's, free and stale
// answers each for itself.
func releaseMixed(t *T) {
	n, other := t.node(), t.node()
	a, c, e := n.win("a"), n.win("c"), n.win("e")
	b := other.win("b")
	held := []lease.Held{
		a.Held(),
		{Name: "b", Token: b.Token, Nonce: a.Nonce},
		{Name: "free", Token: 3, Nonce: 3},
		c.Held(),
		{Name: "e", Token: e.Token + 1, Nonce: e.Nonce},
	}
	if t.batch(n.store, len(held)) < len(held) {
		held = held[:t.batch(n.store, len(held))]
	}
	want := []bool{true, false, false, true, false}
	for i, out := range n.release(held...) {
		t.check(out.OK == want[i], ruleOrder, "release %d, of %q: OK %v, want %v", i, held[i].Name, out.OK, want[i])
		if want[i] {
			n.free(held[i].Name, ruleRelease)
		}
	}
	n.stands(b, ruleReleaseNonce)
	n.stands(e, ruleReleaseToken)
}
