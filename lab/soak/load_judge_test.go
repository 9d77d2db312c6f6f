//go:build linux

package soak

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lived is a process that told what it needed every 10 s, from one second to another.
func lived(from, to int, what func(second int, w *weight)) series {
	s := series{id: "node-1"}
	for at := from; at <= to; at += 10 {
		w := weight{Goroutines: 80, Heap: 6 * mebibyte, Files: 18, Sessions: 1, Active: 200, Entries: 200}
		what(at, &w)
		s.samples = append(s.samples, sample{time.Duration(at) * time.Second, w})
	}
	return s
}

// A run of half an hour.
const halfHour, theWarmUp = 1800, 180 * time.Second

var judgedPart = span{theWarmUp, halfHour * time.Second}

// broken is what judging one series says of goroutines, heap, files and sessions.
func broken(t *testing.T, s series) (what [4]bool) {
	g := judgeGrowth([]series{s}, judgedPart, theWarmUp)
	require.Len(t, g.judged, 1)
	x := g.judged[0]
	what = [4]bool{x.goroutines(), x.heap(), x.files(), x.sessions()}
	n := 0
	for _, b := range what {
		n += count(b)
	}
	r := &report{out: &bytes.Buffer{}}
	g.print(r, []series{s})
	g.judge(r)
	require.Equal(t, n, r.broken)
	require.Equal(t, len(what)-n, r.kept)
	return what
}

func TestLeaksShowInTheSeries(t *testing.T) {
	for name, c := range map[string]struct {
		what func(second int, w *weight)
		want [4]bool
	}{
		"nothing grows":          {func(int, *weight) {}, [4]bool{}},
		"a goroutine every 30 s": {func(at int, w *weight) { w.Goroutines += at / 30 }, [4]bool{true}},
		"6 KiB of heap a second": {func(at int, w *weight) { w.Heap += uint64(at) * 6 << 10 }, [4]bool{1: true}},
		"a file every 30 s":      {func(at int, w *weight) { w.Files += at / 30 }, [4]bool{2: true}},
		"a session every 5 min":  {func(at int, w *weight) { w.Sessions += at / 300 }, [4]bool{3: true}},
		"much, while it warms up": {func(at int, w *weight) {
			w.Goroutines += min(at, 180) * 5
			w.Heap += uint64(min(at, 180)) << 20
		}, [4]bool{}},
		"peaks of what moves": {func(at int, w *weight) {
			w.Goroutines += rand.IntN(5)
			if at/10%3 == 0 {
				w.Goroutines *= 4
				w.Heap *= 4
			}
		}, [4]bool{}},
		"no leak but a step, late": {func(at int, w *weight) {
			if at > 1300 {
				w.Goroutines += 30
			}
		}, [4]bool{true}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, broken(t, lived(0, halfHour, c.what))) })
	}
}

func TestWhatAFigureMayGrow(t *testing.T) {
	at := func(first, last weight) [4]bool {
		x := grown{first: first, last: last}
		return [4]bool{x.goroutines(), x.heap(), x.files(), x.sessions()}
	}
	first := weight{Goroutines: 100, Heap: 20 * mebibyte, Files: 100, Sessions: 10}
	last := weight{Goroutines: 130, Heap: 27 * mebibyte, Files: 130, Sessions: 12}
	require.Equal(t, [4]bool{}, at(first, last))
	last = weight{Goroutines: 131, Heap: 27*mebibyte + 1, Files: 131, Sessions: 13}
	require.Equal(t, [4]bool{true, true, true, true}, at(first, last))
}

func TestWhichSeriesAreLongEnough(t *testing.T) {
	still := func(int, *weight) {}
	for name, c := range map[string]struct {
		s    series
		want int
	}{
		"the whole run":                  {lived(0, halfHour, still), 1},
		"its first two thirds":           {lived(0, 1200, still), 1},
		"its second half and some":       {lived(700, halfHour, still), 1},
		"half of it, warm-up included":   {lived(900, halfHour, still), 0},
		"a few minutes":                  {lived(300, 600, still), 0},
		"nothing":                        {series{}, 0},
		"too few samples":                {series{"x", []sample{{0, weight{}}, {theWarmUp, weight{}}, {halfHour * time.Second, weight{}}}}, 0},
		"none at the end of a short one": {lived(0, 900, still), 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, judgeGrowth([]series{c.s}, judgedPart, theWarmUp).judged, c.want)
		})
	}
	late := lived(700, halfHour, func(at int, w *weight) { w.Goroutines += at - 700 })
	g := judgeGrowth([]series{late}, judgedPart, theWarmUp)
	require.InDelta(t, 80+180+115, g.judged[0].first.Goroutines, 10, "its quarters begin after its own warm-up")
}

func TestMediansAreTakenOfEachFigure(t *testing.T) {
	m := medians([]weight{{Heap: 1, RSS: 30, Goroutines: 7, Entries: 5, Active: 4, Files: 3, Sessions: 1},
		{Heap: 9, RSS: 10, Goroutines: 8, Entries: 6, Active: 6, Files: 2, Sessions: 2},
		{Heap: 5, RSS: 20, Goroutines: 90, Entries: 4, Active: 5, Files: 1, Sessions: 9}})
	require.Equal(t, weight{Heap: 5, RSS: 20, Goroutines: 8, Entries: 5, Active: 5, Files: 2, Sessions: 2}, m)
}

func TestARunWithoutMovesOrStopsIsWorthNothing(t *testing.T) {
	require.NoError(t, worth(1, 1, 3))
	for _, err := range []error{worth(0, 1, 4), worth(1, 0, 4), worth(1, 1, 2)} {
		require.ErrorIs(t, err, errNothing)
	}
}

func TestWhomAskersAsk(t *testing.T) {
	n := &shardNode{node: node{settings: settings{Names: 2, Seed: 7}}, ids: make([]string, 1000), set: shardSettings{Idle: 2 * time.Second}}
	const rate, asks = 100, 40000
	pick, same, other := n.picker(rate, 1), n.picker(rate, 1), n.picker(rate, 2)
	var to []int
	singletons, again, due, alike := 0, 0, 0, 0
	for i := range asks {
		e := pick()
		require.Equal(t, e, same(), "the same for the same seed and asker")
		alike += count(e == other())
		switch {
		case e >= len(n.ids):
			singletons++
			require.Less(t, e, len(n.ids)+n.Names)
		case i > 0 && e == to[i-1]:
			again++
		}
		if i > 2.5*rate {
			for _, was := range to[i-250 : i-180] { // of those asked 1.8 to 2.5 s before
				if was == e && e < len(n.ids) {
					due++
					break
				}
			}
		}
		to = append(to, e)
	}
	require.InDelta(t, asks/8, singletons, asks/80)
	require.InDelta(t, asks*2/8*7/8, again, asks/25, "the last one, unless a singleton was between")
	require.Greater(t, due, asks/4*9/10)
	require.Less(t, alike, asks/20)

	n.Names = 0
	pick = n.picker(rate, 1)
	for range asks {
		require.Less(t, pick(), len(n.ids))
	}
}
