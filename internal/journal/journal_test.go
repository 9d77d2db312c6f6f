package journal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/journal"
)

// Many events of one class leave the others theirs, and what was dropped is known.
func TestShardsLeaveSingletonsTheirEvents(t *testing.T) {
	var j journal.Journal
	began := time.Now()
	j.Add(journal.Event{At: began, Kind: journal.Acquired, Name: "singleton/a", Token: 1})
	events, missing := j.Since(0, began, 100)
	require.Len(t, events, 1)
	require.False(t, missing)
	for i := range 10_000 {
		j.Add(journal.Event{At: began.Add(time.Duration(i)), Kind: "hosted", Name: fmt.Sprint("shard/g/t/", i)})
	}
	events, missing = j.Since(0, began, 1<<20)
	require.True(t, missing)
	require.Equal(t, "singleton/a", events[0].Name)
	require.Len(t, events, 1+2048)
	require.EqualValues(t, 10_001, events[2048].Number)
	for i := 1; i < len(events); i++ {
		require.Less(t, events[i-1].Number, events[i].Number)
	}
	later, missing := j.Since(10_000, began, 100)
	require.Len(t, later, 1)
	require.False(t, missing)
	_, missing = j.Since(0, began.Add(time.Hour), 100)
	require.False(t, missing, "what was dropped is older")
	latest, missing := j.Since(9000, began, 10)
	require.Len(t, latest, 10)
	require.EqualValues(t, 10_001, latest[9].Number)
	require.True(t, missing)
}

// Several watches tell of a name, some of them late: what they tell then is no news.
func TestALateWatchTellsNoNews(t *testing.T) {
	var j journal.Journal
	at := time.Now()
	j.See(at, "singleton/x", 3, "a")
	j.Free(at, "singleton/x", 4)
	j.See(at, "singleton/x", 5, "b")
	j.Free(at, "singleton/x", 4)
	j.See(at, "singleton/x", 5, "b")
	events, _ := j.Since(0, at, 10)
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	require.Equal(t, []string{journal.Seen, journal.SeenFree, journal.Seen}, kinds)
}

// Names that are never told to be free leave new ones their place.
func TestNamesThatAreNotSeenToEnd(t *testing.T) {
	var j journal.Journal
	at := time.Now()
	for i := range 5000 {
		j.See(at, fmt.Sprint("member/g/a/", i), uint64(i+1), "a")
	}
	events, _ := j.Since(0, at, 10_000)
	require.Equal(t, "member/g/a/4999", events[len(events)-1].Name)
}

func TestKinds(t *testing.T) {
	for name, kind := range map[string]string{"singleton/a": "singleton", "shard/g/t/1": "shard", "singleton": "application", "outbox/x": "application",
		"member/g/a/1": "member", "leader/g": "leader", "partition/g/p/own/1": "partition"} {
		require.Equal(t, kind, journal.KindOf(name), name)
	}
	var none *journal.Journal
	none.Add(journal.Event{})
	events, missing := none.Since(0, time.Time{}, 1)
	require.Empty(t, events)
	require.False(t, missing)
}

func BenchmarkAdd(b *testing.B) {
	var j journal.Journal
	at := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		j.Add(journal.Event{At: at, Kind: journal.Acquired, Name: "outbox/orders", Token: 7})
	}
}
