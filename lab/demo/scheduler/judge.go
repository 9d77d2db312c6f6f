//go:build linux

package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// What the verdict looks at.
const (
	hostsInOrder = "hosts in order"
	tokensGrow   = "tokens only grow"
	overlaps     = "overlaps"
	fenced       = "stale writes"
	deadOnThaw   = "after the thaw"
	lostJobs     = "jobs lost"
	doneTwice    = "jobs done twice"
	ticksInOrder = "ticks"
	longestGap   = "longest gap"
	gapAfter     = "gap after the " // the verb follows
)

// judge computes the verdict. It is a pure function.
func judge(e evidence) stage.Verdict {
	effective := slices.DeleteFunc(slices.Clone(e.entries), func(x entry) bool { return x.outcome == stage.Refused })
	reigns := reignsOf(effective)
	return stage.Verdict{Width: 22, Findings: []stage.Finding{
		judgeHosts(e, reigns),
		judgeTokens(effective),
		judgeOverlaps(e.passes),
		judgeFence(e),
		judgeThaw(e),
		judgeLost(e, effective),
		judgeTwice(effective),
		judgeTicks(effective),
		judgeLongest(e, effective),
		judgeChange(e, e.first, reigns),
		judgeChange(e, e.second, reigns),
	}}
}

// reign is a run of entries under one token on one node.
type reign struct {
	node        string
	token       lease.Token
	first, last time.Duration
}

func reignsOf(effective []entry) []reign {
	var out []reign
	for _, x := range effective {
		if n := len(out); n > 0 && out[n-1].node == x.node && out[n-1].token == x.token {
			out[n-1].last = x.at
			continue
		}
		out = append(out, reign{x.node, x.token, x.at, x.at})
	}
	return out
}

// judgeHosts: the first, then the second, and then the third. A host may lose the lease and win it again.
func judgeHosts(e evidence, reigns []reign) stage.Finding {
	var text, nodes []string
	for _, r := range reigns {
		text = append(text, fmt.Sprintf("%s (token %d)", r.node, r.token))
		nodes = append(nodes, r.node)
	}
	nodes = slices.Compact(nodes)
	ok := len(nodes) == 3 && nodes[0] == e.first.node && nodes[1] == e.second.node && nodes[2] != e.first.node
	return stage.NewFinding(hostsInOrder, strings.Join(text, " → "), ok)
}

// judgeTokens: in the order of the journal no token is lower than one before
// it, and none was used on two nodes.
func judgeTokens(effective []entry) stage.Finding {
	var highest lease.Token
	owner := map[lease.Token]string{}
	back, shared := 0, 0
	for _, x := range effective {
		if x.token < highest || x.token == 0 {
			back++
		}
		highest = max(highest, x.token)
		if o, ok := owner[x.token]; ok && o != x.node {
			shared++
		}
		owner[x.token] = x.node
	}
	tokens := slices.Sorted(maps.Keys(owner))
	return stage.NewFinding(tokensGrow, fmt.Sprintf("%v; %d writes under a lower token, %d under another node's", tokens, back, shared),
		len(tokens) > 0 && back == 0 && shared == 0)
}

// judgeOverlaps: of two tokens every pass under the lower one is earlier than
// every pass under the higher one, and a token is one node's.
func judgeOverlaps(passes []pass) stage.Finding {
	first := map[lease.Token]pass{}
	for _, p := range passes {
		if f, ok := first[p.token]; !ok || p.at < f.at {
			first[p.token] = p
		}
	}
	// until[t] is when the first token above t began.
	tokens := slices.Sorted(maps.Keys(first))
	until := map[lease.Token]time.Duration{}
	for i := len(tokens) - 2; i >= 0; i-- {
		next := tokens[i+1]
		end := first[next].at
		if u, ok := until[next]; ok {
			end = min(end, u)
		}
		until[tokens[i]] = end
	}
	n := 0
	for _, p := range passes {
		if end, ok := until[p.token]; ok && p.at >= end || p.node != first[p.token].node {
			n++
		}
	}
	return stage.NewFinding(overlaps, fmt.Sprintf("%d, of %d messages that passed a gate", n, len(passes)), n == 0 && len(passes) > 0)
}

// judgeFence: a write that came under a token after a higher one was refused.
// The host froze with one half done, so there is at least one.
func judgeFence(e evidence) stage.Finding {
	var highest lease.Token
	accepted, stale := 0, 0
	for _, x := range e.entries {
		switch {
		case x.outcome == stage.Refused:
			stale++
		case x.token < highest:
			accepted++
		default:
			highest = x.token
		}
	}
	return stage.NewFinding(fenced, fmt.Sprintf("%d accepted, %d refused by the journal", accepted, stale), accepted == 0 && stale > 0)
}

// judgeThaw: from when it froze nothing passed the gate of the frozen node, and
// it found out that it had lost the lease.
func judgeThaw(e evidence) stage.Finding {
	passed, written := 0, 0
	for _, p := range e.passes {
		if p.node == e.frozen && p.at > e.frozenAt {
			passed++
		}
	}
	for _, x := range e.entries {
		if x.node == e.frozen && x.at > e.frozenAt && x.outcome != stage.Refused {
			written++
		}
	}
	found := "found that it had lost the lease"
	if !e.noticed {
		found = "did not find that it had lost the lease"
	}
	return stage.NewFinding(deadOnThaw, fmt.Sprintf("%s %s: %d messages passed its gate, %d writes accepted", e.frozen, found, passed, written),
		e.noticed && e.thawedAt > e.frozenAt && passed == 0 && written == 0)
}

// judgeLost: every job was acknowledged, and every acknowledged one was done.
func judgeLost(e evidence, effective []entry) stage.Finding {
	did := map[int]bool{}
	for _, x := range effective {
		if x.kind == worked && x.outcome == stage.Written {
			did[x.number] = true
		}
	}
	var silent, hollow []int
	for n := 1; n <= e.sent; n++ {
		switch {
		case !e.acked[n]:
			silent = append(silent, n)
		case !did[n]:
			hollow = append(hollow, n)
		}
	}
	text := fmt.Sprintf("%d of %d sent (%d times one was sent again)", len(silent)+len(hollow), e.sent, e.resends)
	if len(silent) > 0 {
		text += fmt.Sprintf("; never acknowledged: %s", some(silent))
	}
	if len(hollow) > 0 {
		text += fmt.Sprintf("; acknowledged but not in the journal: %s", some(hollow))
	}
	return stage.NewFinding(lostJobs, text, e.sent > 0 && len(silent)+len(hollow) == 0)
}

// judgeTwice: a job that came again was recognised.
func judgeTwice(effective []entry) stage.Finding {
	times := map[int]int{}
	again := 0
	for _, x := range effective {
		switch {
		case x.kind == worked && x.outcome == stage.Written:
			times[x.number]++
		case x.outcome == stage.Repeated:
			again++
		}
	}
	var twice []int
	for _, n := range slices.Sorted(maps.Keys(times)) {
		if times[n] > 1 {
			twice = append(twice, n)
		}
	}
	text := fmt.Sprintf("%d (%d duplicates came in, and were known by their number)", len(twice), again)
	if len(twice) > 0 {
		text += ": " + some(twice)
	}
	return stage.NewFinding(doneTwice, text, len(twice) == 0)
}

// judgeTicks: each host goes on counting where the one before it ended.
func judgeTicks(effective []entry) stage.Finding {
	last, wrong := 0, 0
	for _, x := range effective {
		if x.kind != ticked {
			continue
		}
		if x.number != last+1 {
			wrong++
		}
		last = x.number
	}
	return stage.NewFinding(ticksInOrder, fmt.Sprintf("%d, each host counting on from the one before; %d out of order", last, wrong), last > 0 && wrong == 0)
}

// judgeLongest: the singleton was never away for longer than a dead host's
// lease lasts.
func judgeLongest(e evidence, effective []entry) stage.Finding {
	longest, since := time.Duration(0), e.from
	times := make([]time.Duration, 0, len(effective)+1)
	for _, x := range effective {
		if x.at >= e.from && x.at <= e.to {
			times = append(times, x.at)
		}
	}
	slices.SortFunc(times, cmp.Compare)
	at := e.from
	for _, t := range append(times, e.to) {
		if t-at > longest {
			longest, since = t-at, at
		}
		at = t
	}
	limit := e.ttl + e.slack
	return stage.NewFinding(longestGap, fmt.Sprintf("%.3fs, from %.3fs on (at most %v)", longest.Seconds(), (since-e.from).Seconds(), limit), longest <= limit)
}

// judgeChange: how long nobody worked between one host and the next. Renewals
// come every third of the TTL, so of a lease that is not released more than a
// third is always left, and must be waited for.
func judgeChange(e evidence, x ended, reigns []reign) stage.Finding {
	what, least, most := gapAfter+x.by, e.ttl/3, e.ttl+e.slack
	if x.released {
		least, most = 0, e.slack
	}
	for i := len(reigns) - 2; i >= 0; i-- {
		if reigns[i].node == x.node {
			gap := reigns[i+1].first - reigns[i].last
			text := fmt.Sprintf("%.3fs (at most %v)", gap.Seconds(), most)
			if least > 0 {
				text = fmt.Sprintf("%.3fs (%.3fs to %v)", gap.Seconds(), least.Seconds(), most)
			}
			return stage.NewFinding(what, text, gap >= least && gap <= most)
		}
	}
	return stage.NewFinding(what, "nobody took over", false)
}

// some returns the first few numbers of a list.
func some(numbers []int) string {
	const most = 10
	if len(numbers) > most {
		return fmt.Sprintf("%v and %d more", numbers[:most], len(numbers)-most)
	}
	return fmt.Sprint(numbers)
}
