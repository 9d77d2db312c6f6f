//go:build linux

package torture

import (
	"context"
	"maps"
	"slices"
	"time"
)

// percentile is the smallest sample that at least p percent of all do not exceed.
func percentile(samples []time.Duration, p int) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[max((p*len(s)+99)/100, 1)-1].Round(time.Millisecond)
}

// report judges everything and prints it.
func (t *torture) report(ctx context.Context) (*judgement, error) {
	es, err := t.crew.evidence()
	if err != nil {
		return nil, err
	}
	rs, hs, err := t.history(ctx)
	if err != nil {
		return nil, err
	}
	j := judge(t.bring(es, t.calms, t.heals, rs, hs))
	j.violations = append(j.violations, t.evils...)

	counts, shortest, longest := map[faultKind]int{}, map[faultKind]time.Duration{}, map[faultKind]time.Duration{}
	unplanned, planned := 0, 0
	for _, d := range t.done {
		counts[d.Kind]++
		took := d.to - d.from
		if was, ok := shortest[d.Kind]; !ok || took < was {
			shortest[d.Kind] = took
		}
		longest[d.Kind] = max(longest[d.Kind], took)
		if d.Kind.planned() {
			planned++
		} else {
			unplanned++
		}
	}
	t.printf("\n%d faults and %d planned moves in %d storms and calms, %v:", unplanned, planned, len(t.heals), (t.ended - t.began).Round(time.Second))
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		t.printf("  %-42s %5d   %v to %v", t.plan.name(k), counts[k], shortest[k].Round(10*time.Millisecond), longest[k].Round(10*time.Millisecond))
	}
	t.printf("journals: %d entries: %d passes under %d terms, %d sessions confirmed, %d losses under work that went on",
		len(es), j.passes, j.terms, j.confirmed, j.moments)
	t.printf("overruns, counted apart: %d asks handled after the lease had ended", j.overruns)
	t.printf("leases that the store ended though it had just confirmed them, and others had while their holders believed, counted apart: %d", len(j.revoked))
	for _, r := range j.revoked {
		t.printf("  %s: for %v\n    %v\n    %v", r.name, r.last.at-r.next.at, r.last, r.next)
	}
	t.printf("fenced journal: %d writes in the store's history; by the writers' count %d accepted, %d refused as stale", j.records, j.wrote, j.refused)
	t.printf("asks: %d sent, %d handled (%d of them again), %d answered", j.asked, j.handled, j.twice, j.answered)
	t.printf("states of accounts: %d left for the next host, %d taken up", j.left, j.got)
	t.printf("in calm: %d asks, %d handled without an answer at the asker, %d out of order or twice after a move that had said so", j.calm, j.calmUnanswered, j.unordered)
	t.printf("calms: %d, in %d of which a lease ran out under work that went on; lost, doubled or overtaken in these, and excused: %d", j.calms, j.unquiet, j.excused)
	t.printf("told to leave in a storm, and had not left within %v, or not in order: %d", leaveBound, t.slowGone)
	t.printf("after a storm, each name's first answer:     p50 %v, p99 %v, longest %v (n=%d), bound %v", percentile(j.back, 50), percentile(j.back, 99),
		percentile(j.back, 100), len(j.back), t.ttl+nameBound)
	t.printf("after a storm, all names' answers at a node: p50 %v, p99 %v, longest %v (n=%d), bound %v", percentile(t.nodeBack, 50), percentile(t.nodeBack, 99),
		percentile(t.nodeBack, 100), len(t.nodeBack), t.ttl+nodeBound)
	if j.passes == 0 || j.calm == 0 || j.records == 0 || hs != nil && len(hs) == 0 || len(j.back) == 0 {
		return nil, errNothing
	}
	bad := len(j.violations)
	for _, v := range j.violations {
		t.printf("VIOLATION %s\n  %s", v.rule, v.text)
		for _, l := range v.lines {
			t.printf("    %v", l)
		}
	}
	for rule, n := range j.more {
		t.printf("VIOLATION %s: %d more", rule, n)
		bad += n
	}
	t.printf("%d violations. Once more: -store %s -for %v -seed %d -nodes %d -ttl %v -rate %v -storm %v -faults %d -proxies=%t",
		bad, t.settings.Store, t.length, t.seed, t.nodes, t.ttl, t.rate, t.storm, t.faults, t.proxied)
	return j, nil
}
