package leasetest

import (
	"errors"

	"github.com/holdfast-go/holdfast/lease"
)

var transferCases = []testCase{
	{name: "transfer/moves", needs: needTransfer, run: func(t *T) {
		a, b, other := t.node(), t.node(), t.node()
		old := a.win("a")
		r := a.give(old, b)
		other.stands(r, ruleTransfer)
		other.refused(t.claim("a"), r, ruleHeld)
		out := a.release(old.Held())[0]
		t.check(!out.OK, ruleReleaseToken, "token %d, transferred as %d, was released", old.Token, r.Token)
		a.refused(t.supersede(old), r, ruleSupersedeOf)
		b.winClaim(t.supersede(r), ruleSupersede)
	}},
	{name: "transfer/through-any-client", needs: needTransfer, run: func(t *T) {
		a, b, c := t.node(), t.node(), t.node()
		r := c.give(a.win("a"), b)
		a.stands(r, ruleTransfer)
		b.freed(r)
	}},
	{name: "transfer/there-and-back", needs: needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		first := a.win("a")
		r := b.give(a.give(first, b), a)
		out := a.release(first.Held())[0]
		t.check(!out.OK, ruleReleaseToken, "token %d was released by %d, of an ownership before", r.Token, first.Token)
		a.stands(r, ruleReleaseToken)
		a.freed(r)
	}},
	{name: "transfer/wrong-token", needs: needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		r := a.win("a")
		for _, token := range []lease.Token{0, r.Token - 1, r.Token + 1} {
			held := r.Held()
			held.Token = token
			transferRefused(t, a, held, b, r)
		}
	}},
	{name: "transfer/wrong-nonce", needs: needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		r := a.win("a")
		for _, nonce := range []uint64{0, r.Nonce - 1, r.Nonce + 1} {
			held := r.Held()
			held.Nonce = nonce
			transferRefused(t, a, held, b, r)
		}
	}},
	{name: "transfer/stale", needs: needTransfer, run: func(t *T) {
		a, b, c := t.node(), t.node(), t.node()
		old := a.win("a")
		r := a.give(old, b)
		transferRefused(t, a, old.Held(), c, r) // given away before
		b.freed(r)
		transferRefused(t, b, r.Held(), c, lease.Record{Name: "a"}) // released
		r2 := c.win("a")
		transferRefused(t, b, r.Held(), a, r2) // another's by now
	}},
	{name: "transfer/unheld", needs: needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		transferRefused(t, a, lease.Held{Name: "a", Token: 1, Nonce: 1}, b, lease.Record{Name: "a"})
		b.win("a")
	}},
	{name: "transfer/mixed", needs: needTransfer, run: transferMixed},
	{name: "transfer/metadata", needs: needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		c := t.claim("a")
		c.Metadata = map[string]string{"shards": "32", "odd": "ü%/ "}
		r := a.winClaim(c, ruleFree)
		kept := a.give(r, b)
		t.check(sameMetadata(kept.Metadata, c.Metadata), ruleTransferMeta, "was %v, is %v", c.Metadata, kept.Metadata)
		a.stands(kept, ruleTransferMeta)
		for _, m := range []map[string]string{{"new": "1"}, {}} {
			out := b.transfer(lease.Transfer{Held: kept.Held(), To: a.offer("a"), Metadata: m})[0]
			t.require(out.OK, ruleTransfer, "refused: %+v", out)
			t.check(sameMetadata(out.Record.Metadata, m), ruleTransferMeta, "given %v, is %v", m, out.Record.Metadata)
			a.stands(out.Record, ruleTransferMeta)
			kept = a.give(out.Record, b)
		}
	}},
	{name: "transfer/follows-target's-close", needs: needTransfer, run: func(t *T) {
		a, b, other := t.node(), t.node(), t.node()
		r := a.give(a.win("a"), b)
		a.close()
		other.stands(r, ruleTransferExpiry)
		b.close()
		other.free("a", ruleTransferExpiry)
	}},
	{name: "transfer/to-closed-session", needs: needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		r := a.win("a")
		b.close()
		transferGone(t, a, r, b)
	}},
	{name: "transfer/to-expired-session", needs: needTransfer, waits: true, run: func(t *T) {
		a, b := t.node(), t.brief()
		r := a.win("a")
		b.outlive()
		if t.opts.stall > 0 || t.opts.observed {
			t.inTime(errors.Is(b.renew().Err, lease.ErrSessionGone), ruleRevive, "a renewal after expiry was granted")
		}
		transferGone(t, a, r, b)
	}},
	{name: "transfer/outlives-mover", needs: needTransfer, waits: true, run: func(t *T) {
		a, b, other := t.brief(), t.node(), t.node()
		r := a.give(a.win("a"), b)
		a.outlive()
		other.stands(r, ruleTransferExpiry)
	}},
	{name: "transfer/expires-with-target", needs: needTransfer, waits: true, run: func(t *T) {
		a, b, other := t.node(), t.brief(), t.node()
		r := a.win("a")
		b.pass(0.5)
		a.give(r, b) // attaching renews nothing
		b.letExpire(other, "a")
	}},
	{name: "transfer/renewed-by-target", needs: needTransfer, waits: true, run: func(t *T) {
		a, b, other := t.brief(), t.brief(), t.node()
		r := a.give(a.win("a"), b)
		for range 3 {
			b.pass(0.6)
			b.renewed()
		}
		b.lives(other, r, ruleTransferExpiry)
	}},
	{name: "transfer/expired", needs: needTransfer, waits: true, run: func(t *T) {
		a, b, other := t.brief(), t.node(), t.node()
		r := a.win("a")
		a.letExpire(other, "a")
		transferRefused(t, a, r.Held(), b, lease.Record{Name: "a"})
	}},
	{name: "transfer/unsupported", needs: needNoTransfer, run: func(t *T) {
		n, b := t.node(), t.node()
		tr, ok := n.store.(lease.TransferStore)
		if !ok {
			return
		}
		ctx, cancel := t.context()
		defer cancel()
		r := n.win("a")
		outs, err := tr.Transfer(ctx, []lease.Transfer{{Held: r.Held(), To: b.offer("a")}})
		said := errors.Is(err, lease.ErrUnsupported) || len(outs) == 1 && errors.Is(outs[0].Err, lease.ErrUnsupported)
		t.check(said, ruleUnsupported, "Transfer: %+v, error %v", outs, err)
		n.stands(r, ruleUnsupported)
	}},
}

// transferRefused sends a move that is no ownership and checks that it changed
// nothing: standing (or nothing, if its token is 0) stands. It is fatal.
func transferRefused(t *T, from *node, held lease.Held, to *node, standing lease.Record) {
	t.Helper()
	out := from.transfer(lease.Transfer{Held: held, To: to.offer(held.Name), Metadata: map[string]string{"x": "y"}})[0]
	t.require(!out.OK, ruleTransferRefused, "%+v was moved, there stood %+v", held, standing)
	if standing.Token == 0 {
		from.free(held.Name, ruleTransferRefused)
		return
	}
	from.stands(standing, ruleTransferRefused)
	if out.Err == nil {
		t.sameRecord(out.Record, standing, ruleHolder)
	}
}

// transferGone sends a move to a session that is gone. It is fatal.
func transferGone(t *T, from *node, r lease.Record, to *node) {
	t.Helper()
	out := from.transfer(lease.Transfer{Held: r.Held(), To: to.offer(r.Name), Metadata: map[string]string{"x": "y"}})[0]
	t.require(!out.OK && errors.Is(out.Err, lease.ErrSessionGone), ruleTransferGone, "outcome %+v", out)
	from.stands(r, ruleTransferGone)
	from.freed(r) // it is the mover's as before
}

// transferMixed: one call with moves that apply and moves that do not, each
// answered in its place.
func transferMixed(t *T) {
	a, b, gone := t.node(), t.node(), t.node()
	gone.close()
	w, x, y, z := a.win("w"), a.win("x"), b.win("y"), a.win("z")
	stale := x.Held()
	stale.Nonce++
	moves := []lease.Transfer{
		{Held: z.Held(), To: b.offer("z")},
		{Held: stale, To: b.offer("x")},
		{Held: w.Held(), To: gone.offer("w")},
		{Held: y.Held(), To: a.offer("y")},
	}
	moves = moves[:t.batch(a.store, len(moves))]
	want := []bool{true, false, false, true}
	outs := a.transfer(moves...)
	for i, out := range outs {
		t.require(out.OK == want[i], ruleOrder, "move %d, of %q: %+v, want OK %v", i, moves[i].Name, out, want[i])
		t.check(errors.Is(out.Err, lease.ErrSessionGone) == (i == 2), ruleTransferGone, "move %d, of %q: Err %v", i, moves[i].Name, out.Err)
		if out.OK {
			a.stands(out.Record, ruleTransfer)
		}
	}
	a.stands(w, ruleTransferGone)
	a.stands(x, ruleTransferRefused)
}
