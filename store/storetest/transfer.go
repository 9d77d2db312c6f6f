package storetest

import (
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// The cases hands/* move by what is no ownership, and to sessions that are gone.
var transferCases = []testCase{
	{name: "transfer/mixed", needs: needTransfer, run: transferMixed},
	{name: "transfer/metadata", needs: needTransfer, run: two(func(t *storeT, a, b *node) {
		c := t.claim("a")
		c.Metadata = map[string]string{"shards": "32", "odd": "ü%/ "}
		r := a.winClaim(c, ruleFree)
		kept := a.give(r, b)
		t.check(maps.Equal(kept.Metadata, c.Metadata), ruleTransferMeta, "was %v, is %v", c.Metadata, kept.Metadata)
		a.stands(kept, ruleTransferMeta)
		for _, m := range []map[string]string{{"new": "1"}, {}} {
			move := a.taking(kept.Held())
			move.Metadata = m
			given := b.given(move, a)
			t.check(maps.Equal(given.Metadata, m), ruleTransferMeta, "given %v, is %v", m, given.Metadata)
			a.stands(given, ruleTransferMeta)
			kept = a.give(given, b)
		}
	})},
	{name: "transfer/to-expired-session", needs: needTransfer, waits: true,
		run: brief(func(t *storeT, b, a *node) {
			r := a.win("b")
			b.outlive()
			if t.opts.stall > 0 || t.opts.observed {
				t.inTime(errors.Is(b.renew().Err, store.ErrSessionGone), ruleRevive, "a renewal after expiry was granted")
			}
			out := a.transfer(b.taking(r.Held()))[0] // the first call after its end
			t.require(!out.OK && errors.Is(out.Err, store.ErrSessionGone), ruleTransferGone, "outcome %+v", out)
			a.stands(r, ruleTransferGone)
		})},
	{name: "transfer/expires-with-target", needs: needTransfer, waits: true,
		run: brief(func(t *storeT, b, a *node) {
			r := a.win("b")
			b.pass(0.5)
			a.give(r, b) // attaching renews nothing
			b.letExpire(a, "b")
		})},
	{name: "transfer/renewed-by-target", needs: needTransfer, waits: true,
		run: brief(func(t *storeT, a, other *node) {
			b := t.brief()
			r := a.give(a.own, b)
			for range 3 { // until its mover is gone
				b.pass(0.6)
				b.renewed()
			}
			b.lives(other, r, ruleTransferExpiry)
		})},
	{name: "transfer/unsupported", needs: needNoTransfer, run: held(func(t *storeT, n, b *node) {
		tr, ok := n.store.(store.Transferrer)
		if !ok {
			return
		}
		ctx, cancel := t.context()
		defer cancel()
		outs, err := tr.Transfer(ctx, []store.Transfer{b.taking(n.own.Held())})
		said := errors.Is(err, store.ErrUnsupported) || len(outs) == 1 && errors.Is(outs[0].Err, store.ErrUnsupported)
		t.check(said, ruleUnsupported, "Transfer: %+v, error %v", outs, err)
		n.stands(n.own, ruleUnsupported)
	})},
	{name: "transfer/no-gap", needs: needTransfer, run: held(transferNoGap)},
	{name: "transfer/against-close", needs: needTransfer, run: func(t *storeT) {
		// The record is the mover's or gone: it does not stand under a session that is closed.
		a := t.node()
		for range 25 {
			b := t.node()
			r := a.win("a")
			var moved store.Outcome
			t.together(2, func(i int) {
				t.pace()
				if i == 0 {
					moved = a.transfer(b.taking(r.Held()))[0]
				} else {
					b.close()
				}
			})
			if moved.OK {
				a.free("a", ruleClose)
			} else {
				a.stands(r, ruleTransferGone)
				a.freed(r)
			}
		}
	}},
}

// transferMixed: one call with moves that apply and moves that do not, each
// answered in its place.
func transferMixed(t *storeT) {
	a, b, gone := t.node(), t.node(), t.node()
	gone.close()
	w, x, y, z := a.win("w"), a.win("x"), b.win("y"), a.win("z")
	stale := x.Held()
	stale.Nonce++
	moves := []store.Transfer{b.taking(z.Held()), b.taking(stale), gone.taking(w.Held()), a.taking(y.Held())}
	moves = moves[:t.batch(a.store, len(moves))]
	want := []bool{true, false, false, true}
	for i, out := range a.transfer(moves...) {
		t.require(out.OK == want[i], ruleOrder, "move %d, of %q: %+v, want OK %v", i, moves[i].Name, out, want[i])
		t.check(errors.Is(out.Err, store.ErrSessionGone) == (i == 2), ruleTransferGone, "move %d, of %q: Err %v", i, moves[i].Name, out.Err)
		if out.OK {
			a.stands(out.Record, ruleTransfer)
		}
	}
	a.stands(w, ruleTransferGone)
	a.stands(x, ruleTransferRefused)
}

// transferNoGap passes a name to and fro while others claim it and look: no
// claim ever wins, and no read finds it free.
func transferNoGap(t *storeT, a, b *node) {
	r := a.own
	var stop atomic.Bool
	thirds := t.nodes(3)
	wait := t.background(len(thirds), func(i int) {
		for !stop.Load() && !t.Failed() {
			out := thirds[i].try("a")
			t.check(!out.OK, ruleTransferAtomic, "a third won token %d", out.Record.Token)
			t.check(len(thirds[i].get("a")) == 1, ruleTransferAtomic, "a third saw the name free")
			t.pace()
		}
	})
	const within = 300 * time.Millisecond
	for end := time.Now().Add(within); time.Now().Before(end) && !t.Failed(); {
		out := a.transfer(b.taking(r.Held()))[0]
		t.require(out.OK, ruleTransfer, "token %d, which nothing else moves, was refused: %+v", r.Token, out)
		r = out.Record
		a, b = b, a
		t.pace()
	}
	stop.Store(true)
	wait()
}

// faults is a client through which requests go astray.
func (t *storeT) faults() *faultstore.Store {
	f := faultstore.Wrap(t.client())
	t.Cleanup(f.Wait)
	return f
}

func errOf[A any](_ A, err error) error { return err }
