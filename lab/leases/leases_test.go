//go:build linux

package leases

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// The test binary is its own processes.
func TestMain(m *testing.M) {
	Child()
	goleak.VerifyTestMain(m)
}

func play(t *testing.T, s scene.Scenario, store string) {
	t.Helper()
	t.Parallel() // they wait, mostly
	err := s.Play(t.Context(), &scene.Run{Short: true, Store: store, Out: t.Output()})
	if errors.Is(err, postgrestest.ErrMissing) && os.Getenv("HOLDFAST_CI") != "1" { // PgBouncer, faketime, the right to mount
		t.Skip(err)
	}
	require.NoError(t, err)
}

// commit are the scenarios that the commit tier plays, in their short form.
var commit = []string{"serverless"}

// TestShortForms plays scenarios in their short form. bloat and compare take more than ten seconds on
// PostgreSQL.
func TestShortForms(t *testing.T) {
	etcdtest.Skip(t)
	postgrestest.Skip(t)
	for _, s := range Scenarios() {
		// Those of goroutines that protoactor leaves behind, and of faults, are elsewhere.
		if s.Name == "grains" || isFault(s.Name) || !tier.Nightly() && !slices.Contains(commit, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			if s.Name == "requests" {
				kubetest.Skip(t)
			}
			play(t, s, "")
		})
		if tier.Nightly() && slices.Contains([]string{"names", "outage", "compare"}, s.Name) {
			t.Run(s.Name+" on PostgreSQL", func(t *testing.T) { play(t, s, onPostgres) })
		}
		if tier.Nightly() && s.Name == "compare" {
			t.Run(s.Name+" on Redis", func(t *testing.T) { play(t, s, onRedis) })
			t.Run(s.Name+" on Kubernetes", func(t *testing.T) {
				kubetest.Skip(t)
				play(t, s, onKubernetes)
			})
		}
	}
}

func isFault(name string) bool {
	return slices.ContainsFunc(faults(), func(f fault) bool { return f.name == name })
}

// commitFaults are played in the commit tier, the others in the nightly tier only.
var commitFaults = []string{"pg-all-killed", "pg-sync-promoted"}

// TestFaults: whatever happens to the server, no two believe in a name at once and tokens grow,
// unless its clock was stepped; no holder believes beyond its deadline; and soon after, every name is
// held again, by the nodes that were there before.
func TestFaults(t *testing.T) {
	postgrestest.Skip(t)
	for _, f := range faults() {
		if !tier.Nightly() && !slices.Contains(commitFaults, f.name) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			play(t, f.scenario(), "")
		})
	}
}

// TestATransactionThatHoldsUpIsFound: one that does keep calls waiting.
func TestATransactionThatHoldsUpIsFound(t *testing.T) {
	tier.NightlyOnly(t, "TestShortForms plays scenarios")
	postgrestest.Skip(t)
	run := &scene.Run{Short: true, Out: t.Output()}
	err := scene.Try(func() {
		beside(t.Context(), run, 3*time.Second, 100*time.Millisecond, 2*time.Second, "LOCK TABLE holdfast.session")
	})
	require.ErrorContains(t, err, "beside an idle transaction")
}

func TestRenewalsPerRound(t *testing.T) {
	require.InDelta(t, 100.0, perRound(900, 30*time.Second, 10*time.Second/3), 1e-6)
	require.True(t, math.IsInf(perRound(1, 0, time.Second), 1), "an empty window keeps no bound")
}

func TestJudgeSeesDoublesAndTokensThatGoBack(t *testing.T) {
	a := tenure{Name: "x", Node: "a", Token: 10, First: 0, Last: 5 * time.Second}
	next := func(node string, token lease.Token, first time.Duration) tenure {
		return tenure{Name: "x", Node: node, Token: token, First: first, Last: first + time.Second}
	}
	good := next("b", 11, 6*time.Second)
	require.Equal(t, verdict{terms: 2}, judge([]tenure{a, good}))

	double := next("b", 11, 4500*time.Millisecond)
	want := verdict{terms: 2, doubles: 1, longest: 500 * time.Millisecond}
	require.Equal(t, want, judge([]tenure{a, double}))

	// A third that overlaps the first, over the second.
	v := judge([]tenure{a, next("b", 11, time.Second), next("c", 12, 3*time.Second)})
	require.Equal(t, 2, v.doubles)

	back := next("b", 10, 6*time.Second)
	require.Equal(t, verdict{terms: 2, backward: 1}, judge([]tenure{a, back}), "the same token twice")

	other := double
	other.Name = "y"
	require.Equal(t, verdict{terms: 2}, judge([]tenure{a, other}), "another name")
}

func TestSilenceSeesBeliefsThatLastTooLong(t *testing.T) {
	b := &bed{ttl: 10 * time.Second, gone: time.Second, returning: 30 * time.Second}
	b.journal.list = []*tenure{{Name: "x", Last: 9 * time.Second}}
	require.NoError(t, b.silence())
	b.journal.list = []*tenure{{Name: "x", Last: 11 * time.Second}}
	require.Error(t, b.silence())
	b.returning = 9 * time.Second
	require.NoError(t, b.silence(), "it may have been renewed")
}

func TestFindCountsLosses(t *testing.T) {
	b := &bed{ttl: time.Second, names: map[string]time.Duration{"long": 0, "kept": 0, "short": 1}, gone: 2 * time.Second}
	b.journal.list = []*tenure{
		{Name: "long", Node: "a", Token: 1, First: 0, Last: 3 * time.Second, Reason: "expired"},
		{Name: "kept", Node: "a", Token: 1, First: 0, Last: 9 * time.Second},
		{Name: "short", Node: "a", Token: 1, First: 0, Last: 3 * time.Second, Reason: "expired"},
		{Name: "long", Node: "b", Token: 2, First: 4 * time.Second, Last: 9 * time.Second},
	}
	r := b.find(2*time.Second, 5*time.Second)
	require.Equal(t, 2, r.held)
	require.Equal(t, 1, r.lost)
	require.Equal(t, time.Second, r.believed)
	require.Equal(t, 3*time.Second, r.out)
	require.Equal(t, map[string]int{"expired": 1}, r.reasons)
}

// tale is what processes said, made up; times are in milliseconds, TTLs 2 s.
type tale struct {
	said    map[uint32][]functionCall
	ended   map[uint32]time.Duration
	history []keyChange
}

// call says a call of a process; a token above 0: what it was told, or what the store moved from and
// to. A call that ends at 0 never returns.
func (s *tale) call(process uint32, from, to int, o callOp, owner, target uint16, out callOutcome, tokens ...uint64) {
	at := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	c := functionCall{Process: process, Op: o, Key: "key", Owner: ownerName(owner), To: ownerName(target), TTL: 2 * time.Second, Sent: at(from)}
	s.said[process] = append(s.said[process], c)
	if to == 0 {
		return
	}
	c.End, c.Out, c.Expires = at(to), out, at(from)+c.TTL
	if o == opAcquire && len(tokens) > 0 {
		c.Token = tokens[0]
	}
	if o == opTransfer && len(tokens) > 1 {
		c.Old, c.New = tokens[0], tokens[1]
	}
	s.said[process] = append(s.said[process], c)
}

func (s *tale) dies(process uint32, at int) { s.ended[process] = time.Duration(at) * time.Millisecond }

// frees has the store say, in the first call of a kind of a process, that it removed the record.
func (s *tale) frees(process uint32, o callOp) {
	for i := range s.said[process] {
		if c := &s.said[process][i]; c.Op == o {
			c.Freed = true
		}
	}
}

func (s *tale) put(revision uint64, owner uint16) {
	s.history = append(s.history, keyChange{revision, ownerName(owner)})
}

func ownerName(n uint16) string { return fmt.Sprint("run-", n) }

func (s *tale) gone(revision uint64) {
	s.history = append(s.history, keyChange{revision: revision})
}

func (s *tale) judge() *functionVerdict {
	var calls []functionCall
	for process, said := range s.said {
		calls = append(calls, callsOf(said, s.ended[process])...)
	}
	return judgeFunctions(calls, map[string][]keyChange{"key": s.history})
}

// soundTale is a run in which nothing is wrong: owner 1 has the key, renews it, hands it to owner
// 2, who is queued; that one's process dies as it releases it, and owner 1 has it again when the
// TTL is over.
func soundTale() *tale {
	s := &tale{said: map[uint32][]functionCall{}, ended: map[uint32]time.Duration{}}
	s.call(1, 10, 20, opAcquire, 1, 0, isYes, 5)
	s.call(2, 15, 25, opAcquire, 2, 0, isNo)
	s.call(1, 500, 510, opRenew, 1, 0, isYes)
	s.call(1, 600, 620, opTransfer, 1, 2, isYes, 6, 7)
	s.call(2, 630, 640, opAcquire, 2, 0, isYes, 7)
	s.call(2, 700, 0, opRelease, 2, 0, isUnknown)
	s.dies(2, 720)
	s.dies(1, 800)
	s.call(3, 2700, 2710, opAcquire, 1, 0, isYes, 11)
	s.put(5, 1)
	s.put(6, 1)
	s.put(7, 2)
	s.gone(10)
	s.put(11, 1)
	return s
}

func TestASoundTaleBreaksNothing(t *testing.T) {
	v := soundTale().judge()
	require.Empty(t, v.wrong)
	require.Equal(t, []int{5, 5, 1, 2}, []int{v.promises, v.stood, v.moves, v.changes})
	require.Equal(t, map[string]int{"acquire yes": 3, "acquire no": 1, "renew yes": 1, "transfer yes": 1, "release unknown": 1}, v.calls)
}

// Every planted overlap, gap and token is found, and what may be is not.
func TestPlantedTales(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(*tale)
		found string // the rule; empty: nothing is
	}{
		"another has it at once": {func(s *tale) {
			s.call(4, 100, 110, opAcquire, 3, 0, isYes, 6)
			s.history = slices.Insert(s.history, 1, keyChange{6, ownerName(3)})
			s.history[2].revision = 6
		}, overlaps},
		"another has it before the promise after a renewal ends": {func(s *tale) {
			s.call(2, 1000, 1010, opAcquire, 2, 0, isYes, 8)
			s.call(5, 1020, 1030, opAcquire, 5, 0, isYes, 9)
			s.history = slices.Insert(s.history, 3, keyChange{8, ownerName(2)}, keyChange{9, ownerName(5)})
		}, overlaps},
		"another renews what it does not have": {func(s *tale) { s.call(4, 100, 110, opRenew, 3, 0, isYes) }, overlaps},
		"it is moved to a third": {func(s *tale) {
			s.call(4, 2750, 2760, opTransfer, 5, 4, isYes, 11, 12)
			s.put(12, 4)
		}, overlaps},
		"it was given up in that name, in vain, by who had died before": {func(s *tale) {
			s.call(6, 2600, 0, opRelease, 1, 0, isUnknown)
			s.dies(6, 2699)
			s.call(4, 2800, 2810, opAcquire, 3, 0, isYes, 13)
			s.put(13, 3)
		}, overlaps},
		"it was given up in that name by who has died since": {func(s *tale) {
			s.call(6, 2600, 0, opRelease, 1, 0, isUnknown)
			s.dies(6, 2701)
			s.call(4, 2800, 2810, opAcquire, 3, 0, isYes, 13)
			s.put(13, 3)
		}, ""},
		"it was given up": {func(s *tale) {
			s.call(3, 2720, 2725, opRelease, 1, 0, isYes)
			s.call(4, 2800, 2810, opAcquire, 3, 0, isYes, 13)
			s.put(13, 3)
		}, ""},
		"a lower token": {func(s *tale) {
			s.call(4, 4900, 4910, opAcquire, 3, 0, isYes, 9)
			s.history = slices.Insert(s.history, 3, keyChange{9, ownerName(3)})
		}, shrunk},
		"the same token after a change of owner": {func(s *tale) { s.call(4, 4900, 4910, opAcquire, 2, 0, isYes, 11) }, shrunk},
		"no token":                               {func(s *tale) { s.call(3, 2720, 2730, opAcquire, 1, 0, isYes, 0) }, shrunk},
		"two owners of a token, at no known order": {func(s *tale) {
			s.call(4, 2700, 2711, opAcquire, 3, 0, isYes, 11)
		}, shrunk},
		"a gap before what was moved": {func(s *tale) { s.history = slices.Insert(s.history, 2, keyChange{revision: 6}) }, gaps},
		"a third before what was moved": {func(s *tale) {
			s.history = slices.Insert(s.history, 2, keyChange{6, ownerName(4)})
		}, gaps},
		"moved to another":   {func(s *tale) { s.history[2].owner = ownerName(4) }, gaps},
		"never moved at all": {func(s *tale) { s.history = slices.Delete(s.history, 2, 3) }, gaps},
		"a transfer that removes": {func(s *tale) {
			s.frees(1, opTransfer)
		}, gaps},
		"a release that removes": {func(s *tale) {
			s.frees(2, opRelease)
		}, ""},
		"a token of nobody": {func(s *tale) { s.history[4].revision = 12 }, untrue},
		"another's record":  {func(s *tale) { s.history[4].owner = ownerName(9) }, untrue},
	} {
		t.Run(name, func(t *testing.T) {
			s := soundTale()
			c.plant(s)
			v := s.judge()
			if c.found == "" {
				require.Empty(t, v.wrong)
				return
			}
			require.NotEmpty(t, v.wrong[c.found], "%+v", v)
		})
	}
}

func TestOwnersOfRecords(t *testing.T) {
	owner, err := ownerIn(`hf1 00000000000000aa {"id":"run-7","inc":"owner:run-7","ttl":2000,"at":1}`)
	require.NoError(t, err)
	require.Equal(t, "run-7", owner)
	for _, bad := range []string{"", "hf1", `hf1 {"inc":"x"}`, `hf1 {"id":`} {
		_, err := ownerIn(bad)
		require.Error(t, err)
	}
}
