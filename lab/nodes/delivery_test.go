//go:build linux

package nodes

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
