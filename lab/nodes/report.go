//go:build linux

package nodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// errNothing: a run that was too quiet, or too short-lived, to say anything.
var errNothing = errors.New("nothing was judged")

// report judges everything and prints it.
func (t *torture) report(ctx context.Context) *judgement {
	es := t.evidence()
	ws, hs := t.history(ctx)
	j := judge(t.bring(es, t.calms, t.heals, ws, hs))
	j.violations = append(j.violations, t.evils...)

	times := map[string][]time.Duration{}
	planned := 0
	for _, d := range t.done {
		times[d.kind.name] = append(times[d.kind.name], d.to-d.from)
		if d.kind.planned {
			planned++
		}
	}
	t.Printf("   %d faults and %d planned moves in %d storms and calms, %v:", len(t.done)-planned, planned, len(t.heals), (t.ended - t.began).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(times)) {
		t.Spread(name, times[name])
	}
	t.Printf("journals: %d entries: %d passes under %d terms, %d sessions confirmed, %d losses under work that went on",
		len(es), j.passes, j.terms, j.confirmed, j.moments)
	t.Printf("overruns, counted apart: %d asks handled after the lease had ended", j.overruns)
	t.Printf("leases that the store ended though it had just confirmed them, and others had while their holders believed, counted apart: %d", len(j.revoked))
	for _, r := range j.revoked {
		t.Printf("  %s: for %v\n    %v\n    %v", r.name, r.last.at-r.next.at, r.last, r.next)
	}
	t.Printf("fenced journal: %d writes in the store's history; by the writers' count %d accepted, %d refused as stale", j.records, j.wrote, j.refused)
	t.Printf("asks: %d sent, %d handled (%d of them again), %d answered", j.asked, j.handled, j.twice, j.answered)
	t.Printf("states of accounts: %d left for the next host, %d taken up", j.left, j.got)
	t.Printf("in calm: %d asks, %d handled without an answer at the asker, %d out of order or twice after a move that had said so", j.calm, j.calmUnanswered, j.unordered)
	t.Printf("calms: %d, in %d of which a lease ran out under work that went on; lost, doubled or overtaken in these, and excused: %d", j.calms, j.unquiet, j.excused)
	t.Printf("told to leave in a storm, and had not left within %v, or not in order: %d", leaveBound, t.slowGone)
	t.Spread("after a storm, each name's first answer", j.back)
	t.Spread("after a storm, all names' answers at a node", t.nodeBack)
	if j.passes == 0 || j.calm == 0 || j.records == 0 || hs != nil && len(hs) == 0 || len(j.back) == 0 {
		scene.Check(errNothing)
	}
	t.violated(j)
	return j
}

// violated reports the violations of a judgement, with the lines that show them.
func (c *crew) violated(j *judgement) {
	for _, v := range j.violations {
		word := "SAFETY"
		if v.slow() {
			word = "late"
		}
		c.Violation("%s: %s: %s", word, v.rule, v.text)
		for _, l := range v.lines {
			c.Printf("    %v", l)
		}
	}
	for rule, n := range j.more {
		c.Printf("%s: %d more", rule, n)
	}
}
