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
	{name: "session/renew-together", run: one(func(t *storeT, a *node) {
		b, c := t.nodeOn(a.store), t.nodeOn(a.store)
		for i, g := range t.renewAll(a, b, c) {
			t.check(g.Err == nil, ruleRenew, "renewal %d of live sessions: %+v", i, g)
		}
		b.close()
		t.goneAmongLive(a, b)
	})},
	{name: "session/close-against-acquire", run: one(sessionCloseRace)},
	{name: "session/reopen", run: held(func(t *storeT, n, _ *node) {
		n.reopen()
		n.renew()
		n.stands(n.own, ruleReopen)
		n.freed(n.own)
	})},

	{name: "session/expires", waits: true, run: brief(func(t *storeT, n, other *node) {
		n.letExpire(other, "a")
	})},
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
	{name: "session/renewal-extends", waits: true, run: brief(func(t *storeT, n, other *node) {
		for range 3 {
			n.pass(0.6)
			n.renewed()
			n.lives(other, n.own, ruleRenew)
		}
		n.letExpire(other, "a")
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
}
