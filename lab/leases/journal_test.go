//go:build linux

package leases

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestJudgeSeesDoublesAndTokensThatGoBack(t *testing.T) {
	a := tenure{Name: "x", Node: "a", Token: 10, First: 0, Last: 5 * time.Second}
	next := func(node string, token lease.Token, first time.Duration) tenure {
		return tenure{Name: "x", Node: node, Token: token, First: first, Last: first + time.Second}
	}
	good := next("b", 11, 6*time.Second)
	require.NoError(t, judge([]tenure{a, good}).err())

	double := next("b", 11, 4500*time.Millisecond)
	v := judge([]tenure{a, double})
	require.Equal(t, 1, v.doubles)
	require.Equal(t, 500*time.Millisecond, v.longest)
	require.Error(t, v.err())

	// A third that overlaps the first, over the second.
	v = judge([]tenure{a, next("b", 11, time.Second), next("c", 12, 3*time.Second)})
	require.Equal(t, 2, v.doubles)

	back := next("b", 10, 6*time.Second)
	v = judge([]tenure{a, back})
	require.Equal(t, 1, v.backward, "the same token twice")
	require.Error(t, v.err())

	other := double
	other.Name = "y"
	require.NoError(t, judge([]tenure{a, other}).err(), "another name")
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
