//go:build linux

package nodes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/machine"
)

func sizes() options {
	return options{nodes: 4, ttl: 2 * time.Second, storm: 12 * time.Second, faults: 14}
}

func kindNamed(p *plan, name string) *faultKind {
	return p.kinds[slices.IndexFunc(p.kinds, func(k *faultKind) bool { return k.name == name })]
}

var someTroubles = []Trouble{{Name: "stop of a server", Weight: 3, Least: 0.5, Most: 3}, {Name: "kill of a server", Weight: 1, Least: 0.1, Most: 1}}

func TestASeedIsASequenceOfFaults(t *testing.T) {
	draw := func(seed uint64) (rs []round) {
		p := newPlan(sizes(), seed, true, true, someTroubles)
		for range 50 {
			rs = append(rs, p.next())
		}
		return rs
	}
	first := fmt.Sprint(draw(7))
	require.True(t, first == fmt.Sprint(draw(7)))
	require.True(t, first != fmt.Sprint(draw(8)))
}

func TestEveryKindIsDrawnAndNoTargetTwiceAtATime(t *testing.T) {
	p := newPlan(sizes(), 1, true, true, someTroubles)
	kinds := map[string]int{}
	for range 100 {
		r := p.next()
		busy := map[string]time.Duration{}
		for _, f := range r.Storm {
			kinds[f.kind.name]++
			require.Less(t, f.After, 12*time.Second)
			on := f.target()
			if f.kind.on == theStore {
				on = "store"
			}
			require.GreaterOrEqual(t, f.After, busy[on], "%v", r)
			busy[on] = f.After + f.For
			require.NotEqual(t, f.Node, f.Other)
		}
		require.NotEmpty(t, r.Calm)
		for _, f := range r.Calm {
			require.True(t, f.kind.planned && f.Calm)
		}
	}
	require.Len(t, p.kinds, len(faultKinds)-1+len(someTroubles), "but cutFile")
	for _, k := range p.kinds {
		require.NotZero(t, kinds[k.name], k.name)
	}
}

func TestLinksAreSlowedDownWithinBounds(t *testing.T) {
	p := newPlan(sizes(), 2, true, true, someTroubles)
	for range 1000 {
		d, r, s := p.draw(kindNamed(p, "one direction between two nodes delayed")), p.draw(kindNamed(p, "one direction between two nodes throttled")),
			p.draw(kindNamed(p, "two nodes cut off from each other"))
		require.Equal(t, machine.Shape{Delay: 50 * time.Millisecond, Jitter: d.Shape.Jitter}, d.Shape)
		require.LessOrEqual(t, d.Shape.Jitter, 250*time.Millisecond)
		require.Equal(t, machine.Shape{Rate: r.Shape.Rate}, r.Shape)
		require.GreaterOrEqual(t, r.Shape.Rate, 50_000)
		require.LessOrEqual(t, r.Shape.Rate, 1_000_000)
		require.Equal(t, machine.Shape{Stall: true}, s.Shape)
		require.LessOrEqual(t, s.For, 8*time.Second)
	}
}

func TestLinksThatHaveNoShapeAreSpared(t *testing.T) {
	p := newPlan(sizes(), 3, false, true, someTroubles)
	for range 100 {
		for _, f := range p.next().Storm {
			require.Equal(t, machine.Shape{Stall: f.Shape.Stall}, f.Shape, "%v", f)
		}
	}
}

// A store without servers has no troubles, and no way to it is cut.
func TestAStoreWithoutServersIsSpared(t *testing.T) {
	p := newPlan(sizes(), 4, true, false, nil)
	for range 200 {
		for _, f := range p.next().Storm {
			require.NotEqual(t, theStore, f.kind.on)
			require.True(t, f.kind.on != aWay || f.kind == cutFile)
		}
	}
}

func TestTroublesLastAsLongAsTheyMay(t *testing.T) {
	p := newPlan(sizes(), 5, true, true, someTroubles)
	picks := map[uint64]bool{}
	for range 100 {
		f := p.draw(kindNamed(p, "kill of a server"))
		require.GreaterOrEqual(t, f.For, 200*time.Millisecond)
		require.LessOrEqual(t, f.For, 2*time.Second)
		picks[f.Pick] = true
	}
	require.Len(t, picks, 100)
}
