//go:build linux

package bank

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

const ms = time.Millisecond

// sound is what a good run leaves behind: two accounts, each in a shard of its own.
// account-0 is on node-1, which is killed at 3 s, and from 4.5 s on on node-2, where
// account-1 is all the time; at 6 s node-1 thaws and tries to write. Memos are sent
// every 100 ms, and every second money goes from the one account to the other.
func sound() evidence {
	e := evidence{ttl: 2 * time.Second, slack: time.Second, accounts: 2, to: 7000 * ms, killed: "node-1", killedAt: 3000 * ms,
		thawedAt: 6000 * ms, lost: 1, done: map[int]bool{}, retries: 1}
	e.phase("join", 0)
	e.phase("leave", 1000*ms)
	e.phase("kill", e.killedAt)
	e.phase("thaw", e.thawedAt)
	balance := []int{opening, opening}
	var was [2]lease.Token
	write := func(at time.Duration, i int, x entry) {
		w := writer{"node-2", accountID(i), fmt.Sprintf("shard/%d", i), 2}
		if i == 0 {
			w.Node, w.Token = "node-1", 1
			if at >= 4500*ms {
				w.Node, w.Token = "node-2", 7
			}
		}
		x.writer, x.At, x.Outcome = w, at, stage.Written
		if was[i] != w.Token {
			was[i] = w.Token
			e.entries = append(e.entries, entry{writer: w, At: at, Kind: opened, Outcome: stage.Written})
		}
		e.entries = append(e.entries, x)
		e.passes = append(e.passes, pass{w.Node, w.Shard, w.Token, at})
	}
	for at := time.Duration(0); at < e.to; at += 100 * ms {
		e.memos = append(e.memos, at)
		away := at >= e.killedAt && at < 4500*ms // account-0
		if at%(1000*ms) == 500*ms && !away {
			e.begun++
			n := e.begun
			e.done[n] = true
			for i, id := range []string{withdrawalID(n), depositID(n)} {
				amount := 2*i - 1
				balance[i] += amount
				write(at, i, entry{Kind: posted, ID: id, Amount: amount, Balance: balance[i]})
			}
		}
		for i := range 2 {
			if i == 1 || !away {
				write(at+ms, i, entry{Kind: noted, Number: len(e.memos)})
			}
		}
	}
	e.entries = append(e.entries, entry{writer: writer{"node-1", "account-0", "shard/0", 1}, At: 6001 * ms, Kind: posted,
		ID: "4-out", Amount: -1, Balance: 996, Outcome: stage.Refused})
	return e
}

func TestASoundRunIsGood(t *testing.T) {
	v := judge(sound())
	require.True(t, v.Good(), "%v", v)
	require.Len(t, v.Findings, 12)
	require.Contains(t, v.String(), "verdict: GOOD")

	e := sound() // with processes nobody comes back
	e.thawedAt, e.lost, e.entries = 0, 0, e.entries[:len(e.entries)-1]
	require.True(t, judge(e).Good(), "%v", judge(e))
	require.Len(t, judge(e).Findings, 11)
}

func TestNoVerdictIsNotGood(t *testing.T) {
	require.False(t, judge(evidence{}).Good())
}

// nth returns the index of an entry of a kind that was written.
func nth(e evidence, account string, kind entryKind, n int) int {
	for i, x := range e.entries {
		if x.Account == account && x.Kind == kind && x.Outcome == stage.Written {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("no such entry")
}

func TestEachFaultIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		fault  func(e *evidence)
		failed []string
	}{
		"a deposit is done twice": {func(e *evidence) {
			i := nth(*e, "account-1", posted, 1)
			e.entries = slices.Insert(e.entries, i+1, e.entries[i])
			for k := i + 1; k < len(e.entries); k++ {
				if e.entries[k].Account == "account-1" {
					e.entries[k].Balance++
				}
			}
		}, []string{money, transfers}},
		"an update is overwritten": {func(e *evidence) {
			for k := nth(*e, "account-1", posted, 2); k < len(e.entries); k++ {
				if e.entries[k].Account == "account-1" {
					e.entries[k].Balance--
				}
			}
		}, []string{money}},
		"a deposit is missing": {func(e *evidence) {
			i := nth(*e, "account-1", posted, e.begun-1)
			e.entries = slices.Delete(e.entries, i, i+1)
		}, []string{money, transfers}},
		"a transfer is not finished": {func(e *evidence) { delete(e.done, 2) }, []string{transfers}},
		"two memos change places": {func(e *evidence) {
			i, k := nth(*e, "account-1", noted, 7), nth(*e, "account-1", noted, 8)
			e.entries[i].Number, e.entries[k].Number = e.entries[k].Number, e.entries[i].Number
		}, []string{memoOrder}},
		"a memo comes twice": {func(e *evidence) {
			e.entries[nth(*e, "account-1", noted, 8)].Number--
		}, []string{memoOrder, memosLost}},
		"a memo is lost in a planned move": {func(e *evidence) {
			i := nth(*e, "account-0", noted, 15)
			e.entries = slices.Delete(e.entries, i, i+1)
		}, []string{memosLost}},
		"a memo to another node is lost when one is killed": {func(e *evidence) {
			i := nth(*e, "account-1", noted, 35)
			e.entries = slices.Delete(e.entries, i, i+1)
		}, []string{memosLost}},
		"a stale write is accepted": {func(e *evidence) {
			x := e.entries[nth(*e, "account-0", noted, 40)]
			x.Node, x.Token, x.Kind = "node-3", 3, opened
			e.entries = append(e.entries, x)
		}, []string{tokensGrow, staleWrites}},
		"two nodes under one token": {func(e *evidence) {
			e.entries[nth(*e, "account-0", noted, 3)].Node = "node-3"
		}, []string{tokensGrow}},
		"passes interleave": {func(e *evidence) {
			e.passes = append(e.passes, pass{"node-1", "shard/0", 1, 4501 * ms})
		}, []string{overlaps}},
		"a token passes on two nodes": {func(e *evidence) {
			e.passes = append(e.passes, pass{"node-3", "shard/1", 2, 4501 * ms})
		}, []string{overlaps}},
		"something passes after the thaw": {func(e *evidence) {
			e.passes = append(e.passes, pass{"node-1", "shard/9", 1, 6001 * ms})
		}, []string{deadOnThaw}},
		"the killed one does not notice": {func(e *evidence) { e.lost = 0 }, []string{deadOnThaw}},
		"no write is refused": {func(e *evidence) {
			e.entries = e.entries[:len(e.entries)-1]
		}, []string{staleWrites}},
		"a gap when one joins": {func(e *evidence) {
			e.slack = 300 * ms
			e.entries = slices.DeleteFunc(e.entries, func(x entry) bool {
				return x.Kind == noted && x.Account == "account-0" && x.At > 100*ms && x.At < 500*ms
			})
		}, []string{memosLost, gapAt + "join"}},
		"others have a gap when one is killed": {func(e *evidence) {
			e.slack = 900 * ms
			e.entries = slices.DeleteFunc(e.entries, func(x entry) bool {
				return x.Account == "account-1" && x.Kind == noted && x.At > 3000*ms && x.At < 4600*ms
			})
		}, []string{memosLost, gapsOfOther}},
		"nobody waits for the lease of the killed one": {func(e *evidence) {
			e.ttl = 6 * time.Second
		}, []string{gapAt + "kill"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := sound()
			c.fault(&e)
			v := judge(e)
			for _, f := range c.failed {
				require.Contains(t, v.Failed(), f, "%v", v)
			}
			require.Len(t, v.Failed(), len(c.failed), "%v", v)
		})
	}
}
