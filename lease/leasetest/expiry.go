package leasetest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

var expiryCases = []testCase{
	{name: "session/expires", waits: true, run: func(t *T) {
		n := t.brief()
		n.win("a")
		n.letExpire(t.node(), "a")
	}},
	{name: "session/expires-for-acquirers", waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		n.win("a")
		n.watchExpiry(func() bool { return other.try("a").OK }, "a")
	}},
	{name: "session/expires-from-lists", needs: needList, waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		n.win("a")
		n.watchExpiry(func() bool { return len(other.list("a")) == 0 }, "a")
	}},
	{name: "session/acquire-does-not-renew", waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		n.win("a")
		n.pass(0.6)
		n.win("b")
		n.letExpire(other, "a")
		n.letExpire(other, "b")
	}},
	{name: "session/renewal-extends", waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		r := n.win("a")
		for range 3 {
			n.pass(0.6)
			n.renewed()
			n.lives(other, r, ruleRenew)
		}
		n.letExpire(other, "a")
	}},
	{name: "session/open-again-extends", waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		r := n.win("a")
		n.pass(0.6)
		last := *n
		n.reopen()
		if last.overdue() {
			t.noVerdict("the machine was too slow to open a session with a TTL of %v again in time", last.session.TTL)
		}
		n.pass(0.6)
		n.lives(other, r, ruleReopen)
		n.letExpire(other, "a")
	}},
	{name: "session/renewals-keep-all", waits: true, run: sessionKeepsAll},
	{name: "session/expires-alone", waits: true, run: func(t *T) {
		n, lasting, other := t.brief(), t.brief(), t.node()
		n.win("a")
		r := lasting.win("b")
		n.watchExpiry(func() bool {
			if time.Since(lasting.opened) > lasting.session.TTL/3 {
				lasting.renewed()
			}
			_, held := other.get("a")["a"]
			return !held
		}, "a")
		lasting.lives(other, r, ruleEarly)
	}},
	{name: "session/expired-is-gone", waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		n.win("a")
		n.letExpire(other, "a")
		sessionGone(t, n)
		other.free("a", ruleRevive)
		goneAmongLive(t, t.nodeOn(n.store), n)
		n.close() // no error
	}},
	{name: "session/expired-unseen-is-gone", waits: true, run: func(t *T) {
		// Nobody calls the store between the end of the TTL and the renewal: a
		// store that removes expired records as it meets them has met none.
		n, other := t.brief(), t.node()
		n.win("a")
		n.outlive()
		g := n.renew()
		t.inTime(errors.Is(g.Err, lease.ErrSessionGone), ruleRevive, "a renewal after expiry gave %+v", g)
		other.free("a", ruleRevive)
	}},
	{name: "session/expired-acquires-nothing", waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		r := n.win("a")
		n.outlive()
		ctx, cancel := t.context()
		defer cancel()
		outs, err := n.acquireCtx(ctx, t.supersede(r))
		t.inTime(errors.Is(err, lease.ErrSessionGone), ruleGoneAcquire, "outcomes %+v, error %v", outs, err)
		other.free("a", ruleGoneAcquire)
		other.win("a")
	}},
	{name: "session/expired-harms-no-successor", waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		old := n.win("a")
		n.letExpire(other, "a")
		r := other.win("a")
		t.check(errors.Is(n.renew().Err, lease.ErrSessionGone), ruleRevive, "a renewal after expiry was granted")
		out := n.release(old.Held())[0]
		t.check(!out.OK, ruleReleaseToken, "token %d was released by %d, which had expired", r.Token, old.Token)
		n.close()
		other.stands(r, ruleCloseOnly)
	}},
	{name: "session/expiry-frees-supersedes", waits: true, run: func(t *T) {
		// What expired is free for everybody, its incarnation's other sessions
		// included, whatever they claim to supersede.
		n, other := t.brief(), t.node()
		sibling := t.open(t.client(), n.session.Owner, time.Minute)
		old := n.win("a")
		n.letExpire(other, "a")
		sibling.winClaim(t.supersede(old), ruleFree)
	}},
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
func (n *node) lives(observer *node, r lease.Record, why rule) {
	n.t.Helper()
	got, held := observer.get(r.Name)[r.Name]
	if !held && n.overdue() {
		n.t.noVerdict("the machine was too slow to look at a record within its TTL of %v", n.session.TTL)
	}
	n.t.require(held, why, "%q is gone %v after the last renewal was sent, of a TTL of %v", r.Name, time.Since(n.opened), n.session.TTL)
	n.t.sameRecord(got, r, why)
}

// sessionKeepsAll renews one session over many TTLs: every record under it
// stays what it was, those won on the way too.
func sessionKeepsAll(t *T) {
	n, other := t.brief(), t.node()
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
	t.require(len(left) == len(names), ruleRenew, "%d of %d records stand after %d TTLs of renewals", len(left), len(names), ttls)
	for _, r := range was {
		n.lives(other, r, ruleRenew)
	}
}
