package leasetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/lease"
)

// Claims that are won only while another ownership stands: leases under leases.
var whileCases = []testCase{
	{name: "while/stands", needs: needWhile, run: whileStands},
	{name: "while/gone", needs: needWhile, run: whileGone},
	{name: "while/superseding", needs: needWhile, run: whileSuperseding},
	{name: "while/transferred", needs: needWhile | needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		was := a.win("w/parent")
		now := a.give(was, b)
		a.orphaned(a.under("w/child", was))
		b.freed(b.winClaim(b.under("w/child", now), ruleWhile))
	}},
	{name: "while/closed", needs: needWhile, run: func(t *T) {
		a, b := t.node(), t.node()
		was := a.win("w/parent")
		b.freed(b.winClaim(b.under("w/child", was), ruleWhile))
		a.close()
		b.orphaned(b.under("w/child", was))
	}},
	{name: "while/expired", needs: needWhile, waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		was := n.win("w/parent")
		n.letExpire(other, "w/parent")
		other.orphaned(other.under("w/child", was))
	}},
	{name: "while/in-a-batch", needs: needWhile, run: whileBatch},
	{name: "while/as-it-goes", needs: needWhile, run: whileGoing},
	{name: "while/invalid", needs: needWhile, run: func(t *T) {
		n := t.node()
		p := n.win("w/parent")
		for i, on := range []lease.Held{
			{Name: "w/child", Token: p.Token, Nonce: p.Nonce}, {Name: p.Name, Nonce: p.Nonce}, {Token: p.Token, Nonce: p.Nonce},
			{Name: "/", Token: p.Token}, {Name: "\xff", Token: p.Token},
		} {
			c := t.claim("w/child")
			c.While = on
			ctx, cancel := t.context()
			outs, err := n.acquireCtx(ctx, c)
			cancel()
			t.require(err == nil && !outs[0].OK && errors.Is(outs[0].Err, lease.ErrInvalid), ruleInvalid, "condition %d, %+v: %+v, error %v", i, on, outs, err)
			n.free("w/child", ruleInvalid)
		}
	}},
	{name: "while/unsupported", needs: needNoWhile, run: func(t *T) {
		n := t.node()
		c := n.under("w/child", n.win("w/parent"))
		ctx, cancel := t.context()
		defer cancel()
		outs, err := n.acquireCtx(ctx, c)
		t.require(err == nil && !outs[0].OK && errors.Is(outs[0].Err, lease.ErrUnsupported), ruleUnsupported, "a claim with a While: %+v, error %v", outs, err)
		n.free("w/child", ruleUnsupported)
	}},
}

// under is a claim of name while r stands.
func (n *node) under(name string, r lease.Record) lease.Claim {
	c := n.t.claim(name)
	c.While = r.Held()
	return c
}

// orphaned sends a claim whose While does not stand. It is fatal.
func (n *node) orphaned(c lease.Claim) {
	n.t.Helper()
	before, held := n.get(c.Name)[c.Name]
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := n.acquireCtx(ctx, c)
	n.t.require(err == nil, ruleWhile, "a claim of %q while %+v: error %v", c.Name, c.While, err)
	n.t.require(!outs[0].OK && errors.Is(outs[0].Err, lease.ErrParentLost), ruleWhile, "a claim of %q while %+v: %+v", c.Name, c.While, outs[0])
	if held {
		n.stands(before, ruleWhile)
	} else {
		n.free(c.Name, ruleWhile)
	}
}

func whileStands(t *T) {
	a, b := t.node(), t.node()
	p := a.win("w/parent")
	own := a.winClaim(a.under("w/own", p), ruleWhile)
	theirs := b.winClaim(b.under("w/theirs", p), ruleWhile) // whosever it is
	third := b.winClaim(b.under("w/third", own), ruleWhile)
	b.refused(b.under("w/own", p), own, ruleHeld)
	a.freed(p)
	for _, r := range []lease.Record{own, theirs, third} { // what was won stays, and lives on
		b.stands(r, ruleWhileStays)
	}
	a.renew()
	b.freed(b.winClaim(b.under("w/again", theirs), ruleWhile))
	again := a.winClaim(t.supersede(own), ruleSupersede) // the next claim has a condition of its own, or none
	b.freed(again)
}

func whileGone(t *T) {
	a, b := t.node(), t.node()
	p := a.win("w/parent")
	beside := b.win("w/beside")
	for _, h := range []lease.Held{
		{Name: "w/none", Token: p.Token, Nonce: p.Nonce},
		{Name: p.Name, Token: p.Token + 1, Nonce: p.Nonce},
		{Name: p.Name, Token: p.Token, Nonce: p.Nonce + 1},
		{Name: p.Name, Token: p.Token, Nonce: p.Nonce - 1},
		{Name: p.Name, Token: beside.Token, Nonce: beside.Nonce},
		{Name: "w/parent/", Token: p.Token, Nonce: p.Nonce}, // refused as no name at all
		{Name: "W/parent", Token: p.Token, Nonce: p.Nonce},
	} {
		for _, name := range []string{"w/free", "w/beside"} {
			c := t.claim(name)
			if c.While = h; lease.ValidateClaim(c) == nil {
				a.orphaned(c)
			}
		}
	}
	next := a.winClaim(t.supersede(p), ruleSupersede)
	a.orphaned(a.under("w/child", p))
	a.freed(a.winClaim(a.under("w/child", next), ruleWhile))
	a.freed(next)
	a.orphaned(a.under("w/child", next))
	same := t.claim(p.Name) // another's, with the nonce of the first
	same.Nonce = p.Nonce
	last := b.winClaim(same, ruleFree)
	a.orphaned(a.under("w/child", p))
	a.freed(a.winClaim(a.under("w/child", last), ruleWhile))
	a.freed(a.win("w/child"))
}

func whileSuperseding(t *T) {
	a, b := t.node(), t.node()
	sibling := a.again()
	p := a.win("w/parent")
	child := a.winClaim(a.under("w/child", p), ruleWhile)
	for _, n := range []*node{a, sibling, a} { // under the session of what stands, and under another
		c := n.under("w/child", p)
		c.Supersedes = child.Token
		child = n.winClaim(c, ruleSupersede)
	}
	wrong := a.under("w/child", p)
	wrong.Supersedes = child.Token + 1
	a.refused(wrong, child, ruleSupersedeBy)
	theirs := b.under("w/child", p)
	theirs.Supersedes = child.Token
	b.refused(theirs, child, ruleSupersedeOf)
	a.freed(p)
	for _, n := range []*node{a, sibling, b} {
		c := n.under("w/child", p)
		c.Supersedes = child.Token
		n.orphaned(c)
	}
	a.freed(child)
	c := a.under("w/child", p)
	c.Supersedes = child.Token // nothing stands any more
	a.orphaned(c)
}

func whileBatch(t *T) {
	a, b := t.node(), t.node()
	p, q := a.win("w/p"), b.win("w/q")
	gone := b.win("w/gone")
	b.freed(gone)
	held := b.win("w/held")
	claims := []lease.Claim{
		t.claim("w/1"), a.under("w/2", p), a.under("w/3", gone), a.under("w/held", p), a.under("w/5", q), a.under("w/held", gone), t.claim("w/7"),
	}
	claims = claims[:t.batch(a.store, len(claims))]
	ctx, cancel := t.context()
	outs, err := a.acquireCtx(ctx, claims...)
	cancel()
	t.require(err == nil, ruleWhile, "a batch with a claim whose While does not stand: %v", err)
	for i, out := range outs {
		switch c := claims[i]; {
		case c.While == gone.Held():
			t.require(!out.OK && errors.Is(out.Err, lease.ErrParentLost), ruleWhile, "claim %d of %q: %+v", i, c.Name, out)
		case c.Name == held.Name:
			t.require(!out.OK && out.Err == nil, ruleHeld, "claim %d of %q: %+v", i, c.Name, out)
			t.sameRecord(out.Record, held, ruleHolder)
		default:
			t.require(out.OK, ruleWhile, "claim %d of %q: %+v", i, c.Name, out)
		}
	}
	b.free("w/3", ruleWhile)
}

// whileGoing claims while the parent is being released. Who then saw the child's name free
// has seen all that was won before.
func whileGoing(t *T) {
	a, b := t.node(), t.node()
	for i := range 40 {
		p := a.win(fmt.Sprintf("w/parent/%d", i))
		child := fmt.Sprintf("w/child/%d", i)
		var free atomic.Bool
		var out lease.Outcome
		var wg sync.WaitGroup
		wg.Go(func() {
			t.pace()
			ctx, cancel := t.context()
			defer cancel()
			if _, err := t.releaseCtx(ctx, a.store, p.Held()); err != nil {
				t.Errorf("Release: %v", err)
				return
			}
			found, err := t.getCtx(ctx, a.store, child)
			free.Store(err == nil && len(found) == 0)
		})
		wg.Go(func() {
			t.pace()
			ctx, cancel := t.context()
			defer cancel()
			outs, err := b.acquireCtx(ctx, b.under(child, p))
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			out = outs[0]
		})
		wg.Wait()
		t.require(!out.OK || !free.Load(), ruleWhile, "%q was won after %q was released, and the name was seen free", child, p.Name)
		t.require(out.OK || errors.Is(out.Err, lease.ErrParentLost) || t.Failed(), ruleWhile, "%q, while %q is released: %+v", child, p.Name, out)
	}
}
