//go:build linux

package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/test/cluster"
)

func TestASeedIsASequenceOfFaults(t *testing.T) {
	draw := func(seed uint64) (rs []round) {
		p := newPlan(seed, 4, 2*time.Second, 12*time.Second, 14, true)
		for range 50 {
			rs = append(rs, p.next())
		}
		return rs
	}
	require.Equal(t, draw(7), draw(7))
	require.NotEqual(t, draw(7), draw(8))
}

func TestEveryKindIsDrawnAndNoTargetTwiceAtATime(t *testing.T) {
	p := newPlan(1, 4, 2*time.Second, 12*time.Second, 14, true)
	kinds := map[faultKind]int{}
	for range 100 {
		r := p.next()
		busy := map[string]time.Duration{}
		for _, f := range r.Storm {
			kinds[f.Kind]++
			require.Less(t, f.After, 12*time.Second)
			for _, on := range f.targets() {
				require.GreaterOrEqual(t, f.After, busy[on], "%v", r)
				busy[on] = f.After + f.For
			}
			switch f.Kind {
			case cutPair, cutOneWay, delayLink, throttleLink, stallLink:
				require.NotEqual(t, f.Node, f.Other)
			}
		}
		require.NotEmpty(t, r.Calm)
		for _, f := range r.Calm {
			require.True(t, f.Kind.planned())
		}
	}
	for k := range faultKinds {
		require.NotZero(t, kinds[k], k.String())
	}
}

func TestLinksAreSlowedDownWithinBounds(t *testing.T) {
	p := newPlan(2, 4, 2*time.Second, 12*time.Second, 14, true)
	for range 1000 {
		d := p.draw(delayLink)
		require.Equal(t, cluster.Shape{Delay: 50 * time.Millisecond, Jitter: d.Shape.Jitter}, d.Shape)
		require.LessOrEqual(t, d.Shape.Jitter, 250*time.Millisecond)
		r := p.draw(throttleLink)
		require.Equal(t, cluster.Shape{Rate: r.Shape.Rate}, r.Shape)
		require.GreaterOrEqual(t, r.Shape.Rate, 50_000)
		require.LessOrEqual(t, r.Shape.Rate, 1_000_000)
		s := p.draw(stallLink)
		require.Equal(t, cluster.Shape{Stall: true}, s.Shape)
		require.LessOrEqual(t, s.For, 8*time.Second)
	}
}

func TestLinksThatHaveNoShapeAreSpared(t *testing.T) {
	p := newPlan(3, 4, 2*time.Second, 12*time.Second, 14, false)
	for range 100 {
		for _, f := range p.next().Storm {
			require.Zero(t, f.Shape, "%v", f)
		}
	}
}
