package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/store"
)

// tokens are the highest tokens known. A call that is made afterwards must issue higher ones.
func (t *storeT) tokens() map[string]store.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.top)
}

// won checks the record of a success against what was asked for.
func (t *storeT) won(r store.Record, before map[string]store.Token, want store.Record, why rule) {
	t.Helper()
	t.check(r.Token != 0, ruleTokenZero, "%q", want.Name)
	t.check(r.Token > before[want.Name], ruleToken, "%q was won with token %d after token %d", want.Name, r.Token, before[want.Name])
	t.mu.Lock()
	t.top[want.Name] = max(t.top[want.Name], r.Token)
	t.mu.Unlock()
	want.Token = r.Token
	t.sameRecord(r, want, why)
}

// sameRecord checks every field of a record but the hint Left. Granted is compared if want
// has it.
func (t *storeT) sameRecord(got, want store.Record, why rule) {
	t.Helper()
	same := got.Name == want.Name && got.Owner == want.Owner && got.Session == want.Session &&
		got.Token == want.Token && got.Nonce == want.Nonce && maps.Equal(got.Metadata, want.Metadata)
	t.check(same, why, "got  %+v\n\twant %+v", got, want)
	t.check(!same || got.TTL == want.TTL, ruleRecordTTL, "%q: TTL %v, its session was granted %v", got.Name, got.TTL, want.TTL)
	t.check(want.Granted.IsZero() || got.Granted.Equal(want.Granted), ruleGranted, "%q: Granted is %v, and was %v", got.Name, got.Granted, want.Granted)
	t.check(got.Left >= 0, ruleRecordTTL, "%q: Left is %v", got.Name, got.Left)
}

// must is fatal if a call got no answer.
func (t *storeT) must(err error, call string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(call, args...), err)
	}
}

// answered checks that a call answered each of its arguments.
func answered(t *storeT, call string, outs []store.Outcome, asked int, err error) ([]store.Outcome, error) {
	t.Helper()
	if err == nil && len(outs) != asked {
		t.broken(ruleOrder, "%s of %d names gave %d outcomes", call, asked, len(outs))
		err = errors.New("wrong number of outcomes")
	}
	return outs, err
}

// acquireCtx sends claims under the node's session and checks all that holds of
// any reply.
func (n *node) acquireCtx(ctx context.Context, claims ...store.Claim) ([]store.Outcome, error) {
	n.t.Helper()
	t, before := n.t, n.t.tokens()
	outs, err := n.store.Acquire(ctx, n.session, claims)
	if outs, err = answered(t, "Acquire", outs, len(claims), err); err != nil {
		return outs, err
	}
	for i, out := range outs {
		c, r := claims[i], out.Record
		switch {
		case out.OK:
			t.won(r, before, store.Record{
				Name: c.Name, Owner: n.session.Owner, Session: n.session.ID,
				Nonce: c.Nonce, TTL: n.session.TTL, Metadata: c.Metadata,
			}, ruleRecord)
		case out.Err == nil:
			t.check(r.Name == c.Name && r.Token != 0 && r.Owner.Incarnation != "", ruleHolder,
				"claim %d of %q was refused with record %+v", i, c.Name, r)
		}
	}
	return outs, nil
}

// acquires is acquireCtx within the bound of a call.
func (n *node) acquires(claims ...store.Claim) ([]store.Outcome, error) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	return n.acquireCtx(ctx, claims...)
}

// acquire is acquires that must get its reply. It is fatal.
func (n *node) acquire(claims ...store.Claim) []store.Outcome {
	n.t.Helper()
	outs, err := n.acquires(claims...)
	if errors.Is(err, store.ErrSessionGone) && n.overdue() {
		n.t.noVerdict("the machine was too slow to acquire within the TTL of %v", n.session.TTL)
	}
	n.t.must(err, "Acquire of %d claims", len(claims))
	for i, out := range outs {
		n.t.must(out.Err, "Acquire of %q: Outcome.Err", claims[i].Name)
	}
	return outs
}

// try claims name if it is free. It is fatal.
func (n *node) try(name string) store.Outcome {
	n.t.Helper()
	return n.acquire(n.t.claim(name))[0]
}

// win claims a name that must be free. It is fatal.
func (n *node) win(name string) store.Record {
	n.t.Helper()
	return n.winClaim(n.t.claim(name), ruleFree)
}

// winClaim sends a claim that must succeed by the rule why. It is fatal.
func (n *node) winClaim(c store.Claim, why rule) store.Record {
	n.t.Helper()
	out := n.acquire(c)[0]
	n.t.require(out.OK, why, "%s claimed %q (supersedes %d) and was refused by %+v",
		n.session.Owner.ID, c.Name, c.Supersedes, out.Record)
	n.t.check(out.Replaced == 0 || why != ruleFree && out.Replaced == c.Supersedes, ruleReplaced,
		"%q, by a claim that supersedes %d (%s), replaced %d", c.Name, c.Supersedes, why, out.Replaced)
	return out.Record
}

// winAll wins free names by as few calls as the store's limits allow. It is fatal.
func (n *node) winAll(names []string, why rule) (won []store.Record) {
	n.t.Helper()
	for len(won) < len(names) {
		claims := make([]store.Claim, n.t.batch(n.store, len(names)-len(won)))
		for i := range claims {
			claims[i] = n.t.claim(names[len(won)+i])
		}
		for i, out := range n.acquire(claims...) {
			n.t.require(out.OK, why, "%+q was claimed, and refused by %+q, which stands", claims[i].Name, out.Record.Name)
			won = append(won, out.Record)
		}
	}
	return won
}

// refused sends a claim that must be refused by the rule why, because of the
// record that stands. It is fatal.
func (n *node) refused(c store.Claim, standing store.Record, why rule) {
	n.t.Helper()
	out := n.acquire(c)[0]
	n.t.require(!out.OK, why, "%s claimed %q (supersedes %d) and won over %+v",
		n.session.Owner.ID, c.Name, c.Supersedes, standing)
	n.t.sameRecord(out.Record, standing, ruleHolder)
}

// denied sends a claim between two that are granted. By the rule why it must be answered with the
// error want and change nothing. It is fatal.
func (n *node) denied(c store.Claim, want error, why rule) {
	n.t.Helper()
	claims := []store.Claim{n.t.claim("granted/1"), c, n.t.claim("granted/2")}
	if n.t.batch(n.store, len(claims)) < len(claims) {
		claims = claims[1:2]
	}
	unchanged := n.unchanged(c.Name, why)
	outs, err := n.acquires(claims...)
	n.t.require(err == nil, ruleOnly, "Acquire with a claim %s that is denied: error %v", short(c), err)
	for i, out := range outs {
		if claims[i].Nonce == c.Nonce {
			n.t.require(!out.OK && errors.Is(out.Err, want), why, "a claim %s: OK %v, error %v, want %v", short(c), out.OK, out.Err, want)
			continue
		}
		n.t.require(out.OK, ruleOnly, "%q beside a claim %s that is denied: %+v", claims[i].Name, short(c), out)
		n.freed(out.Record)
	}
	unchanged()
}

// deniedMove is denied for a transfer, beside one of another name. Any of the errors will do, and
// a refusal without one if none is given.
func (n *node) deniedMove(m store.Transfer, why rule, want ...error) {
	n.t.Helper()
	moves := []store.Transfer{m}
	if n.t.batch(n.store, 2) == 2 {
		moves = append(moves, n.taking(n.win("granted").Held()))
	}
	unchanged := n.unchanged(m.Name, why)
	outs, err := n.transfers(moves...)
	n.t.require(err == nil, ruleOnly, "Transfer with a move %s that is denied: error %v", short(m), err)
	denied := len(want) == 0 || cases.IsAny(outs[0].Err, want...)
	n.t.require(!outs[0].OK && denied, why, "a move %s: OK %v, error %v, want %v", short(m), outs[0].OK, outs[0].Err, want)
	if len(outs) > 1 {
		n.t.require(outs[1].OK, ruleOnly, "a move beside %s, which is denied: %+v", short(m), outs[1])
		n.freed(outs[1].Record)
	}
	unchanged()
}

// short is the text of a request, cut if it is large.
func short(request any) string { return fmt.Sprintf("%.300s", fmt.Sprintf("%+v", request)) }

// unchanged reads a name, and returns the check that it reads the same later. It is fatal.
func (n *node) unchanged(name string, why rule) (check func()) {
	n.t.Helper()
	if store.ValidateName(name) != nil {
		return func() {}
	}
	before, held := n.get(name)[name]
	return func() {
		n.t.Helper()
		if held {
			n.stands(before, why)
		} else {
			n.free(name, why)
		}
	}
}

// supersede is a claim that replaces r.
func (t *storeT) supersede(r store.Record) store.Claim {
	c := t.claim(r.Name)
	c.Supersedes = r.Token
	return c
}

// superseded replaces r, which must work. It is fatal.
func (n *node) superseded(r store.Record) store.Record {
	n.t.Helper()
	return n.winClaim(n.t.supersede(r), ruleSupersede)
}

func (n *node) releases(held ...store.Held) ([]store.Outcome, error) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := n.store.Release(ctx, held)
	return answered(n.t, "Release", outs, len(held), err)
}

// release is releases that must get its reply. It is fatal.
func (n *node) release(held ...store.Held) []store.Outcome {
	n.t.Helper()
	outs, err := n.releases(held...)
	n.t.must(err, "Release of %d names", len(held))
	return outs
}

// freed releases r, which must work. It is fatal.
func (n *node) freed(r store.Record) {
	n.t.Helper()
	out := n.release(r.Held())[0]
	n.t.require(out.OK && out.Err == nil, ruleRelease, "%q token %d: outcome %+v", r.Name, r.Token, out)
}

// transfers sends moves and checks all that holds of any reply.
func (n *node) transfers(moves ...store.Transfer) ([]store.Outcome, error) {
	n.t.Helper()
	t, before := n.t, n.t.tokens()
	ctx, cancel := t.context()
	defer cancel()
	outs, err := n.store.(store.Transferrer).Transfer(ctx, moves)
	if outs, err = answered(t, "Transfer", outs, len(moves), err); err != nil {
		return outs, err
	}
	for i, out := range outs {
		if out.OK {
			to, want := moves[i].To, moves[i].Metadata
			if want == nil { // kept, and the case knows what it was
				want = out.Record.Metadata
			}
			t.won(out.Record, before, store.Record{
				Name: moves[i].Name, Owner: to.Owner, Session: to.Session, Nonce: to.Nonce, TTL: to.TTL, Metadata: want,
			}, ruleTransfer)
		}
	}
	return outs, nil
}

// transfer is transfers that must get its reply. It is fatal.
func (n *node) transfer(moves ...store.Transfer) []store.Outcome {
	n.t.Helper()
	outs, err := n.transfers(moves...)
	n.t.must(err, "Transfer of %d names", len(moves))
	return outs
}

// taking is the transfer of an ownership to the node.
func (n *node) taking(h store.Held) store.Transfer {
	return store.Transfer{Held: h, To: n.offer(h.Name)}
}

// give moves r to another node, which must work. It is fatal.
func (n *node) give(r store.Record, to *node) store.Record {
	n.t.Helper()
	return n.given(to.taking(r.Held()), to)
}

// given sends a move to another node, which must work. It is fatal.
func (n *node) given(m store.Transfer, to *node) store.Record {
	n.t.Helper()
	out := n.transfer(m)[0]
	if !out.OK && (n.overdue() || to.overdue()) {
		n.t.noVerdict("the machine was too slow to transfer within a TTL of %v", min(n.session.TTL, to.session.TTL))
	}
	n.t.require(out.OK && out.Err == nil, ruleTransfer, "%q token %d was refused: %+v", m.Name, m.Token, out)
	return out.Record
}

// gets reads names through the node's client.
func (n *node) gets(names ...string) (map[string]store.Record, error) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	records, err := n.store.Get(ctx, names...)
	if err != nil {
		return nil, err
	}
	asked, found := make(map[string]bool, len(names)), make(map[string]store.Record, len(records))
	for _, name := range names {
		asked[name] = true
	}
	for _, r := range records {
		n.t.check(asked[r.Name], ruleGet, "asked for %d names, got %q, which was not asked for or came twice", len(names), r.Name)
		found[r.Name], asked[r.Name] = r, false
	}
	return found, nil
}

// get is gets that must get its reply. It is fatal.
func (n *node) get(names ...string) map[string]store.Record {
	n.t.Helper()
	found, err := n.gets(names...)
	n.t.must(err, "Get of %d names", len(names))
	return found
}

// stands checks that r, and nothing else, stands under its name. It is fatal.
func (n *node) stands(r store.Record, why rule) {
	n.t.Helper()
	got, held := n.get(r.Name)[r.Name]
	n.t.require(held, why, "%q is free; it should stand: %+v", r.Name, r)
	n.t.sameRecord(got, r, why)
}

// free checks that nothing stands under name. It is fatal.
func (n *node) free(name string, why rule) {
	n.t.Helper()
	got, held := n.get(name)[name]
	n.t.require(!held, why, "%q should be free; it stands: %+v", name, got)
}

// listing is what a store lists within a context: a prefix, or a session.
type listing struct {
	rule rule
	of   func(context.Context) iter.Seq2[store.Record, error]
}

func (n *node) prefix(prefix string) listing {
	return listing{ruleList, func(ctx context.Context) iter.Seq2[store.Record, error] {
		return n.store.List(ctx, store.Query{Prefix: prefix})
	}}
}

// records are those of of's session, listed through the node's client.
func (n *node) records(of *node) listing {
	return listing{ruleListed, func(ctx context.Context) iter.Seq2[store.Record, error] {
		return n.store.List(ctx, store.Query{Session: of.session.ID})
	}}
}

// all lists up to the end, or to an error.
func (l listing) all(t *storeT) (map[string]store.Record, error) {
	t.Helper()
	ctx, cancel := t.context()
	defer cancel()
	found := make(map[string]store.Record)
	for r, err := range l.of(ctx) {
		if err != nil {
			return found, err
		}
		_, twice := found[r.Name]
		t.check(!twice, l.rule, "%q came twice", r.Name)
		found[r.Name] = r
	}
	return found, nil
}

// list lists a prefix through the node's client. It is fatal.
func (n *node) list(prefix string) map[string]store.Record {
	n.t.Helper()
	found, err := n.prefix(prefix).all(n.t)
	n.t.must(err, "List of %q", prefix)
	return found
}

// letExpire waits until name is gone and checks the moment against the end of
// the node's session. It is fatal.
func (n *node) letExpire(observer *node, name string) {
	n.t.Helper()
	n.watchExpiry(func() bool {
		_, held := observer.get(name)[name]
		return !held
	}, name)
}

// watchExpiry asks gone until it says true and checks that this is neither
// before the session's end nor long after. It is fatal.
func (n *node) watchExpiry(gone func() bool, name string) {
	n.t.Helper()
	t, ttl := n.t, n.session.TTL
	for latest := n.acked.Add(ttl + t.slack); ; time.Sleep(t.tick()) {
		asked := time.Now()
		if gone() {
			lived := time.Since(n.opened)
			t.require(lived >= ttl, ruleEarly, "%q was gone %v after the last renewal was sent; granted were %v", name, lived, ttl)
			return
		}
		t.inTime(!asked.After(latest), ruleLate, "%q still stood %v after the reply to the last renewal; granted were %v, slack %v",
			name, asked.Sub(n.acked), ttl, t.slack)
	}
}
