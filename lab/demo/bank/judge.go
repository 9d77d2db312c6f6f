//go:build linux

package bank

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// What the verdict looks at.
const (
	money       = "money"
	transfers   = "transfers"
	memoOrder   = "memo order"
	memosLost   = "memos lost"
	tokensGrow  = "tokens"
	overlaps    = "overlaps"
	staleWrites = "stale writes"
	deadOnThaw  = "after the thaw"
	gapAt       = "gaps, " // the phase follows
	gapsOfOther = "gaps, others"
)

// judge computes the verdict. It is a pure function.
func judge(e evidence) stage.Verdict {
	effective := slices.DeleteFunc(slices.Clone(e.entries), func(x entry) bool { return x.Outcome != stage.Written })
	orphans := orphansOf(e, effective)
	found := []stage.Finding{
		judgeMoney(e, effective),
		judgeTransfers(e, effective),
		judgeMemoOrder(effective),
		judgeMemosLost(e, effective, orphans),
		judgeTokens(e),
		judgeOverlaps(e.passes),
		judgeFence(e),
	}
	if e.thawedAt > 0 {
		found = append(found, judgeThaw(e))
	}
	return stage.Verdict{Width: 14, Findings: append(found, judgeGaps(e, effective, orphans)...)}
}

// orphansOf are the accounts that the killed node hosted last.
func orphansOf(e evidence, effective []entry) map[string]bool {
	node := map[string]string{}
	for _, x := range effective {
		if x.At <= e.killedAt {
			node[x.Account] = x.Node
		}
	}
	out := map[string]bool{}
	for a, n := range node {
		if n == e.killed {
			out[a] = true
		}
	}
	return out
}

// judgeMoney: every balance is what it was before and the amount, and in all there
// is as much as in the beginning.
func judgeMoney(e evidence, effective []entry) stage.Finding {
	balance, broken := map[string]int{}, 0
	for _, x := range effective {
		was, ok := balance[x.Account]
		if !ok {
			was = opening
		}
		if x.Kind == posted {
			if x.Balance != was+x.Amount {
				broken++
			}
			was = x.Balance
		}
		balance[x.Account] = was
	}
	sum := 0
	for _, b := range balance {
		sum += b
	}
	return stage.NewFinding(money, fmt.Sprintf("%d in %d accounts, %d in the beginning; %d balances do not follow from the one before",
		sum, len(balance), opening*e.accounts, broken), sum == opening*e.accounts && len(balance) == e.accounts && broken == 0)
}

// judgeTransfers: every transfer was finished, and both halves done once.
func judgeTransfers(e evidence, effective []entry) stage.Finding {
	amounts, twice, again := map[string]int{}, 0, 0
	for _, x := range effective {
		if x.Kind != posted {
			continue
		}
		if _, ok := amounts[x.ID]; ok {
			twice++
		}
		amounts[x.ID] = x.Amount
	}
	for _, x := range e.entries {
		if x.Outcome == stage.Repeated {
			again++
		}
	}
	silent, hollow := 0, 0
	for n := 1; n <= e.begun; n++ {
		out, in := amounts[withdrawalID(n)], amounts[depositID(n)]
		switch {
		case !e.done[n]:
			silent++
		case out == 0 || out+in != 0:
			hollow++
		}
	}
	return stage.NewFinding(transfers, fmt.Sprintf("%d; %d not finished, %d not in the ledger as they were to be, %d halves done twice (%d asks were repeated, %d of them known by their number)",
		e.begun, silent, hollow, twice, e.retries, again), e.begun > 0 && silent+hollow+twice == 0)
}

// judgeMemoOrder: each account was told its memos in the order they were sent, and
// each once.
func judgeMemoOrder(effective []entry) stage.Finding {
	last, wrong, n := map[string]int{}, 0, 0
	for _, x := range effective {
		if x.Kind != noted {
			continue
		}
		n++
		if x.Number <= last[x.Account] {
			wrong++
		}
		last[x.Account] = max(last[x.Account], x.Number)
	}
	return stage.NewFinding(memoOrder, fmt.Sprintf("%d told, %d of them late or twice", n, wrong), n > 0 && wrong == 0)
}

// judgeMemosLost: nothing is lost but what was on the way to the node that was
// killed, while it was not known to be dead.
func judgeMemosLost(e evidence, effective []entry, orphans map[string]bool) stage.Finding {
	type key struct {
		account string
		number  int
	}
	told := map[key]bool{}
	for _, x := range effective {
		if x.Kind == noted {
			told[key{x.Account, x.Number}] = true
		}
	}
	with, lost := 0, 0
	for i, at := range e.memos {
		for k := range e.accounts {
			id := accountID(k)
			switch {
			case told[key{id, i + 1}]:
			case orphans[id] && at > e.killedAt-memoEvery && at < e.killedAt+e.ttl+e.slack:
				with++
			default:
				lost++
			}
		}
	}
	return stage.NewFinding(memosLost, fmt.Sprintf("%d of %d; and %d with %s, when it was killed", lost, len(e.memos)*e.accounts, with, e.killed),
		len(e.memos) > 0 && lost == 0)
}

// judgeTokens: what the ledger accepted for a shard is never under a lower token
// than before, and a token is one node's. So no account was ever worked on by two.
func judgeTokens(e evidence) stage.Finding {
	type term struct {
		shard string
		token lease.Token
	}
	highest, owner, back, shared := map[string]lease.Token{}, map[term]string{}, 0, 0
	for _, x := range e.entries {
		if x.Outcome == stage.Refused {
			continue
		}
		if x.Token < highest[x.Shard] || x.Token == 0 {
			back++
		}
		highest[x.Shard] = max(highest[x.Shard], x.Token)
		t := term{x.Shard, x.Token}
		if o, ok := owner[t]; ok && o != x.Node {
			shared++
		}
		owner[t] = x.Node
	}
	return stage.NewFinding(tokensGrow, fmt.Sprintf("%d of %d shards; %d writes under a lower one, %d under another node's", len(owner), len(highest), back, shared),
		len(owner) > 0 && back+shared == 0)
}

// judgeOverlaps: of two tokens of a shard every pass under the lower one is earlier
// than every pass under the higher one, and a token is one node's.
func judgeOverlaps(passes []pass) stage.Finding {
	byShard := map[string][]pass{}
	for _, p := range passes {
		byShard[p.shard] = append(byShard[p.shard], p)
	}
	wrong := 0
	for _, ps := range byShard {
		slices.SortStableFunc(ps, func(a, b pass) int { return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.at, b.at)) })
		until := time.Duration(-1) // the latest pass under a lower token
		latest := until
		for i, p := range ps {
			if i > 0 && p.token != ps[i-1].token {
				until = latest
			}
			latest = max(latest, p.at)
			if p.at <= until || i > 0 && p.token == ps[i-1].token && p.node != ps[i-1].node {
				wrong++
			}
		}
	}
	return stage.NewFinding(overlaps, fmt.Sprintf("%d of %d passes", wrong, len(passes)), len(passes) > 0 && wrong == 0)
}

// judgeFence: no write under a stale token was accepted; if the one that was killed
// came back, one was refused.
func judgeFence(e evidence) stage.Finding {
	highest, accepted, stale := map[string]lease.Token{}, 0, 0
	for _, x := range e.entries {
		switch {
		case x.Outcome == stage.Refused:
			stale++
		case x.Token < highest[x.Shard]:
			accepted++
		default:
			highest[x.Shard] = x.Token
		}
	}
	return stage.NewFinding(staleWrites, fmt.Sprintf("%d accepted, %d refused by the ledger", accepted, stale), accepted == 0 && (stale > 0 || e.thawedAt == 0))
}

// judgeThaw: after the thaw nothing passed a gate of that node, from when it froze
// nothing was written, and it found out that it had lost its shards.
func judgeThaw(e evidence) stage.Finding {
	passed, wrote := 0, 0
	for _, p := range e.passes {
		if p.node == e.killed && p.at >= e.thawedAt {
			passed++
		}
	}
	for _, x := range e.entries {
		if x.Node == e.killed && x.At > e.killedAt && x.Outcome != stage.Refused {
			wrote++
		}
	}
	return stage.NewFinding(deadOnThaw, fmt.Sprintf("%s found %d shards lost: %d messages passed its gates, %d writes accepted", e.killed, e.lost, passed, wrote),
		e.lost > 0 && passed+wrote == 0)
}

// judgeGaps: how long accounts did not answer. Renewals come every third of the
// TTL, so of leases that are not released more than a third is always left, and
// must be waited for.
func judgeGaps(e evidence, effective []entry, orphans map[string]bool) []stage.Finding {
	times := map[string][]time.Duration{}
	for _, x := range effective {
		if x.At >= e.from && x.At < e.to {
			times[x.Account] = append(times[x.Account], x.At)
		}
	}
	longest := map[string]map[string]time.Duration{} // by phase, of each account
	for _, p := range append(e.phases, phase{name: "others"}) {
		longest[p.name] = map[string]time.Duration{}
	}
	for i := range e.accounts {
		id, last := accountID(i), e.from
		at := append(times[id], e.to)
		slices.Sort(at)
		for _, t := range at {
			name := e.during(last + (t-last)/2)
			if name == "kill" && !orphans[id] {
				name = "others"
			}
			longest[name][id] = max(longest[name][id], t-last)
			last = t
		}
	}
	var found []stage.Finding
	one := func(what, phase, text string, least, most time.Duration) {
		all := slices.Sorted(maps.Values(longest[phase]))
		if len(all) == 0 {
			found = append(found, stage.NewFinding(what, "no account", false))
			return
		}
		half, worst := all[len(all)/2], all[len(all)-1]
		found = append(found, stage.NewFinding(what, fmt.Sprintf("%s: of half of %d accounts up to %.3fs, longest %.3fs (%.3gs to %.3gs)", text, len(all),
			half.Seconds(), worst.Seconds(), least.Seconds(), most.Seconds()), worst >= least && worst <= most))
	}
	one(gapAt+"join", "join", "a node joined", 0, e.slack)
	one(gapAt+"leave", "leave", "a node left", 0, e.slack)
	one(gapAt+"kill", "kill", e.killed+" was killed, its own accounts", e.ttl/3, e.ttl+e.slack)
	one(gapsOfOther, "others", "the accounts of others meanwhile", 0, e.slack)
	return found
}
