//go:build linux

package soak

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/sharding"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// replied is an answer to an ask of sender 7 that was sent and came at so many
// milliseconds.
func replied(sent, at float64, seq uint64) seen {
	return seen{entry{at: ms(at), sent: ms(sent), kind: answered, sender: 7, seq: seq}, 0}
}

func TestAsks(t *testing.T) {
	es := []seen{replied(1, 2, 1), replied(10, 14, 2), replied(20, 23, 3), got(3, 0, 9, 7, 1)}
	moves := []span{{ms(10), ms(20)}}
	require.Equal(t, asked{sent: 4, answered: 3, calm: []time.Duration{ms(1), ms(3)}, moving: []time.Duration{ms(4)}},
		judgeAsks(es, map[uint32]uint64{7: 4}, moves))
	es[1].at = es[1].sent + answerWithin + 1
	require.Equal(t, asked{sent: 3, answered: 2, late: 1, calm: []time.Duration{ms(1), ms(3)}}, judgeAsks(es, map[uint32]uint64{7: 3}, moves))
	require.Equal(t, asked{}, judgeAsks(es, nil, nil), "answers to what nobody asked")
}

func TestSilencesOfShardsThatMove(t *testing.T) {
	es := []seen{got(1, 0, 7, 0, 1), got(2, 0, 7, 0, 2), got(9, 1, 8, 0, 3), got(30, 0, 9, 0, 4)}
	other := got(3, 0, 4, 0, 1)
	other.name = 1
	es = append(es, other)
	require.Equal(t, []time.Duration{ms(7)}, shardGaps(es, []span{{ms(2), ms(20)}}))
	require.Equal(t, []time.Duration{ms(7), ms(21)}, shardGaps(es, []span{{ms(2), ms(40)}}))
	require.Empty(t, shardGaps(es, nil))
}

// began is a shard that a node hosts from so many milliseconds on.
func began(at float64, shard uint16, token uint64) entry {
	return entry{at: ms(at), kind: hosted, name: shard, token: token}
}

func TestWhenAllShardsOfTheDeadAreHosted(t *testing.T) {
	es := []seen{{began(1, 0, 1), 0}, {began(1, 1, 2), 0}, {began(40, 1, 5), 1}, {began(30, 0, 4), 1}, {began(50, 0, 6), 2}}
	require.Equal(t, []time.Duration{ms(20)}, judgeDeaths(es, []death{{at: ms(20), shards: []int{0, 1}}}))
	require.Equal(t, []time.Duration{ms(10), 0}, judgeDeaths(es, []death{{at: ms(20), shards: []int{0}}, {at: ms(30)}}))
	require.Equal(t, []time.Duration{ms(5)}, judgeDeaths(es, []death{{at: ms(45), shards: []int{1}}}), "it never was")
}

func TestEntriesAreCounted(t *testing.T) {
	es := []seen{got(1, 0, 7, 0, 1), got(2, 0, 7, 0, 2), replied(1, 2, 1)}
	require.Equal(t, 1, countOf(es, handled, ms(2), ms(3)))
	require.Zero(t, countOf(es, disordered, 0, ms(9)))
}

func TestWhetherShardsAreEven(t *testing.T) {
	for _, c := range []struct {
		has, among []int
		want       bool
	}{
		{[]int{3, 2}, []int{0, 1}, true},
		{[]int{4, 1}, []int{0, 1}, false},
		{[]int{2, 2}, []int{0, 1}, false},
		{[]int{2, 2, 1}, []int{0, 1}, false},
		{[]int{2, 2, 1}, []int{0, 1, 2}, true},
		{[]int{0, 5}, []int{1}, true},
	} {
		require.Equal(t, c.want, even(c.has, 5, c.among), "%v", c)
	}
}

func TestTheViewFollowsWhoHosts(t *testing.T) {
	v := newShardView(&cluster{journals: make([][]*journal, 2)}, 2)
	for i := range v.journals {
		j, err := lab.MakeJournal[entry](t.TempDir()+"/journal", 10)
		require.NoError(t, err)
		defer j.Close()
		v.journals[i] = []*journal{j}
	}
	a, b := v.journals[0][0], v.journals[1][0]
	counts := func() ([]int, time.Duration) { v.refresh(); return v.counts() }

	a.Note(began(1, 0, 11))
	has, since := counts()
	require.Equal(t, []int{1, 0}, has)
	require.Zero(t, since, "one is not hosted")
	a.Note(began(2, 1, 12))
	_, since = counts()
	require.Equal(t, ms(2), since)

	b.Note(began(5, 1, 13)) // the old host says so a moment later
	a.Note(entry{at: ms(6), kind: unhosted, name: 1})
	has, since = counts()
	require.Equal(t, []int{1, 1}, has)
	require.Equal(t, ms(5), since)

	b.Note(entry{at: ms(7), kind: coordinating, token: 20})
	a.Note(entry{at: ms(8), kind: coordinating, token: 19})
	v.refresh()
	require.Equal(t, life{1, 0}, v.boss.life)
	v.died(1)
	has, since = counts()
	require.Equal(t, []int{1, 0}, has)
	require.Zero(t, since)
	a.Note(began(9, 1, 14))
	has, since = counts()
	require.Equal(t, []int{2, 0}, has)
	require.Equal(t, ms(9), since)
	require.Equal(t, 4, v.began)
}

func TestEveryShardHasItsEntities(t *testing.T) {
	ids := entityIDs(16, 3)
	require.Len(t, ids, 48)
	known := map[string]bool{}
	for i, id := range ids {
		require.Equal(t, i/3, sharding.ShardOf(id, 16))
		known[id] = true
	}
	require.Len(t, known, 48)
}

func TestEverySenderHasItsNumber(t *testing.T) {
	known := map[uint32]bool{}
	for life := range 3 {
		for node := range nodesPerLife {
			for number := range askersPerNode {
				for entity := range 4 {
					known[asker{node, life, number, entity}.sender(4)] = true
				}
			}
		}
	}
	require.Len(t, known, 3*nodesPerLife*askersPerNode*4)
	life, err := lifeOf("/tmp/holdfast-soak-7/3-12")
	require.NoError(t, err)
	require.Equal(t, 12, life)
	_, err = lifeOf("/nowhere")
	require.Error(t, err)
}

func TestReceiptsTravel(t *testing.T) {
	var to receipt
	data, err := receiptCodec{}.Marshal(&receipt{1, 2, 3})
	require.NoError(t, err)
	require.NoError(t, receiptCodec{}.Unmarshal(data, &to))
	require.Equal(t, receipt{1, 2, 3}, to)
	require.Error(t, receiptCodec{}.Unmarshal(data[1:], &to))
}

func TestBadFlagsOfShards(t *testing.T) {
	for _, c := range []struct {
		run  check
		args []string
		want string
	}{
		{rolling, []string{"-n", "0"}, "-n must be 1 to 100"},
		{rolling, []string{"-nodes", "10"}, "-nodes 2 to 9"},
		{rolling, []string{"-shards", "1"}, "-shards -nodes to 10000"},
		{shardKills, []string{"-ttl", "1s"}, "-ttl at least 2s"},
		{shardKills, []string{"-rate", "1"}, "-rate 100 to 100000"},
		{shardsCheck, []string{"-n", "1"}, "-n must be -nodes to 50000"},
	} {
		require.ErrorContains(t, c.run(t.Context(), c.args, &report{}), c.want)
	}
}
