package leasetest

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/lease"
)

var parentCases = []testCase{
	{name: "keeper/parent", needs: needWhile, run: keeperParent},
}

// plain is a store that tells nothing, so that an engine over it finds out by asking.
type plain struct{ lease.Store }

func (p plain) Limits() lease.StoreLimits {
	l, _ := p.Store.(lease.Limiter)
	return l.Limits()
}

// keeperParent takes a parent's record away behind its Keeper's back: the store alone knows.
func keeperParent(t *T) {
	other := t.node()
	k := t.keeper(plain{other.store})
	parent := t.handle(k, "k/parent")
	child, err := k.Lease("k/child", lease.WithParent(parent))
	if err != nil {
		t.Fatalf("Lease under a parent: %v", err)
	}
	ctx, cancel := t.context()
	defer cancel()
	won, err := child.Acquire(ctx)
	t.require(!won && errors.Is(err, lease.ErrParentLost), ruleKeeper, "acquired before its parent: %v, error %v", won, err)
	t.wins(parent, ruleFree)
	term := t.wins(child, ruleWhile)
	released := make(chan error, 1)
	go func() { released <- parent.Release(ctx) }()
	<-term.Context().Done()
	t.check(!term.CheckAlive() && errors.Is(context.Cause(term.Context()), lease.ErrParentLost), ruleKeeper, "after its parent's release: alive %v, %v", term.CheckAlive(), context.Cause(term.Context()))
	t.check(other.get(parent.Name())[parent.Name()].Name != "", ruleKeeper, "its parent was given up before it")
	t.releases(child)
	err = <-released
	t.unknown(err)
	t.check(err == nil, ruleKeeper, "its parent was not given up after it: %v", err)

	above := t.wins(parent, ruleFree)
	other.freed(other.get(parent.Name())[parent.Name()])
	won, err = child.Acquire(ctx)
	if !above.CheckAlive() {
		t.noVerdict("the parent was found out about before it was claimed under")
	}
	t.unknown(err)
	t.require(!won && errors.Is(err, lease.ErrParentLost), ruleKeeper, "acquired while the parent's record is gone: %v, error %v", won, err)
	other.free(child.Name(), ruleKeeper)
}
