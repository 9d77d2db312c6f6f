package leasetest

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// What a record can't be made of that everybody reads is refused, each for itself.
var invalidCases = []testCase{
	{name: "invalid/claims", run: invalidClaims},
	{name: "invalid/sessions", needs: needCalm, run: invalidSessions},
	{name: "invalid/offers", needs: needTransfer, run: invalidOffers},
	{name: "invalid/bad-record-moved", needs: needTransfer | needBadRecords, run: badRecordMoved},
}

// badRecordMoved: what is no record is nobody's to give away, whatever is known of it.
func badRecordMoved(t *T) {
	client, spoil := t.opts.bad(t)
	t.client = client
	a, b := t.node(), t.node()
	spoil("b/bad")
	good := a.win("b/good")
	for _, h := range []lease.Held{{Token: 1, Nonce: 1}, {Token: good.Token, Nonce: good.Nonce}, {}} {
		h.Name = "b/bad"
		moves := []lease.Transfer{{Held: h, To: b.offer(h.Name)}, {Held: good.Held(), To: b.offer(good.Name)}}
		moves = moves[:t.batch(a.store, len(moves))]
		ctx, cancel := t.context()
		outs, err := t.transferCtx(ctx, a.store, moves...)
		cancel()
		t.require(err == nil && len(outs) == len(moves), ruleBadOther, "Transfer: %d outcomes, error %v", len(outs), err)
		t.require(!outs[0].OK, ruleBadMove, "%+v moved it", h)
		if len(moves) > 1 {
			t.require(outs[1].OK, ruleBadOther, "a move in the same call: %+v", outs[1])
			good, a, b = outs[1].Record, b, a
		}
		ctx, cancel = t.context()
		claimed, err := b.acquireCtx(ctx, t.claim("b/bad"))
		cancel()
		t.require(err == nil && !claimed[0].OK && errors.Is(claimed[0].Err, lease.ErrBadRecord), ruleBadMove, "then a claim: %+v, error %v", claimed, err)
	}
}

// notUTF8 are metadata that no text format keeps as it is.
func notUTF8() []map[string]string {
	return []map[string]string{
		{"state": "\xff\xfe\x00\x80"}, {"\x80": "v"}, {"good": "v", "cut": "caf\xc3"}, {"surrogate": "\xed\xa0\x80"},
	}
}

func invalidClaims(t *T) {
	n, other := t.node(), t.node()
	standing := n.win("stands")
	bad := []lease.Claim{t.claim(""), t.claim("/a"), t.claim("a//b"), t.claim("a\xff"), t.claim("a\x00b"),
		t.claim(strings.Repeat("x", lease.MaxName+1))}
	for _, m := range notUTF8() {
		c, over := t.claim("a"), t.supersede(standing)
		c.Metadata, over.Metadata = m, m
		bad = append(bad, c, over)
	}
	for i, c := range bad {
		claims := []lease.Claim{t.claim("good/1"), c, t.claim("good/2")}
		if t.batch(n.store, len(claims)) < len(claims) {
			claims = claims[1:2]
		}
		ctx, cancel := t.context()
		outs, err := n.acquireCtx(ctx, claims...)
		cancel()
		t.require(err == nil && len(outs) == len(claims), ruleInvalidOnly, "claim %d, %+v: error %v", i, c, err)
		for j, out := range outs {
			if claims[j].Nonce != c.Nonce {
				t.require(out.OK, ruleInvalidOnly, "%q beside %+v: %+v", claims[j].Name, c, out)
				n.freed(out.Record)
				continue
			}
			t.require(!out.OK && errors.Is(out.Err, lease.ErrInvalid), ruleInvalid, "claim %d, %+v: %+v", i, c, out)
		}
		other.free("a", ruleInvalid)
		other.stands(standing, ruleInvalid)
	}
}

func invalidSessions(t *T) {
	s := t.client()
	for i, spoil := range []func(*lease.Session){
		func(x *lease.Session) { x.ID = 0 },
		func(x *lease.Session) { x.ID = -x.ID },
		func(x *lease.Session) { x.TTL = 0 },
		func(x *lease.Session) { x.TTL = -time.Second },
		func(x *lease.Session) { x.Owner.Incarnation = "" },
		func(x *lease.Session) { x.Owner.Incarnation += "\xff" },
		func(x *lease.Session) { x.Owner.ID = "\xff" },
		func(x *lease.Session) { x.Owner.Address = "\xc3" },
	} {
		x := t.newSession(t.owner(), t.ttl)
		spoil(&x)
		ctx, cancel := t.context()
		g, err := s.OpenSession(ctx, x)
		cancel()
		t.check(errors.Is(errors.Join(err, g.Err), lease.ErrInvalid), ruleInvalid, "session %d, %+v: granted %+v, error %v", i, x, g, err)
	}
}

func invalidOffers(t *T) {
	a, b, other := t.node(), t.node(), t.node()
	r := a.win("a")
	for i, spoil := range []func(*lease.Transfer){
		func(m *lease.Transfer) { m.To.Owner = lease.Owner{ID: m.To.Owner.ID} },
		func(m *lease.Transfer) { m.To.Owner = lease.Owner{} },
		func(m *lease.Transfer) { m.To.Owner.Address = "\xff" },
		func(m *lease.Transfer) { m.To.Session = 0 },
		func(m *lease.Transfer) { m.To.Session = -m.To.Session },
		func(m *lease.Transfer) { m.To.TTL = 0 },
		func(m *lease.Transfer) { m.To.TTL = -time.Second },
		func(m *lease.Transfer) { m.To.Name = "b" },
		func(m *lease.Transfer) { m.To.Name = "" },
		func(m *lease.Transfer) { m.Metadata = notUTF8()[0] },
		func(m *lease.Transfer) { m.Metadata = notUTF8()[1] },
	} {
		bad := lease.Transfer{Held: r.Held(), To: b.offer("a")}
		spoil(&bad)
		moves := []lease.Transfer{bad}
		if t.batch(a.store, 2) == 2 {
			moves = append(moves, lease.Transfer{Held: other.win("beside").Held(), To: b.offer("beside")})
		}
		ctx, cancel := t.context()
		outs, err := t.transferCtx(ctx, a.store, moves...)
		cancel()
		t.require(err == nil && len(outs) == len(moves), ruleInvalidOnly, "move %d, %+v: error %v", i, bad, err)
		t.require(!outs[0].OK && errors.Is(outs[0].Err, lease.ErrInvalid), ruleInvalid, "move %d, %+v: %+v", i, bad, outs[0])
		if len(moves) > 1 {
			t.require(outs[1].OK, ruleInvalidOnly, "a move beside %+v: %+v", bad, outs[1])
			b.freed(outs[1].Record)
		}
		other.stands(r, ruleInvalid)
		other.refused(t.claim("a"), r, ruleInvalid)
	}
	b.freed(a.give(r, b)) // it is the mover's as before
}
