package leasetest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/lease"
)

var sessionCases = []testCase{
	{name: "session/close-removes-its-records", run: func(t *T) {
		n, other := t.node(), t.node()
		names := n.many(20)
		n.close()
		t.check(len(other.get(names...)) == 0, ruleClose, "%d of %d records stand after the session was closed", len(other.get(names...)), len(names))
		for _, name := range names {
			other.win(name)
		}
	}},
	{name: "session/close-removes-no-others", run: func(t *T) {
		n, other := t.node(), t.node()
		sibling := n.again() // of the same owner
		n.win("a")
		b, c := sibling.win("b"), other.win("c")
		n.close()
		other.stands(b, ruleCloseOnly)
		other.stands(c, ruleCloseOnly)
		other.free("a", ruleClose)
	}},
	{name: "session/close-spares-what-came-after", run: func(t *T) {
		n, other := t.node(), t.node()
		n.freed(n.win("a"))
		r := other.win("a") // was once n's
		n.close()
		other.stands(r, ruleCloseOnly)
	}},
	{name: "session/close-twice", run: func(t *T) {
		n, other := t.node(), t.node()
		n.win("a")
		n.close()
		r := other.win("a")
		for range 2 {
			ctx, cancel := t.context()
			err := n.store.CloseSession(ctx, n.session)
			cancel()
			t.check(err == nil, ruleCloseTwice, "%v", err)
		}
		other.stands(r, ruleCloseOnly)
	}},
	{name: "session/close-through-another-client", run: func(t *T) {
		n, other := t.node(), t.node()
		n.win("a")
		ctx, cancel := t.context()
		defer cancel()
		if err := other.store.CloseSession(ctx, n.session); err != nil {
			t.Fatalf("CloseSession through another client: %v", err)
		}
		other.free("a", ruleClose)
		sessionGone(t, n)
	}},
	{name: "session/closed-is-gone", run: func(t *T) {
		n := t.node()
		n.win("a")
		n.close()
		sessionGone(t, n)
		goneAmongLive(t, t.nodeOn(n.store), n)
	}},
	{name: "session/renew-together", run: func(t *T) {
		a := t.node()
		b, c := t.nodeOn(a.store), t.nodeOn(a.store)
		for i, g := range t.renewAll(a, b, c) {
			t.check(g.Err == nil, ruleRenew, "renewal %d of live sessions: %+v", i, g)
		}
		b.close()
		goneAmongLive(t, a, b)
	}},
	{name: "session/open-again", run: func(t *T) {
		n := t.node()
		r := n.win("a")
		n.reopen()
		n.stands(r, ruleReopen)
		n.freed(r)
		n.win("a")
	}},
	{name: "session/close-against-acquire", run: sessionCloseRace},
}

// many wins some names in one batch, as many as the store takes.
func (n *node) many(want int) []string {
	n.t.Helper()
	names := make([]string, n.t.batch(n.store, want))
	claims := make([]lease.Claim, len(names))
	for i := range names {
		names[i] = fmt.Sprintf("many/%d", i)
		claims[i] = n.t.claim(names[i])
	}
	for i, out := range n.acquire(claims...) {
		n.t.require(out.OK, ruleFree, "%q: %+v", names[i], out)
	}
	return names
}

// sessionGone checks that nothing can be done under a session that is gone:
// neither renewing nor acquiring.
func sessionGone(t *T, n *node) {
	t.Helper()
	observer := t.node()
	t.require(errors.Is(n.renew().Err, lease.ErrSessionGone), ruleGoneRenew, "the renewal was granted")
	names := []string{"gone/a", "gone/b"}[:t.batch(n.store, 2)]
	claims := make([]lease.Claim, len(names))
	for i, name := range names {
		claims[i] = t.claim(name)
	}
	ctx, cancel := t.context()
	defer cancel()
	outs, err := n.acquireCtx(ctx, claims...)
	t.require(errors.Is(err, lease.ErrSessionGone), ruleGoneAcquire, "outcomes %+v, error %v", outs, err)
	for _, name := range names {
		observer.free(name, ruleGoneAcquire)
	}
	t.check(errors.Is(n.renew().Err, lease.ErrSessionGone), ruleGoneRenew, "a second renewal was granted")
}

// goneAmongLive renews a gone session in one call with a live one.
func goneAmongLive(t *T, live, gone *node) {
	t.Helper()
	r := live.win("live")
	grants := t.renewAll(live, gone, live)
	for i, wantGone := range []bool{false, true, false} {
		t.check(errors.Is(grants[i].Err, lease.ErrSessionGone) == wantGone && (wantGone || grants[i].Err == nil),
			ruleGoneRenew, "grant %d is %+v; the session is gone: %v", i, grants[i], wantGone)
	}
	live.stands(r, ruleRenew)
	live.freed(r)
}

// sessionCloseRace closes a session while claims are made under it: a claim that
// won before leaves nothing, one that came after is told so.
func sessionCloseRace(t *T) {
	observer := t.node()
	for round := range 15 {
		n := t.node()
		var mu sync.Mutex
		var names []string
		t.together(4, func(i int) {
			if i == 0 {
				t.pace()
				ctx, cancel := t.context()
				defer cancel()
				if err := n.store.CloseSession(ctx, n.session); err != nil {
					t.Errorf("CloseSession: %v", err)
				}
				return
			}
			for j := range 20 {
				name := fmt.Sprintf("%d/%d/%d", round, i, j)
				ctx, cancel := t.context()
				_, err := n.acquireCtx(ctx, t.claim(name))
				cancel()
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
				if errors.Is(err, lease.ErrSessionGone) {
					return
				}
				if err != nil {
					t.Errorf("Acquire while the session is closed: %v", err)
					return
				}
				t.pace()
			}
		})
		for start := 0; start < len(names); {
			end := start + t.batch(observer.store, len(names)-start)
			left := observer.get(names[start:end]...)
			t.require(len(left) == 0, ruleClose, "records of a closed session stand: %+v", left)
			start = end
		}
	}
}
