//go:build linux

package nodes

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// sound is a run in which nothing is wrong: singleton 0 and shard 0 (number 1) move
// from node 0 to node 1; an ask is on the way meanwhile.
func sound() evidence {
	e := func(node int, at time.Duration, x entry) seen { x.at = at; return seen{x, node, 0} }
	return evidence{
		names: names{Singletons: 1, Shards: 1, Each: 1}, ttl: 2 * time.Second, margin: 200 * ms, back: time.Second,
		calms: []span{{100 * ms, 900 * ms}},
		heals: []healing{{1, 50 * ms}},
		entries: []seen{
			e(0, 2*ms, entry{kind: confirmed, sent: 1 * ms, seq: uint64(2 * time.Second)}),
			e(1, 2*ms, entry{kind: confirmed, sent: 1 * ms, seq: uint64(2 * time.Second)}),
			e(0, 10*ms, entry{kind: began, name: 0, token: 5}),
			e(0, 10*ms, entry{kind: began, name: 1, token: 6}),
			e(0, 60*ms, entry{kind: swept, name: 0, token: 5, sent: 55 * ms}),
			e(0, 60*ms, entry{kind: swept, name: 1, token: 6, sent: 55 * ms}),
			e(0, 100*ms, entry{kind: asked, sender: 3, target: 1, name: 1, seq: 1}),
			e(0, 110*ms, entry{kind: passed, name: 1, token: 6}),
			e(0, 111*ms, entry{kind: handled, name: 1, token: 6, sender: 3, target: 1, seq: 1}),
			e(0, 112*ms, entry{kind: answered, name: 1, token: 6, sender: 3, target: 1, seq: 1}),
			e(0, 300*ms, entry{kind: asked, sender: 3, target: 1, name: 1, seq: 2}),
			e(1, 400*ms, entry{kind: began, name: 1, token: 9}),
			e(1, 410*ms, entry{kind: passed, name: 1, token: 9}),
			e(1, 411*ms, entry{kind: handled, name: 1, token: 9, sender: 3, target: 1, seq: 2}),
			e(0, 412*ms, entry{kind: answered, name: 1, token: 9, sender: 3, target: 1, seq: 2}),
			e(1, 500*ms, entry{kind: began, name: 0, token: 8}),
			e(1, 510*ms, entry{kind: passed, name: 0, token: 8}),
		},
		History: History{Writes: []Write{{1, 7, "6"}, {1, 10, "9"}, {0, 11, "8"}}},
	}
}

func TestASoundRunBreaksNothing(t *testing.T) {
	j := judge(sound())
	require.Empty(t, j.violations)
	require.Equal(t, []int{3, 2, 2, 2, 2, 0, 3}, []int{j.passes, j.calm, j.asked, j.handled, j.answered, j.twice, j.records})
	require.Len(t, j.back, 2)
}

func TestEveryViolationIsFound(t *testing.T) {
	add := func(node, life int, at time.Duration, x entry) func(*evidence) {
		return func(ev *evidence) { x.at = at; ev.entries = append(ev.entries, seen{x, node, life}) }
	}
	remove := func(k kind, last bool) func(*evidence) {
		return func(ev *evidence) {
			at := -1
			for i, e := range ev.entries {
				if e.kind == k && (at < 0 || last) {
					at = i
				}
			}
			ev.entries = append(ev.entries[:at:at], ev.entries[at+1:]...)
		}
	}
	for _, c := range []struct {
		name   string
		broken func(*evidence)
		rule   string
		text   string
	}{
		{"a pass after one under a higher token", add(0, 0, 420*ms, entry{kind: passed, name: 1, token: 6}), ruleI1, "not earlier"},
		{"a pass at the time of one under a higher token", add(0, 0, 410*ms, entry{kind: passed, name: 1, token: 6}), ruleI1, "not earlier"},
		{"far below the highest token", func(ev *evidence) {
			add(1, 0, 600*ms, entry{kind: passed, name: 1, token: 12})(ev)
			add(1, 0, 605*ms, entry{kind: passed, name: 1, token: 14})(ev)
			add(0, 0, 602*ms, entry{kind: passed, name: 1, token: 6})(ev)
		}, ruleI1, "not earlier"},
		{"an actor at work while another is", add(0, 0, 430*ms, entry{kind: handled, name: 1, token: 6}), ruleI1, "not earlier"},
		{"two processes under one token", add(0, 0, 500*ms, entry{kind: passed, name: 1, token: 9}), ruleI1, "two processes"},
		{"two lives of a node under one token", func(ev *evidence) {
			add(1, 1, 499*ms, entry{kind: confirmed, sent: 498 * ms, seq: uint64(2 * time.Second)})(ev)
			add(1, 1, 500*ms, entry{kind: passed, name: 1, token: 9})(ev)
		}, ruleI1, "two processes"},
		{"no token", add(1, 0, 500*ms, entry{kind: passed, name: 1}), ruleI1, "without a token"},
		{"a name that there is not", add(1, 0, 500*ms, entry{kind: passed, name: 7, token: 9}), ruleI1, "there is not"},
		{"a lower token begins", add(0, 0, 600*ms, entry{kind: began, name: 0, token: 7}), ruleI2, "not higher"},
		{"a token begins twice", add(0, 0, 600*ms, entry{kind: began, name: 0, token: 8}), ruleI2, "not higher"},
		{"a pass after the loss was told", func(ev *evidence) {
			add(0, 0, 200*ms, entry{kind: lost, name: 0, token: 5})(ev)
			add(0, 0, 210*ms, entry{kind: passed, name: 0, token: 5})(ev)
		}, ruleI3, "after the loss"},
		{"a pass after the session's end", add(1, 0, 1802*ms, entry{kind: passed, name: 0, token: 8}), ruleI3, "1ms after the last confirmed"},
		{"a pass without a session", add(0, 1, 700*ms, entry{kind: passed, name: 0, token: 10}), ruleI3, "after the last confirmed"},
		{"a reply that came after the pass", func(ev *evidence) {
			add(1, 0, 1900*ms, entry{kind: passed, name: 0, token: 8})(ev)
			add(1, 0, 1901*ms, entry{kind: confirmed, sent: 1000 * ms, seq: uint64(2 * time.Second)})(ev)
		}, ruleI3, "after the last confirmed"},
		{"a stale write", func(ev *evidence) { ev.Writes = append(ev.Writes, Write{1, 12, "6"}) }, ruleFence, "revision 12"},
		{"a write without a token", func(ev *evidence) { ev.Writes = append(ev.Writes, Write{1, 12, ""}) }, ruleFence, "revision 12"},
		{"a lost ask", remove(handled, true), ruleLost, "never handled"},
		{"an ask handled twice", add(1, 0, 450*ms, entry{kind: handled, name: 1, token: 9, sender: 3, target: 1, seq: 2}), ruleDoubled, "twice"},
		{"an overtaken ask", func(ev *evidence) {
			add(0, 0, 299*ms, entry{kind: asked, sender: 3, target: 1, name: 1, seq: 3})(ev)
			add(1, 0, 410*ms, entry{kind: handled, name: 1, token: 9, sender: 3, target: 1, seq: 3})(ev)
		}, ruleOrder, "overtaken"},
		{"a name that is silent for ever", remove(swept, true), ruleI7, "shard-0 never answered after storm 1"},
		{"a name that is silent for too long", func(ev *evidence) {
			remove(swept, true)(ev)
			add(0, 0, 3051*ms, entry{kind: swept, name: 1, sent: 3000 * ms})(ev)
		}, ruleI7, "answered only 3.001s after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := sound()
			c.broken(&ev)
			j := judge(ev)
			require.Len(t, j.violations, 1, "%v", j.violations)
			require.Equal(t, c.rule, j.violations[0].rule)
			require.Contains(t, j.violations[0].text, c.text)
		})
	}
}

// What is no violation: late work that was known to be late, and what the sharding
// said it could not order.
func TestExcusesAreCountedApart(t *testing.T) {
	ev := sound()
	x := entry{at: 420 * ms, kind: overran, name: 1, token: 6, sender: 9, target: 1, seq: 1}
	ev.entries = append(ev.entries, seen{x, 0, 0})
	x.at, x.kind = 430*ms, disordered
	ev.entries = append(ev.entries, seen{x, 0, 0})
	ev.entries = append(ev.entries, seen{entry{at: 440 * ms, kind: handled, name: 1, token: 9, sender: 3, target: 1, seq: 2}, 1, 0})
	j := judge(ev)
	require.Empty(t, j.violations)
	require.Equal(t, []int{1, 1, 1}, []int{j.overruns, j.unordered, j.twice})
}

// Two at work at once, as etcd had ended a lease that it had confirmed: counted apart,
// but for everything that could have been a node's fault.
func TestRevocationsByEtcd(t *testing.T) {
	overlap := func() evidence {
		ev := sound()
		for i := range ev.entries {
			if e := &ev.entries[i]; e.kind == confirmed {
				e.token = uint64(70 + e.node)
			}
		}
		ev.entries = append(ev.entries, seen{entry{at: 430 * ms, kind: handled, name: 1, token: 6}, 0, 0},
			seen{entry{at: 415 * ms, kind: began, name: 1, token: 9}, 1, 0}, seen{entry{at: 425 * ms, kind: began, name: 1, token: 6}, 0, 0})
		const shard, boss = shardLease + "0", singletonLease + "0"
		ev.Changes = []Change{{shard, 2, 68}, {shard, 3, 0}, {shard, 6, 70}, {shard, 8, 0}, {shard, 9, 71}, {boss, 5, 70}, {boss, 7, 0}}
		return ev
	}
	j := judge(overlap())
	require.Empty(t, j.violations)
	require.Len(t, j.revoked, 1)
	require.Equal(t, 20*ms, j.revoked[0].last.at-j.revoked[0].next.at)

	add := func(node int, x entry) func(*evidence) {
		return func(ev *evidence) { ev.entries = append(ev.entries, seen{x, node, 0}) }
	}
	for name, broken := range map[string]func(*evidence){
		"written over":               func(ev *evidence) { ev.Changes = append(ev.Changes[:3:3], ev.Changes[4:]...) },
		"removed only later":         func(ev *evidence) { ev.Changes[3].Token = 10 },
		"no history":                 func(ev *evidence) { ev.Changes = nil },
		"a record without a session": func(ev *evidence) { ev.Changes[2].Session = 0 },
		"another session's record":   func(ev *evidence) { ev.Changes[2].Session = 71 },
		"confirmed for long enough":  func(ev *evidence) { ev.entries[0].seq = uint64(400 * ms) },
		"its holder gave it up":      add(0, entry{at: 300 * ms, kind: gaveUp, name: 1, token: 6}),
		"another gave one up":        add(1, entry{at: 300 * ms, kind: gaveUp, name: 1, token: 2}),
		"its session was closed":     add(0, entry{at: 300 * ms, kind: closed, token: 70}),
	} {
		t.Run(name, func(t *testing.T) {
			ev := overlap()
			broken(&ev)
			j := judge(ev)
			require.Empty(t, j.revoked)
			require.Contains(t, []string{ruleI1, ruleI3}, j.violations[0].rule)
		})
	}
	ev := overlap()
	add(1, entry{at: 300 * ms, kind: gaveUp, name: 0, token: 5})(&ev) // of another name
	add(1, entry{at: 300 * ms, kind: closed, token: 71})(&ev)
	add(0, entry{at: 420 * ms, kind: gaveUp, name: 1, token: 6})(&ev) // when another had it
	add(0, entry{at: 440 * ms, kind: closed, token: 70})(&ev)
	require.Len(t, judge(ev).revoked, 1)
}

func TestManyViolationsAreCounted(t *testing.T) {
	ev := sound()
	for i := range 100 {
		ev.entries = append(ev.entries, seen{entry{at: 500*ms + time.Duration(i), kind: passed, name: 1}, 1, 0})
	}
	j := judge(ev)
	require.Len(t, j.violations, most)
	require.Equal(t, 100-most, j.more[ruleI1])
}

// A calm in which a node noted that a lease ran out is none; but most of the calms must be.
func TestACalmWithALossIsNone(t *testing.T) {
	type broken struct {
		name string
		by   func(*evidence)
		rule string
	}
	second := entry{kind: handled, name: 1, token: 9, sender: 3, target: 1, seq: 2}
	all := []broken{
		{"lost", func(ev *evidence) {
			ev.entries = slices.DeleteFunc(ev.entries, func(e seen) bool { return e.kind == handled && e.seq == 2 })
		}, ruleLost},
		{"doubled", func(ev *evidence) {
			second.at = 450 * ms
			ev.entries = append(ev.entries, seen{second, 1, 0})
		}, ruleDoubled},
		{"overtaken", func(ev *evidence) {
			x := second
			x.seq, x.at, x.kind = 3, 299*ms, asked
			ev.entries = append(ev.entries, seen{x, 0, 0})
			x.at, x.kind = 410*ms, handled
			ev.entries = append(ev.entries, seen{x, 1, 0})
		}, ruleOrder},
	}
	loss := func(at time.Duration) func(*evidence) {
		return func(ev *evidence) {
			ev.entries = append(ev.entries, seen{entry{at: at, kind: lost, name: 0, token: 3, seq: ranOut}, 0, 0})
		}
	}
	taken := func(ev *evidence) {
		ev.entries = append(ev.entries, seen{entry{at: 500 * ms, kind: lost, name: 0, token: 3}, 0, 0})
	}
	// sound's calm is from 0.1 to 0.9 s; these are others, in which nothing happens.
	calms := func(n int) func(*evidence) {
		return func(ev *evidence) {
			for i := range n {
				from := time.Duration(i+1) * 10 * time.Second
				ev.calms = append(ev.calms, span{from, from + time.Second})
			}
		}
	}
	judged := func(changes ...func(*evidence)) *judgement {
		ev := sound()
		for i := range ev.entries { // sessions that outlast all
			if e := &ev.entries[i]; e.kind == confirmed {
				e.seq = uint64(time.Hour)
			}
		}
		for _, c := range changes {
			c(&ev)
		}
		return judge(ev)
	}
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			for _, at := range []time.Duration{1 * ms, 500 * ms, 2899 * ms} {
				j := judged(b.by, calms(3), loss(at))
				require.Empty(t, j.violations, "%v", at)
				require.Equal(t, []int{4, 1, 1}, []int{j.calms, j.unquiet, j.excused})
			}
			j := judged(b.by, calms(1), loss(2900*ms)) // too late to have cost it
			require.Len(t, j.violations, 1)
			require.Equal(t, b.rule, j.violations[0].rule)
			require.Zero(t, j.unquiet+j.excused)

			j = judged(b.by, calms(3), taken) // no lease ran out
			require.Len(t, j.violations, 1)
			require.Equal(t, b.rule, j.violations[0].rule)
			require.Zero(t, j.unquiet+j.excused)

			j = judged(b.by, calms(1), loss(10500*ms)) // in another calm
			require.Len(t, j.violations, 1)
			require.Equal(t, b.rule, j.violations[0].rule)
			require.Equal(t, 1, j.unquiet)

			j = judged(b.by, calms(2), loss(500*ms)) // one of three
			require.Len(t, j.violations, 1)
			require.Equal(t, ruleCalm, j.violations[0].rule)
			require.Contains(t, j.violations[0].text, "1 of 3 would be excused, as a lease ran out in them, 0 may be")
		})
	}
	// A session that was confirmed too late, or never again though its process goes on.
	expires := func(more ...entry) func(*evidence) {
		return func(ev *evidence) {
			for _, x := range append(more, entry{kind: confirmed, token: 9, at: 300 * ms, sent: 290 * ms, seq: uint64(time.Second)}) {
				ev.entries = append(ev.entries, seen{x, 0, 0})
			}
		}
	} // until 1.09 s
	later := entry{kind: refused, at: 3 * time.Second}
	for name, c := range map[string]struct {
		by      func(*evidence)
		unquiet int
	}{
		"its process ends": {expires(), 0},
		"closed":           {expires(later, entry{kind: closed, token: 9, at: 400 * ms}), 0},
		"closed, and confirmed late": {expires(later, entry{kind: closed, token: 9, at: 400 * ms},
			entry{kind: confirmed, token: 9, at: 410 * ms, sent: 290 * ms, seq: uint64(time.Second)}), 0},
		"in time":                 {expires(later, entry{kind: confirmed, token: 9, at: 1080 * ms, sent: 1070 * ms, seq: uint64(time.Hour)}), 0},
		"too late":                {expires(later, entry{kind: confirmed, token: 9, at: 1091 * ms, sent: 1070 * ms, seq: uint64(time.Hour)}), 1},
		"never":                   {expires(later), 1},
		"another's is none of it": {expires(later, entry{kind: confirmed, token: 8, at: 1080 * ms, sent: 1070 * ms, seq: uint64(time.Hour)}), 1},
	} {
		ev := []func(*evidence){all[0].by, calms(3), c.by, func(ev *evidence) { ev.margin = 200 * ms }}
		j := judged(ev...)
		require.Equal(t, c.unquiet, j.unquiet, name)
		require.Equal(t, c.unquiet, j.excused, name)
		require.Len(t, j.violations, 1-c.unquiet, name)
	}

	j := judged(calms(1), loss(500*ms), loss(10500*ms)) // losses that cost nothing
	require.Empty(t, j.violations)
	require.Equal(t, []int{2, 2, 0}, []int{j.calms, j.unquiet, j.excused})

	unanswered := func(at time.Duration) func(*evidence) {
		return func(ev *evidence) {
			ev.entries = append(ev.entries, seen{entry{at: at, kind: asked, sender: 3, target: 1, name: 1, seq: 77}, 0, 0})
		}
	}
	broke := []func(*evidence){all[0].by, calms(18), loss(500 * ms), loss(10500 * ms), unanswered(10500 * ms)}
	j = judged(broke...)
	require.Len(t, j.violations, 1)
	require.Contains(t, j.violations[0].text, "2 of 19 would be excused, as a lease ran out in them, 1 may be: 2 breaches")
	require.Len(t, j.violations[0].lines, 2)
	require.Empty(t, judged(append(broke, func(ev *evidence) { ev.calms = append(ev.calms, span{time.Minute, time.Hour}) })...).violations, "2 of 20")
}

func TestStatesGoToOneAccountAfterTheOther(t *testing.T) {
	at := func(at int, x entry) seen { x.at = time.Duration(at); return seen{entry: x} }
	left := at(1, entry{kind: leftState, target: 2, token: 5, seq: 1})
	got := at(2, entry{kind: gotState, target: 2, token: 7, seq: 5, sender: 1})
	other := at(2, entry{kind: gotState, target: 3, token: 7, seq: 5, sender: 1})
	again := at(3, entry{kind: gotState, target: 2, token: 9, seq: 5, sender: 1})
	back := at(2, entry{kind: gotState, target: 2, token: 5, seq: 5, sender: 1})
	for _, c := range []struct {
		what string
		es   []seen
		want int
	}{
		{"left and taken up", []seen{left, got}, 0},
		{"left and lost", []seen{left}, 0},
		{"taken up before it was left", []seen{got, left}, 1},
		{"another's", []seen{left, other}, 1},
		{"taken up twice", []seen{left, got, again}, 1},
		{"under the same token", []seen{left, back}, 1},
	} {
		j := &judgement{}
		j.states(evidence{entries: c.es})
		require.Len(t, j.violations, c.want, c.what)
	}
}
