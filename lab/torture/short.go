//go:build linux

package torture

import (
	"context"
	"errors"
	"io"
	"time"
)

// Short tortures a store for some 15 s, with three nodes, for a test, whose TestMain must give way
// to the nodes (Spawned). The report goes to out. An error means that it could not judge.
func Short(ctx context.Context, store Store, out io.Writer) ([]Violation, error) {
	j, err := play(ctx, store, options{length: time.Second, seed: 3, nodes: 3, ttl: 2 * time.Second, rate: 20, storm: 4 * time.Second, faults: 5}, out)
	if err != nil {
		return nil, err
	}
	var all []Violation
	for _, v := range j.violations {
		all = append(all, Violation{v.rule, v.text, v.rule == ruleI7 || v.rule == ruleDeparted})
	}
	return all, nil
}

// Planted tortures nodes that trust a slow clock, and write without a condition: what they do when
// they are cut off from the store must be found. A stale write must meet a newer one for the
// journal to show it: if it found none of something, try it once more. It needs a store with
// Addresses.
func Planted(ctx context.Context, store Store, out io.Writer) (found Found, err error) {
	t, err := newTorture(ctx, store, options{length: time.Second, nodes: 2, ttl: 2 * time.Second, rate: 100, broken: true}, out)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.heal(ctx, 0); err != nil {
		return found, err
	}
	cut := fault{Kind: cutRequests, Name: t.plan.name(cutRequests), For: 6 * time.Second}
	second := cut
	second.Node, second.After = 1, 7*time.Second
	if err := t.weather(ctx, 1, []fault{cut, second}); err != nil {
		return found, err
	}
	es, err := t.evidence()
	if err != nil {
		return found, err
	}
	rs, hs, err := t.history(ctx)
	if err != nil {
		return found, err
	}
	j := judge(t.bring(es, nil, nil, rs, hs))
	for _, v := range j.violations {
		switch v.rule {
		case ruleI1:
			found.Overlaps++
		case ruleI3:
			found.Late++
		case ruleFence:
			found.Stale++
		}
	}
	return found, nil
}
