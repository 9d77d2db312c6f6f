//go:build linux

package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

const ms = time.Millisecond

// sound is what a good run leaves behind: node-1 is killed at 1 s in the middle
// of job 11, node-2 takes over at 2.9 s and leaves at 5 s, node-3 goes on until
// 8 s, and at 7 s node-1 thaws and tries to write.
func sound() evidence {
	e := evidence{
		ttl: 2 * time.Second, slack: time.Second, from: 0, to: 8000 * ms,
		first: ended{node: "node-1", by: "kill"}, second: ended{node: "node-2", by: "leave", released: true},
		frozen: "node-1", frozenAt: 1000 * ms, thawedAt: 7000 * ms, noticed: true, acked: map[int]bool{},
	}
	ticks := 0
	host := func(node string, token lease.Token, from, to time.Duration) {
		e.passes = append(e.passes, pass{node, token, from})
		e.entries = append(e.entries, entry{node, token, from, began, 0, stage.Written})
		for at := from + 100*ms; at < to; at += 100 * ms {
			ticks++
			e.sent++
			e.acked[e.sent] = true
			e.passes = append(e.passes, pass{node, token, at}, pass{node, token, at + ms})
			e.entries = append(e.entries,
				entry{node, token, at, ticked, ticks, stage.Written},
				entry{node, token, at + ms, worked, e.sent, stage.Written})
		}
	}
	host("node-1", 1, 0, 1000*ms)
	host("node-2", 3, 2900*ms, 5000*ms)
	e.entries = append(e.entries, entry{"node-2", 3, 4950 * ms, worked, 12, stage.Repeated})
	host("node-3", 5, 5010*ms, 8000*ms)
	e.entries = append(e.entries, entry{"node-1", 1, 7001 * ms, worked, 11, stage.Refused})
	return e
}

func TestASoundRunIsGood(t *testing.T) {
	v := judge(sound())
	require.True(t, v.Good(), "%v", v)
	require.Contains(t, v.String(), "verdict: GOOD")
	require.Contains(t, v.String(), "node-1 (token 1) → node-2 (token 3) → node-3 (token 5)")
}

// With processes the second is stopped: its lease has to run out, too.
func TestAHostThatIsStoppedKeepsTheLeaseUntilItEnds(t *testing.T) {
	e := sound()
	e.second = ended{node: "node-2", by: "stop"}
	e.frozen, e.frozenAt = "node-2", 5000*ms
	require.Equal(t, []string{gapAfter + "stop"}, judge(e).Failed(), "the third began too soon")
	for i := range e.entries {
		if x := &e.entries[i]; x.node == "node-3" || x.outcome == stage.Refused {
			x.at += 1900 * ms
		}
	}
	e.to += 1900 * ms
	require.True(t, judge(e).Good(), "%v", judge(e))
	e.passes = append(e.passes, pass{"node-2", 3, 5001 * ms})
	require.Equal(t, []string{deadOnThaw}, judge(e).Failed())
}

func TestNoVerdictIsNotGood(t *testing.T) {
	require.False(t, judge(evidence{}).Good())
}

// at returns the index of the first effective entry that fits.
func at(t *testing.T, e evidence, node string, kind entryKind) int {
	t.Helper()
	for i, x := range e.entries {
		if x.node == node && x.kind == kind && x.outcome != stage.Refused {
			return i
		}
	}
	require.Fail(t, "no such entry")
	return -1
}

func TestEveryFaultIsFlaggedByItsLine(t *testing.T) {
	for name, c := range map[string]struct {
		doctor func(t *testing.T, e *evidence)
		flags  []string
	}{
		"two gates let messages through at once": {func(t *testing.T, e *evidence) {
			e.passes = append(e.passes, pass{"node-2", 3, 5500 * ms})
		}, []string{overlaps}},
		"a pass under the old token at the very moment of the new one's first": {func(t *testing.T, e *evidence) {
			e.passes = append(e.passes, pass{"node-2", 3, 5010 * ms})
		}, []string{overlaps}},
		"an overlap with the token after the next only": {func(t *testing.T, e *evidence) {
			e.passes = append(e.passes, pass{"node-2", 4, 6000 * ms}, pass{"node-2", 3, 5990 * ms})
		}, []string{overlaps}},
		"one token on two nodes": {func(t *testing.T, e *evidence) {
			e.passes = append(e.passes, pass{"node-1", 5, 7500 * ms})
		}, []string{overlaps, deadOnThaw}},
		"no gate was watched": {func(t *testing.T, e *evidence) { e.passes = nil }, []string{overlaps}},
		"the thawed node works on": {func(t *testing.T, e *evidence) {
			e.passes = append(e.passes, pass{"node-1", 1, 7002 * ms})
		}, []string{overlaps, deadOnThaw}},
		"the killed node works on before its lease ends": {func(t *testing.T, e *evidence) {
			e.passes = append(e.passes, pass{"node-1", 1, 1500 * ms})
		}, []string{deadOnThaw}},
		"the thawed node does not notice": {func(t *testing.T, e *evidence) { e.noticed = false }, []string{deadOnThaw}},
		"nothing was thawed":              {func(t *testing.T, e *evidence) { e.thawedAt = 0 }, []string{deadOnThaw}},
		"a stale write is accepted": {func(t *testing.T, e *evidence) {
			e.entries[len(e.entries)-1].outcome = stage.Repeated
		}, []string{hostsInOrder, tokensGrow, fenced, deadOnThaw}},
		"no stale write was tried": {func(t *testing.T, e *evidence) {
			e.entries = e.entries[:len(e.entries)-1]
		}, []string{fenced}},
		"a token goes back": {func(t *testing.T, e *evidence) {
			e.entries[at(t, *e, "node-3", ticked)].token = 2
		}, []string{tokensGrow, fenced}},
		"a write without a token": {func(t *testing.T, e *evidence) {
			e.entries[0].token = 0
		}, []string{tokensGrow}},
		"two nodes write under one token": {func(t *testing.T, e *evidence) {
			for i := range e.entries {
				if e.entries[i].token == 5 {
					e.entries[i].token = 3
				}
			}
		}, []string{tokensGrow}},
		"a job is never acknowledged": {func(t *testing.T, e *evidence) { delete(e.acked, 17) }, []string{lostJobs}},
		"a job is acknowledged and not done": {func(t *testing.T, e *evidence) {
			e.entries[at(t, *e, "node-2", worked)].outcome = stage.Repeated
		}, []string{lostJobs}},
		"no job was sent": {func(t *testing.T, e *evidence) { e.sent = 0 }, []string{lostJobs}},
		"a job is done twice": {func(t *testing.T, e *evidence) {
			e.entries = append(e.entries, entry{"node-3", 5, 7990 * ms, worked, 3, stage.Written})
		}, []string{doneTwice}},
		"a host begins to count anew": {func(t *testing.T, e *evidence) {
			e.entries[at(t, *e, "node-2", ticked)].number = 1
		}, []string{ticksInOrder}},
		"the third never hosts": {func(t *testing.T, e *evidence) {
			e.entries, e.to = e.entries[:at(t, *e, "node-3", began)], 5000*ms
		}, []string{hostsInOrder, fenced, lostJobs, gapAfter + "leave"}},
		"another than the first was killed": {func(t *testing.T, e *evidence) {
			e.first.node = "node-3"
		}, []string{hostsInOrder, gapAfter + "kill"}},
		"it is silent at the end": {func(t *testing.T, e *evidence) { e.to = 12000 * ms }, []string{longestGap}},
		"it begins late":          {func(t *testing.T, e *evidence) { e.from = -3500 * ms }, []string{longestGap}},
		"the take-over comes late": {func(t *testing.T, e *evidence) {
			shift(e, 1500*ms)
		}, []string{longestGap, gapAfter + "kill"}},
		"the take-over comes before the lease ended": {func(t *testing.T, e *evidence) {
			shift(e, -1600*ms)
		}, []string{gapAfter + "kill"}},
		"the one that leaves keeps the lease": {func(t *testing.T, e *evidence) {
			for i := range e.entries {
				if x := &e.entries[i]; x.node == "node-3" {
					x.at += 1100 * ms
				}
			}
			e.to += 1100 * ms
		}, []string{gapAfter + "leave"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			c.doctor(t, &e)
			v := judge(e)
			require.Equal(t, c.flags, v.Failed(), "%v", v)
			require.False(t, v.Good())
			require.Contains(t, v.String(), "verdict: BAD")
		})
	}
}

// shift moves all that came after the kill.
func shift(e *evidence, d time.Duration) {
	for i := range e.entries {
		if e.entries[i].at > e.frozenAt {
			e.entries[i].at += d
		}
	}
	for i := range e.passes {
		if e.passes[i].at > e.frozenAt {
			e.passes[i].at += d
		}
	}
	e.thawedAt += d
	e.to += d
}

func TestAListOfNumbersIsCut(t *testing.T) {
	require.Equal(t, "[1 2]", some([]int{1, 2}))
	require.Equal(t, fmt.Sprint([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})+" and 1 more", some([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}))
}
