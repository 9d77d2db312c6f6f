package leasetest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// floors remembers, before a call, the highest token known of each name: what
// the call is given must be higher.
func (t *T) floors(names []string) []lease.Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	floors := make([]lease.Token, len(names))
	for i, name := range names {
		floors[i] = t.top[name]
	}
	return floors
}

// won checks the record of a success against what was asked for.
func (t *T) won(r lease.Record, floor lease.Token, want lease.Record, why rule) {
	t.Helper()
	t.check(r.Token != 0, ruleTokenZero, "%q", want.Name)
	t.check(r.Token > floor, ruleToken, "%q was won with token %d after token %d", want.Name, r.Token, floor)
	t.mu.Lock()
	t.top[want.Name] = max(t.top[want.Name], r.Token)
	t.mu.Unlock()
	want.Token = r.Token
	t.sameRecord(r, want, why)
}

// sameRecord checks every field of a record but the hint Left. Granted is asked for where
// want has it.
func (t *T) sameRecord(got, want lease.Record, why rule) {
	t.Helper()
	same := got.Name == want.Name && got.Owner == want.Owner && got.Session == want.Session &&
		got.Token == want.Token && got.Nonce == want.Nonce && sameMetadata(got.Metadata, want.Metadata)
	t.check(same, why, "got  %+v\n\twant %+v", got, want)
	t.check(!same || got.TTL == want.TTL, ruleRecordTTL, "%q: TTL %v, its session was granted %v", got.Name, got.TTL, want.TTL)
	t.check(want.Granted.IsZero() || got.Granted.Equal(want.Granted), ruleGranted, "%q: Granted is %v, and was %v", got.Name, got.Granted, want.Granted)
	t.check(got.Left >= 0, ruleRecordTTL, "%q: Left is %v", got.Name, got.Left)
}

// acquireCtx sends claims under the node's session and checks all that holds of
// any reply.
func (n *node) acquireCtx(ctx context.Context, claims ...lease.Claim) ([]lease.Outcome, error) {
	n.t.Helper()
	t := n.t
	names := make([]string, len(claims))
	for i, c := range claims {
		names[i] = c.Name
	}
	floors := t.floors(names)
	outs, err := n.store.Acquire(ctx, n.session, claims)
	if err != nil {
		return outs, err
	}
	if len(outs) != len(claims) {
		t.broken(ruleOrder, "Acquire of %d claims gave %d outcomes", len(claims), len(outs))
		return outs, errors.New("wrong number of outcomes")
	}
	for i, out := range outs {
		c := claims[i]
		switch {
		case out.OK:
			t.won(out.Record, floors[i], lease.Record{
				Name: c.Name, Owner: n.session.Owner, Session: n.session.ID,
				Nonce: c.Nonce, TTL: n.session.TTL, Metadata: c.Metadata,
			}, ruleRecord)
		case out.Err == nil:
			r := out.Record
			t.check(r.Name == c.Name && r.Token != 0 && r.Owner.Incarnation != "", ruleHolder,
				"claim %d of %q was refused with record %+v", i, c.Name, r)
		}
	}
	return outs, nil
}

// acquire is acquireCtx that must get its reply. It is fatal.
func (n *node) acquire(claims ...lease.Claim) []lease.Outcome {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := n.acquireCtx(ctx, claims...)
	if errors.Is(err, lease.ErrSessionGone) && n.overdue() {
		n.t.noVerdict("the machine was too slow to acquire within the TTL of %v", n.session.TTL)
	}
	if err != nil {
		n.t.Fatalf("Acquire of %d claims: %v", len(claims), err)
	}
	for i, out := range outs {
		if out.Err != nil {
			n.t.Fatalf("Acquire of %q: Outcome.Err %v", claims[i].Name, out.Err)
		}
	}
	return outs
}

// try claims name if it is free. It is fatal.
func (n *node) try(name string) lease.Outcome {
	n.t.Helper()
	return n.acquire(n.t.claim(name))[0]
}

// tryCtx is try for other goroutines: failures are reported, not fatal.
func (n *node) tryCtx(name string) (lease.Outcome, error) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := n.acquireCtx(ctx, n.t.claim(name))
	if err != nil {
		n.t.Errorf("Acquire of %q: %v", name, err)
		return lease.Outcome{}, err
	}
	if outs[0].Err != nil {
		n.t.Errorf("Acquire of %q: Outcome.Err %v", name, outs[0].Err)
	}
	return outs[0], outs[0].Err
}

// win claims a name that must be free. It is fatal.
func (n *node) win(name string) lease.Record {
	n.t.Helper()
	return n.winClaim(n.t.claim(name), ruleFree)
}

// winClaim sends a claim that must succeed by the rule why. It is fatal.
func (n *node) winClaim(c lease.Claim, why rule) lease.Record {
	n.t.Helper()
	out := n.acquire(c)[0]
	n.t.require(out.OK, why, "%s claimed %q (supersedes %d) and was refused by %+v",
		n.session.Owner.ID, c.Name, c.Supersedes, out.Record)
	n.t.check(out.Replaced == 0 || why != ruleFree && out.Replaced == c.Supersedes, ruleReplaced,
		"%q, by a claim that supersedes %d (%s), replaced %d", c.Name, c.Supersedes, why, out.Replaced)
	return out.Record
}

// refused sends a claim that must be refused by the rule why, because of the
// record that stands. It is fatal.
func (n *node) refused(c lease.Claim, standing lease.Record, why rule) {
	n.t.Helper()
	out := n.acquire(c)[0]
	n.t.require(!out.OK, why, "%s claimed %q (supersedes %d) and won over %+v",
		n.session.Owner.ID, c.Name, c.Supersedes, standing)
	n.t.sameRecord(out.Record, standing, ruleHolder)
}

// supersede is a claim that replaces r.
func (t *T) supersede(r lease.Record) lease.Claim {
	c := t.claim(r.Name)
	c.Supersedes = r.Token
	return c
}

func (t *T) releaseCtx(ctx context.Context, s lease.Store, held ...lease.Held) ([]lease.Outcome, error) {
	t.Helper()
	outs, err := s.Release(ctx, held)
	if err == nil && len(outs) != len(held) {
		t.broken(ruleOrder, "Release of %d names gave %d outcomes", len(held), len(outs))
		return outs, errors.New("wrong number of outcomes")
	}
	return outs, err
}

// release releases through the node's client. It is fatal.
func (n *node) release(held ...lease.Held) []lease.Outcome {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := n.t.releaseCtx(ctx, n.store, held...)
	if err != nil {
		n.t.Fatalf("Release of %d names: %v", len(held), err)
	}
	return outs
}

// freed releases r, which must work. It is fatal.
func (n *node) freed(r lease.Record) {
	n.t.Helper()
	out := n.release(r.Held())[0]
	n.t.require(out.OK && out.Err == nil, ruleRelease, "%q token %d: outcome %+v", r.Name, r.Token, out)
}

func (t *T) transferCtx(ctx context.Context, s lease.Store, moves ...lease.Transfer) ([]lease.Outcome, error) {
	t.Helper()
	names := make([]string, len(moves))
	for i, m := range moves {
		names[i] = m.Name
	}
	floors := t.floors(names)
	outs, err := s.(lease.TransferStore).Transfer(ctx, moves)
	if err != nil {
		return outs, err
	}
	if len(outs) != len(moves) {
		t.broken(ruleOrder, "Transfer of %d names gave %d outcomes", len(moves), len(outs))
		return outs, errors.New("wrong number of outcomes")
	}
	for i, out := range outs {
		if out.OK {
			to, want := moves[i].To, moves[i].Metadata
			if want == nil { // kept: what it was, the case knows
				want = out.Record.Metadata
			}
			t.won(out.Record, floors[i], lease.Record{
				Name: moves[i].Name, Owner: to.Owner, Session: to.Session, Nonce: to.Nonce, TTL: to.TTL, Metadata: want,
			}, ruleTransfer)
		}
	}
	return outs, nil
}

// transfer sends moves through the node's client. It is fatal.
func (n *node) transfer(moves ...lease.Transfer) []lease.Outcome {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := n.t.transferCtx(ctx, n.store, moves...)
	if err != nil {
		n.t.Fatalf("Transfer of %d names: %v", len(moves), err)
	}
	return outs
}

// give moves r to another node, which must work. It is fatal.
func (n *node) give(r lease.Record, to *node) lease.Record {
	n.t.Helper()
	out := n.transfer(lease.Transfer{Held: r.Held(), To: to.offer(r.Name)})[0]
	if !out.OK && (n.overdue() || to.overdue()) {
		n.t.noVerdict("the machine was too slow to transfer within a TTL of %v", min(n.session.TTL, to.session.TTL))
	}
	n.t.require(out.OK && out.Err == nil, ruleTransfer, "%q token %d was refused: %+v", r.Name, r.Token, out)
	return out.Record
}

func (t *T) getCtx(ctx context.Context, s lease.Store, names ...string) (map[string]lease.Record, error) {
	t.Helper()
	records, err := s.Get(ctx, names...)
	if err != nil {
		return nil, err
	}
	found := make(map[string]lease.Record, len(records))
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		asked[name] = true
	}
	for _, r := range records {
		_, twice := found[r.Name]
		t.check(asked[r.Name] && !twice, ruleGet, "asked for %d names, got %q, which was not asked for or came twice", len(names), r.Name)
		found[r.Name] = r
	}
	return found, nil
}

// get reads names through the node's client. It is fatal.
func (n *node) get(names ...string) map[string]lease.Record {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	found, err := n.t.getCtx(ctx, n.store, names...)
	if err != nil {
		n.t.Fatalf("Get of %d names: %v", len(names), err)
	}
	return found
}

// stands checks that r, and nothing else, stands under its name. It is fatal.
func (n *node) stands(r lease.Record, why rule) {
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

func (t *T) listAll(s lease.Store, prefix string) (map[string]lease.Record, error) {
	t.Helper()
	ctx, cancel := t.context()
	defer cancel()
	found := make(map[string]lease.Record)
	for r, err := range s.List(ctx, prefix) {
		if err != nil {
			return found, err
		}
		_, twice := found[r.Name]
		t.check(!twice, ruleList, "prefix %q: %q came twice", prefix, r.Name)
		found[r.Name] = r
	}
	return found, nil
}

// list lists a prefix through the node's client. It is fatal.
func (n *node) list(prefix string) map[string]lease.Record {
	n.t.Helper()
	found, err := n.t.listAll(n.store, prefix)
	if err != nil {
		n.t.Fatalf("List of %q: %v", prefix, err)
	}
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
