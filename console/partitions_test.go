package console

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/lease"
)

// hosts is the record of a node that takes part in partitions p, started at a time.
func hosts(id, layout, came string) lease.Record {
	r := held("partition/g/p/host/"+id+"/incarnation-"+id, id, 1)
	r.Metadata = map[string]string{"layout": layout, "came": came}
	return r
}

// owns is what node a tells of partitions p.
func owns(in *seen, shards int, own ...inquiry.Shard) {
	in.answers["incarnation-a"].report.Partitions = []inquiry.Type{{Group: "g", Type: "p", Shards: shards, Own: own}}
}

// From the records alone it is known who owns what, and what goes where; in full from nodes, which tell of
// what is not just active. A sharded type of the same name is another.
func TestPartitionsOfTheRecords(t *testing.T) {
	in := cluster("1000 a acquired partition/g/p/own/0 5\n2000 b acquired partition/g/p/own/1 6\n2500 b acquired partition/g/p/ready/0 9\n3000 b handed_over partition/g/p/own/2 7 a",
		held("member/g/a/incarnation-a", "a", 1), hosts("a", "count 4", "1764000000000000"), hosts("b", "count 4", "1764000000000001"),
		held("partition/g/p/own/0", "a", 5), held("partition/g/p/own/1", "b", 6), held("partition/g/p/own/2", "a", 8),
		held("partition/g/p/ready/0", "b", 9), held("shard/g/p/0", "a", 2))
	s := build(in)
	require.Len(t, s.Types, 2)
	require.Equal(t, "shard", s.Types[0].Kind)
	p := s.Types[1]
	require.Equal(t, []Shard{{Shard: 0, Key: "0", Owner: "a", Token: 5, Since: at(0), To: "b"}, {Shard: 1, Key: "1", Owner: "b", Token: 6, Since: at(0)},
		{Shard: 2, Key: "2", Owner: "a", Token: 8, Since: at(0)}, {Shard: 3, Key: "3"}}, p.Table)
	require.Equal(t, []Move{{Shard: 0, From: "a", To: "b"}}, p.Moves)
	require.Equal(t, []int{4, 3, 1, 1}, []int{p.Shards, p.Hosted, p.Unassigned, p.Moving})
	require.Equal(t, 2, p.Nodes[0].Shards)
	require.True(t, p.Nodes[0].Member)
	require.False(t, p.Nodes[1].Member)
	require.Equal(t, "partition/g/p/own/2", p.Recent[0].Name)
	require.Nil(t, p.Coordinator)
	require.Equal(t, []string{"bad unassigned partition/g/p", "warn unassigned shard/g/p"}, codes(s))
	require.Equal(t, "1 partition has no host", s.Problems[0].Text)
	for _, l := range s.Leases {
		require.NotContains(t, l.Name, "/own/", "they are in the table")
	}
	require.Equal(t, Lane{Name: "partition/g/p", Kind: "shards", Shards: 4, Unhosted: []Unhosted{{at(3000), 1}}}, s.Timeline.Lanes[len(s.Timeline.Lanes)-1])

	owns(&in, 4, inquiry.Shard{N: 2, Key: "2", Phase: "stopping", Stopping: at(0)}, inquiry.Shard{N: 1, Key: "1", Phase: "acquiring", Failures: 3, Error: "no disk"})
	p = build(in).Types[1]
	require.Equal(t, []string{"active", "", "stopping", ""}, []string{p.Table[0].Phase, p.Table[1].Phase, p.Table[2].Phase, p.Table[3].Phase})
	require.Equal(t, Shard{Shard: 1, Key: "1", Owner: "b", Token: 6, Since: at(0), Failures: 3, Error: "a: no disk"}, p.Table[1])
}

// With Keys the rows are sorted by them. A row has no key if neither a record nor a node tells it.
func TestPartitionsWithKeys(t *testing.T) {
	evil := `<b>"x/y"`
	in := cluster("", hosts("a", "keys 4 beef", "1764000000000000"),
		held(named("partition", "g", "p", "own", evil), "a", 5), held("partition/g/p/own/z", "a", 6))
	s := build(in)
	require.Equal(t, []Shard{{Shard: 0, Key: evil, Owner: "a", Token: 5, Since: at(0)}, {Shard: 1, Key: "z", Owner: "a", Token: 6, Since: at(0)},
		{Shard: 2}, {Shard: 3}}, s.Types[0].Table)
	owns(&in, 4, inquiry.Shard{N: 3, Key: "a"})
	s = build(in)
	require.Equal(t, "a", s.Types[0].Table[1].Key)
	require.Equal(t, []int{4, 2, 2}, []int{s.Types[0].Shards, s.Types[0].Hosted, s.Types[0].Unassigned})
}

func TestProblemsOfPartitions(t *testing.T) {
	for name, c := range map[string]struct {
		events  string
		records []lease.Record
		own     []inquiry.Shard
		want    []string
		detail  string
	}{
		"nothing": {records: []lease.Record{hosts("a", "count 1", "2"), held("partition/g/p/own/0", "a", 5)}},
		"none owns one for longer than the TTL": {events: "0 a acquired partition/g/p/own/0 5\n10 a released partition/g/p/own/0 5",
			records: []lease.Record{hosts("a", "count 1", "2")}, want: []string{"bad unassigned partition/g/p"}},
		"an Own that does not return": {records: []lease.Record{hosts("a", "count 1", "2"), held("partition/g/p/own/0", "a", 5)},
			own: []inquiry.Shard{{Key: "0", Phase: "stopping", Stopping: at(0)}}, want: []string{"bad not_stopping partition/g/p/own/0"},
			detail: "Its lease is kept until its Own has returned."},
		"one that was told just now": {records: []lease.Record{hosts("a", "count 1", "2"), held("partition/g/p/own/0", "a", 5)},
			own: []inquiry.Shard{{Key: "0", Phase: "stopping", Stopping: at(55_000)}}},
		"an Own that fails": {records: []lease.Record{hosts("a", "daemons 1", "2"), held("partition/g/p/own/0", "a", 5)},
			own: []inquiry.Shard{{Key: "0", Phase: "active", Failures: 1, Error: "no disk"}}, want: []string{"warn failing partition/g/p/own/0"},
			detail: "1 time in a row. a: no disk."},
		"nodes that differ on the Count": {records: []lease.Record{hosts("a", "count 1", "2"), hosts("b", "count 2", "1"), held("partition/g/p/own/0", "a", 5)},
			want:   []string{"warn layouts partition/g/p"},
			detail: "count 1 counts, as its node was started last: see the layout of the leases partition/g/p/host/…."},
	} {
		t.Run(name, func(t *testing.T) {
			in := cluster(c.events, c.records...)
			owns(&in, 1, c.own...)
			s := build(in)
			require.Equal(t, c.want, codes(s))
			for _, p := range s.Problems {
				require.NotEmpty(t, p.Text)
				if c.detail != "" {
					require.Equal(t, c.detail, p.Detail)
				}
			}
		})
	}
}

// What Config.Text hides is not in the last error of a partition.
func TestErrorsOfPartitionsAreHidden(t *testing.T) {
	in := cluster("", hosts("a", "count 1", "2"), held("partition/g/p/own/0", "a", 5))
	owns(&in, 1, inquiry.Shard{Key: "0", Phase: "active", Failures: 1, Error: "secret"})
	in.cfg.Text = func(string) string { return "…" }
	require.Equal(t, "a: …", build(in).Types[0].Table[0].Error)
}
