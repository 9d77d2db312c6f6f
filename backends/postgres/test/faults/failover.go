//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// fresh is how many names are acquired in the second before the primary dies.
const fresh = 100

// gap is what a fail-over is made worse by.
type gap struct {
	behind time.Duration // how far the standby's clock is
	lag    time.Duration // how long its replication takes
	cut    bool          // one of the nodes is cut off from all servers for a TTL
}

// failover kills a primary and promotes its asynchronous standby, which lacks the last of what was
// told to holders.
func failover(ctx context.Context, ttl time.Duration, g gap) (r finding, err error) {
	f := fault{prepare: func(ctx context.Context, b *bed) error {
		if err := withStandby(false)(ctx, b); err != nil {
			return err
		}
		b.standby.Replication().Delay(g.lag)
		if g.behind == 0 {
			return nil
		}
		return b.standby.SetClock(-g.behind)
	}, inflict: func(ctx context.Context, b *bed) error {
		for i := range fresh { // the last of them are lost, and are held on
			name := fmt.Sprintf("fresh/%d", i)
			b.names[name] = 0
			if err := errors.Join(b.want(name, 0), wait(ctx, 10*time.Millisecond)); err != nil {
				return err
			}
		}
		if g.cut {
			b.nodes[0].cut()
		}
		b.standby.Replication().Refuse() // what is under way is lost with its sender
		if err := b.server.Kill(); err != nil {
			return err
		}
		b.lost()
		b.returns()
		if err := b.standby.Promote(ctx); err != nil || !g.cut {
			return err
		}
		err := wait(ctx, ttl)
		b.nodes[0].heal()
		return err
	}}
	if g.behind != 0 {
		f.options = []postgrestest.Option{postgrestest.WithFaketime()}
	}
	return play(ctx, ttl, f)
}

// tallied is what many fail-overs showed.
type tallied struct {
	n, doubled, backward int
	terms, doubles       int
	robbed               int // terms that were lost as their record was gone, or another's
	longest              time.Duration
	furthest             time.Duration // tokens are microseconds
	again                []time.Duration
}

func (t *tallied) add(r finding) {
	t.n++
	t.terms += r.terms
	t.doubles += r.doubles
	t.robbed += r.robbed
	t.longest = max(t.longest, r.longest)
	t.furthest = max(t.furthest, time.Duration(r.furthest)*time.Microsecond)
	t.again = append(t.again, r.heldAgain)
	if r.doubles > 0 {
		t.doubled++
	}
	if r.backward > 0 {
		t.backward++
	}
}

func (t *tallied) String() string {
	slices.Sort(t.again)
	return fmt.Sprintf("%d fail-overs: %d of %d terms were lost with what the standby lacked; two believed in a name in %d fail-overs (%d terms, for %v at most); tokens went back in %d, by %v at most; "+
		"all held again after %v (median), %v at most", t.n, t.robbed, t.terms, t.doubled, t.doubles, round(t.longest), t.backward, round(t.furthest),
		round(t.again[len(t.again)/2]), round(t.again[len(t.again)-1]))
}

func measureFailovers(ctx context.Context, ttl time.Duration, n int, g gap) error {
	var all tallied
	for i := range n {
		r, err := failover(ctx, ttl, g)
		if err != nil {
			return errors.Join(fmt.Errorf("fail-over %d: %w", i+1, err))
		}
		all.add(r)
		fmt.Printf("%d: %s; %s\n", i+1, r.verdict, r.recovery())
	}
	fmt.Printf("TTL %v, the standby's clock %v behind, replication %v behind, one node cut off: %t: %s\n", ttl, g.behind, g.lag, g.cut, &all)
	return nil
}
