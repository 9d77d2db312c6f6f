//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASeedIsASequenceOfFaults(t *testing.T) {
	draw := func(seed uint64) (rs []round) {
		p := newPlan(seed, 4, 2*time.Second, 12*time.Second, 14)
		for range 50 {
			rs = append(rs, p.next())
		}
		return rs
	}
	require.Equal(t, draw(7), draw(7))
	require.NotEqual(t, draw(7), draw(8))
}

func TestEveryKindIsDrawnAndNoTargetTwiceAtATime(t *testing.T) {
	p := newPlan(1, 4, 2*time.Second, 12*time.Second, 14)
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
			if f.Kind == cutPair || f.Kind == cutOneWay {
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
