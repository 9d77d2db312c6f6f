//go:build linux

package nodes

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/sharding"
)

// lived is a process that told what it needed every 10 s, from one second to another.
func lived(from, to int, what func(second int, w *weight)) series {
	s := series{id: "node-1"}
	for at := from; at <= to; at += 10 {
		w := weight{Goroutines: 80, Heap: 6 * mebibyte, Files: 18, Sessions: 1}
		what(at, &w)
		s.samples = append(s.samples, sample{time.Duration(at) * time.Second, w})
	}
	return s
}

// A run of half an hour.
const halfHour, theWarmUp = 1800, 180 * time.Second

var judgedPart = span{theWarmUp, halfHour * time.Second}

func TestLeaksShowInTheSeries(t *testing.T) {
	for name, c := range map[string]struct {
		what func(second int, w *weight)
		want string // what grows
	}{
		"nothing grows":          {func(int, *weight) {}, ""},
		"a goroutine every 30 s": {func(at int, w *weight) { w.Goroutines += at / 30 }, "goroutines"},
		"6 KiB of heap a second": {func(at int, w *weight) { w.Heap += uint64(at) * 6 << 10 }, "MiB of heap"},
		"a file every 30 s":      {func(at int, w *weight) { w.Files += at / 30 }, "open files"},
		"a session every 5 min":  {func(at int, w *weight) { w.Sessions += at / 300 }, "sessions"},
		"much, while it warms up": {func(at int, w *weight) {
			w.Goroutines += min(at, 180) * 5
			w.Heap += uint64(min(at, 180)) << 20
		}, ""},
		"peaks of what moves": {func(at int, w *weight) {
			w.Goroutines += rand.IntN(5)
			if at/10%3 == 0 {
				w.Goroutines *= 4
				w.Heap *= 4
			}
		}, ""},
		"no leak but a step, late": {func(at int, w *weight) {
			if at > 1300 {
				w.Goroutines += 30
			}
		}, "goroutines"},
	} {
		t.Run(name, func(t *testing.T) {
			g := judgeGrowth([]series{lived(0, halfHour, c.what)}, judgedPart, theWarmUp)
			require.Len(t, g, 1)
			r := &scene.Run{Out: &bytes.Buffer{}}
			holdGrowth(r, g)
			if c.want == "" {
				require.Empty(t, r.Violations())
				return
			}
			require.Len(t, r.Violations(), 1)
			require.Contains(t, r.Violations()[0], c.want)
		})
	}
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
		require.Len(t, judgeGrowth([]series{c.s}, judgedPart, theWarmUp), c.want, name)
	}
	late := lived(700, halfHour, func(at int, w *weight) { w.Goroutines += at - 700 })
	g := judgeGrowth([]series{late}, judgedPart, theWarmUp)
	require.InDelta(t, 80+180+115, g[0].medians[0][0], 10, "its quarters begin after its own warm-up")
}

func TestExistencesAreJudged(t *testing.T) {
	own := sharding.ShardOf(accountID(7), 8)
	note := func(node int, at time.Duration, k kind) seen {
		return seen{entry{at: at, kind: k, target: 7, name: uint16(own)}, node, 0}
	}
	first := []seen{note(0, 1, began), note(0, 5, ended), note(0, 6, began)}
	dead := map[[2]int]time.Duration{{0, 0}: 9}
	require.Equal(t, []existence{{7, own, span{1, 5}}, {7, own, span{6, 9}}}, existences(first, dead))
	require.Zero(t, twice(existences(append(first, note(1, 9, began)), dead)))
	require.Equal(t, 1, twice(existences(append(first, note(1, 8, began)), dead)), "before the process had died")
	require.Equal(t, 1, twice(existences([]seen{note(0, 1, began), note(1, 8, began)}, nil)))

	all := existences(first, dead)
	require.Zero(t, elsewhere(all, []epoch{{8, span{0, 10}}}))
	all[0].shard = (own + 1) % 8
	require.Equal(t, 1, elsewhere(all, []epoch{{8, span{0, 10}}}))
	require.Zero(t, elsewhere(all, []epoch{{8, span{5, 10}}}))
}

// at is something that happened to letter seq of a sender on a node, at so many milliseconds.
func at(when int, k kind, node int, seq uint64, x entry) seen {
	x.at, x.kind, x.sender, x.seq = time.Duration(when)*ms, k, senderOf(node, 0, 0), seq
	x.sent *= ms
	return seen{entry: x}
}

func TestAnswersAndWays(t *testing.T) {
	es := []seen{at(1, asked, 0, 1, entry{}), at(2, handled, 0, 1, entry{sent: 1}), at(3, answered, 0, 1, entry{sent: 1}),
		at(4, asked, 0, 2, entry{}), at(5, asked, 0, 3, entry{}), at(9, handled, 0, 2, entry{sent: 4}), at(11, answered, 0, 2, entry{sent: 4})}
	require.Equal(t, []time.Duration{2 * ms}, answers(es, span{0, 2 * ms}))
	require.Equal(t, []time.Duration{7 * ms, 2 * answerWithin}, answers(es, span{2 * ms, 99 * ms}), "one has none")
	require.Equal(t, []time.Duration{1 * ms, 5 * ms}, transit(es, span{0, 99 * ms}))
	require.Equal(t, []span{{0, 3}, {5, 7}, {8, 9}}, between(span{0, 9}, []span{{3, 5}, {7, 8}}))
}

func TestSilencesOfMoves(t *testing.T) {
	es := []seen{at(1, handled, 0, 1, entry{token: 7}), at(2, handled, 1, 1, entry{token: 7}), at(9, handled, 0, 2, entry{token: 8}), at(30, handled, 0, 3, entry{token: 9})}
	other := at(3, handled, 0, 9, entry{token: 4, name: 1})
	es = append(es, other)
	require.Equal(t, []time.Duration{7 * ms}, gaps(es[:4], []span{{2 * ms, 20 * ms}}))
	require.Equal(t, []time.Duration{7 * ms, 21 * ms}, gaps(es[:4], []span{{2 * ms, 40 * ms}}))
	require.Empty(t, gaps(es, nil))
	require.ElementsMatch(t, []time.Duration{21 * ms, 38 * ms}, silences(es[:4], []span{{3 * ms, 40 * ms}}), "of node 0, and of node 1, which is not heard again")
}

func TestColdStartsAreHeldToTheirEvents(t *testing.T) {
	note := func(when int, k kind, target uint16, seq uint64) seen {
		return seen{entry: entry{at: time.Duration(when), kind: k, target: target, token: 5, seq: seq}}
	}
	for name, c := range map[string]struct {
		es   []seen
		want int
	}{
		"with its state":            {[]seen{note(2, began, 1, 0), note(2, gotState, 1, 3)}, 0},
		"without, and told":         {[]seen{note(2, began, 1, 0), note(3, coldStart, 1, 0)}, 0},
		"without, told by number":   {[]seen{note(2, began, 1, 0), note(3, coldStart, 0, 1)}, 0},
		"without, and untold":       {[]seen{note(2, began, 1, 0)}, 1},
		"before":                    {[]seen{note(0, began, 1, 0)}, 0},
		"with its state, told cold": {[]seen{note(2, began, 1, 0), note(2, gotState, 1, 3), note(3, coldStart, 1, 0)}, 1},
	} {
		r := &scene.Run{Out: &bytes.Buffer{}}
		cold(r, "", 1, c.es)
		require.Len(t, r.Violations(), c.want, name)
	}
}

func TestLossesMustBeCounted(t *testing.T) {
	for counted, want := range map[int64]int{0: 1, 1: 0} {
		ev := sound()
		for i, e := range ev.entries {
			if e.kind == handled && e.seq == 2 {
				ev.entries = append(ev.entries[:i:i], ev.entries[i+1:]...)
				break
			}
		}
		ev.loose, ev.counted, ev.whole = true, counted, true
		require.Len(t, judge(ev).violations, want)
	}
	ev := sound()
	ev.whole = true
	ev.entries = append(ev.entries, seen{entry{at: 600 * ms, kind: handled, name: 0, token: 8, sender: 3, seq: 9}, 1, 0})
	require.Equal(t, ruleUnknown, judge(ev).violations[0].rule)
}

func TestTheViewFollowsTheHosts(t *testing.T) {
	c := &crew{view: newView(), settings: settings{Names: names{Shards: 2}}, slots: []*slot{{index: 0}, {index: 1}}}
	for _, s := range c.slots {
		j, err := machine.MakeJournal[entry](t.TempDir()+"/journal", 10)
		require.NoError(t, err)
		defer j.Close()
		s.book = j
	}
	note := func(node int, when time.Duration, k kind, shard uint16, token uint64) {
		c.slots[node].book.Note(entry{at: when, kind: k, name: shard, token: token})
	}
	note(0, 1, hosted, 0, 11)
	has, since := c.hosts()
	require.Equal(t, []int{1, 0}, has)
	require.Zero(t, since, "one is not hosted")
	note(0, 2, hosted, 1, 12)
	_, since = c.hosts()
	require.EqualValues(t, 2, since)
	note(1, 5, hosted, 1, 13) // the old host says so a moment later
	note(0, 6, unhosted, 1, 12)
	has, since = c.hosts()
	require.Equal(t, []int{1, 1}, has)
	require.EqualValues(t, 5, since)
	require.True(t, even(has, c.settings.Names, []int{0, 1}))
	require.False(t, even(has, c.settings.Names, []int{0}))
	note(1, 7, coordinating, 0, 20)
	note(0, 8, coordinating, 0, 19)
	c.look(func(v *view) {
		require.Equal(t, 1, v.boss.node)
		v.died(1, 0)
	})
	has, since = c.hosts()
	require.Equal(t, []int{1, 0}, has)
	require.Zero(t, since)
}

func TestLettersTravel(t *testing.T) {
	var to letter
	data, err := codec("").Marshal(&letter{1, 2, 3, 4, 5, 6})
	require.NoError(t, err)
	require.NoError(t, codec("").Unmarshal(data, &to))
	require.Equal(t, letter{1, 2, 3, 4, 5, 6}, to)
	require.Error(t, codec("").Unmarshal(data[:33], &to))
	var back receipt
	data, err = codec("").Marshal(&receipt{1, 2, 3})
	require.NoError(t, err)
	require.NoError(t, codec("").Unmarshal(data, &back))
	require.Equal(t, receipt{1, 2, 3}, back)
	require.Error(t, codec("").Unmarshal(data[1:], &back))
}

func TestEveryShardHasItsAccounts(t *testing.T) {
	n := names{Singletons: 2, Shards: 16, Each: 3}
	ids := n.accounts()
	require.Len(t, ids, 48)
	for i, id := range ids {
		require.Equal(t, 2+sharding.ShardOf(id, 16), n.of(2+i))
	}
	n = names{Shards: 8, Accounts: 20}
	require.Equal(t, sharding.ShardOf(accountID(7), 8), n.of(7))
	known := map[uint32]bool{}
	for life := range 3 {
		for node := range maxNodes {
			for k := range senders {
				s := senderOf(node, life, k)
				require.Equal(t, node, nodeOf(s))
				require.Equal(t, k == 0, asks(s))
				known[s] = true
			}
		}
	}
	require.Len(t, known, 3*maxNodes*senders)
}
