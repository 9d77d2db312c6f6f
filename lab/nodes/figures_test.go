//go:build linux

package nodes

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/sharding"
)

// lived is a process that told what it needed every 10 s, from one second to another.
func lived(from, to int, what func(second int, w *weight)) (s series) {
	for at := from; at <= to; at += 10 {
		w := weight{Goroutines: 80, Heap: 6 * mebibyte, Files: 18, Sessions: 1}
		what(at, &w)
		s = append(s, sample{time.Duration(at) * time.Second, w})
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
			g := judgeGrowth(map[string]series{"node-1": lived(0, halfHour, c.what)}, judgedPart, theWarmUp)
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
		"too few samples":                {series{{0, weight{}}, {theWarmUp, weight{}}, {halfHour * time.Second, weight{}}}, 0},
		"none at the end of a short one": {lived(0, 900, still), 0},
	} {
		require.Len(t, judgeGrowth(map[string]series{"node-1": c.s}, judgedPart, theWarmUp), c.want, name)
	}
	late := lived(700, halfHour, func(at int, w *weight) { w.Goroutines += at - 700 })
	g := judgeGrowth(map[string]series{"node-1": late}, judgedPart, theWarmUp)
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
		j := machine.MakeJournal[entry](t.TempDir()+"/journal", 10)
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

// Node 1 hosts name 0, and is killed at 10 s, and again at 20 s, when it hosts nothing. Node 2 takes over at 14 s.
// Node 0 hosts name 1 all the time.
func TestHowAsksEnd(t *testing.T) {
	const calm, struck, hung = "planned moves only", "after a kill", "by their own time, or never"
	type ask struct {
		from, to float64 // in seconds; 0: never
		end      kind
		name     uint16
		asker    int
	}
	for what, c := range map[string]struct {
		ask
		want string
	}{
		"answered":                     {ask{1, 1.01, answered, 0, 0}, ""},
		"answered late":                {ask{1, 6.5, answered, 0, 0}, calm},
		"under way, told at once":      {ask{9.99, 10.1, failed, 0, 0}, ""},
		"under way, told late":         {ask{9.99, 11.5, failed, 0, 0}, struck},
		"waited for the next host":     {ask{10.5, 14.5, answered, 0, 0}, ""},
		"waited for longer":            {ask{10.5, 15.5, answered, 0, 0}, struck},
		"gave up while it waited":      {ask{10.5, 12, failed, 0, 0}, struck},
		"waited for a host that lives": {ask{10.5, 16, answered, 1, 0}, calm},
		"told of the next kill":        {ask{9.99, 20.01, failed, 0, 0}, calm},
		"by its own time":              {ask{19.99, 50, failed, 0, 0}, hung},
		"never":                        {ask{25, 0, 0, 0, 0}, hung},
		"never, as its asker died":     {ask{9.99, 0, 0, 0, 1}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			at := func(second float64) time.Duration { return time.Duration(second * float64(time.Second)) }
			es := []seen{{entry{kind: hosted, token: 1}, 1, 0}, {entry{kind: hosted, name: 1, token: 2}, 0, 0}, {entry{at: at(14), kind: hosted, token: 3}, 2, 0}}
			for seq, a := range []ask{c.ask, {2, 2.1, answered, 1, 2}, {9.99, 10.1, answered, 1, 2}, {25, 25.1, answered, 1, 2}} {
				e := entry{at: at(a.from), kind: asked, sender: senderOf(a.asker, 0, 0), name: a.name, target: a.name, seq: uint64(seq)}
				if es = append(es, seen{e, a.asker, 0}); a.to > 0 {
					e.at, e.sent, e.kind = at(a.to), e.at, a.end
					es = append(es, seen{e, a.asker, 0})
				}
			}
			slices.SortStableFunc(es, func(a, b seen) int { return cmp.Compare(a.at, b.at) })
			r := &scene.Run{Out: &bytes.Buffer{}}
			x := &moving{moves: moves{within: 30 * time.Second}, crew: &crew{Run: r}, kills: []killed{{at(10), 1, 0}, {at(20), 1, 1}}}
			x.ends(es, &judgement{})
			if c.want == "" {
				require.Empty(t, r.Violations())
				return
			}
			require.Len(t, r.Violations(), 1)
			require.Contains(t, r.Violations()[0], c.want)
		})
	}
}

func TestTheLedgerIsJudged(t *testing.T) {
	const a, b = uint32(1), uint32(2) // clients
	at := func(target, place int, p page) page { p.Name, p.Place = target, place; return p }
	job := func(target, place int, client uint32, seq uint64, amount, balance int64, done map[uint32]uint64) page {
		return at(target, place, page{Sender: client, Seq: seq, Amount: amount, Balance: balance, Done: done})
	}
	note := func(k kind, client uint32, target uint16, seq uint64) seen {
		return seen{entry: entry{kind: k, sender: client, target: target, seq: seq}}
	}
	// Client a moves 5 from account 0 to 1, then client b 2 from 1 to 0.
	sound := func() ([]page, []seen) {
		var es []seen
		for _, k := range []kind{booked, finished} {
			es = append(es, note(k, a, 0, 1), note(k, a, 1, 1), note(k, b, 1, 1), note(k, b, 0, 1))
		}
		return []page{job(1, 2, b, 1, -2, 3, map[uint32]uint64{a: 1, b: 1}), job(0, 1, a, 1, -5, -5, map[uint32]uint64{a: 1}),
			job(1, 1, a, 1, 5, 5, map[uint32]uint64{a: 1}), job(0, 2, b, 1, 2, -3, map[uint32]uint64{a: 1, b: 1})}, es
	}
	for name, c := range map[string]struct {
		broken func(ps []page, es []seen) ([]page, []seen)
		want   ledger
	}{
		"nothing": {func(ps []page, es []seen) ([]page, []seen) { return ps, es }, ledger{jobs: 4}},
		"a balance that does not follow": {func(ps []page, es []seen) ([]page, []seen) { ps[0].Balance = 4; return ps, es },
			ledger{jobs: 4, broken: 1, sums: 1}},
		"a job done twice": {func(ps []page, es []seen) ([]page, []seen) {
			return append(ps, job(0, 3, b, 1, 2, -1, nil)), es
		}, ledger{jobs: 4, twice: 1, sums: 2}},
		"half of a transfer": {func(ps []page, es []seen) ([]page, []seen) { return ps[1:], es }, ledger{jobs: 3, hollow: 1, sums: 2}},
		"no answer":          {func(ps []page, es []seen) ([]page, []seen) { return ps, es[:7] }, ledger{jobs: 4, unfinished: 1}},
		"a tick of an account": {func(ps []page, es []seen) ([]page, []seen) {
			return append(ps, at(0, 3, page{Tick: 1, Balance: -3})), es
		}, ledger{jobs: 4, ticks: 1}},
		"a tick too many": {func(ps []page, es []seen) ([]page, []seen) {
			return append(ps, at(0, 3, page{Tick: 2, Balance: -3})), es
		}, ledger{jobs: 4, ticks: 1, broken: 1}},
	} {
		ps, es := c.broken(sound())
		require.Equal(t, c.want, judgeLedger(ps, es, 2), name)
	}
	p, err := pageOf(writeText(7, 1, 2, 3) + ` {"Sender":1,"Seq":2,"Balance":-4,"Done":{"1":2}}`)
	require.NoError(t, err)
	require.Equal(t, page{Sender: 1, Seq: 2, Balance: -4, Done: map[uint32]uint64{1: 2}}, p)
	_, err = pageOf("nothing")
	require.Error(t, err)
}
