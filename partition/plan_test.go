package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/store"
)

// tableOf has count partitions, which hosts own in turn.
func tableOf(count int, hosts ...string) (t *table, members []membership.Member) {
	t = &table{layout: layout{keys: make([]string, count), number: map[string]int{}}}
	t.clear()
	for _, id := range hosts {
		members = append(members, membership.Member{ID: id, Incarnation: id, Capacity: 1})
		t.hosts[id] = host{owner: lease.Owner{ID: id, Incarnation: id}}
	}
	return t, members
}

// What can't run on a node stays where it runs, and what can does not take its place; if there is no
// other node, it is better than none. The answer is always the same.
func TestWhatIsSickHasItsPlace(t *testing.T) {
	const count = 60
	table, members := tableOf(count, "a", "b", "c")
	for i := range count {
		table.own[i].Owner.Incarnation = "bc"[i%2 : i%2+1]
		if i < 20 {
			table.sick[i] = map[string]bool{"a": true}
		}
	}
	v := table.view(members, time.Second)
	target, err := v.place(placement.Balanced{})
	require.NoError(t, err)
	require.Equal(t, v.held, target)
	for i := range 20 {
		table.own[i].Owner.Incarnation = "" // what had them has gone
	}
	v = table.view(members, time.Second)
	target, err = v.place(placement.Balanced{})
	require.NoError(t, err)
	for range 50 {
		again, _ := v.place(placement.Balanced{})
		require.Equal(t, target, again)
	}
	require.NotContains(t, target[:20], "a")
	v = table.view(members[:1], time.Second)
	target, err = v.place(placement.Balanced{})
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]string{"a"}, count), target)
}

// A node with another list of keys takes its part, and leaves theirs to those with an older one.
func TestAnOlderListKeepsItsPart(t *testing.T) {
	table, members := tableOf(10, "old1", "old2", "new")
	table.newest, table.id = "keys", "keys"
	table.hosts["new"] = host{owner: table.hosts["new"].owner, layout: "keys"}
	for i := range 9 { // the tenth is of the new list alone
		table.own[i].Owner.Incarnation = []string{"old1", "old2"}[i%2]
	}
	part := func() (n int) {
		v := table.view(members, time.Second)
		target, err := v.place(placement.Balanced{})
		require.NoError(t, err)
		for i, to := range target {
			if to == "new" {
				n++
			} else {
				require.Equal(t, v.held[i], to)
			}
		}
		return n
	}
	require.Equal(t, 3, part())
	delete(table.hosts, "old1") // it stops
	require.Equal(t, 6, part())
	table.strict = true
	require.Equal(t, 10, part(), "what a number means is another thing there")
}

// The layout of the node that was started last counts, whatever tokens its leases have.
func TestTheNewestLayout(t *testing.T) {
	table, _ := tableOf(1)
	table.prefix = "p/"
	put := func(id, came, layout string, token lease.Token) {
		table.hear(store.Event{Kind: store.EventPut, Record: lease.Record{Name: "p/host/" + id + "/1", Token: token,
			Owner: lease.Owner{ID: id, Incarnation: "1"}, Metadata: map[string]string{keyCame: came, keyLayout: layout}}})
	}
	put("old", "1764000000000000", "count 8", 1)
	put("new", "1764000000000001", "count 16", 1)
	require.Equal(t, "count 16", table.newest)
	put("old", "1764000000000000", "count 8", 99)
	require.Equal(t, "count 16", table.newest, "it came again, and was not started again")
	table.synced = true
	table.hear(store.Event{Kind: store.EventReset})
	require.Empty(t, table.newest)
	require.True(t, table.synced, "there is no second EventSynced")
}

// A ready lease counts as the owner's, unless it can't run there.
func TestWhoIsReadyCounts(t *testing.T) {
	table, members := tableOf(2, "a", "b")
	for i := range 2 {
		table.own[i].Owner.Incarnation, table.ready[i].Owner.Incarnation = "a", "b"
	}
	table.sick[1] = map[string]bool{"b": true}
	v := table.view(members, time.Second)
	require.Equal(t, []string{"b", "a"}, v.Owners)
	require.Equal(t, []string{"a", "a"}, v.held)
	delete(table.hosts, "b") // it is drained, and has not withdrawn yet
	require.Equal(t, []string{"a", "a"}, table.view(members, time.Second).Owners)
}

func BenchmarkPlace(b *testing.B) {
	for _, count := range []int{256, 10_000} {
		b.Run(fmt.Sprint("count=", count), func(b *testing.B) {
			table, members := tableOf(count, names(10)...)
			b.ReportAllocs()
			for b.Loop() {
				v := table.view(members, time.Second)
				if _, err := v.place(placement.Balanced{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
