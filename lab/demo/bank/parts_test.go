//go:build linux

package bank

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

func TestTheLedgerRefusesAStaleWriter(t *testing.T) {
	j := newJournal()
	a, b := writer{"node-1", "account-0", "shard/0", 3}, writer{"node-2", "account-0", "shard/0", 5}
	balance, err := j.open(a)
	require.NoError(t, err)
	require.Equal(t, opening, balance)
	isNew, err := j.post(a, "1-out", -10, opening-10)
	require.NoError(t, err)
	require.True(t, isNew)

	balance, err = j.open(b)
	require.NoError(t, err)
	require.Equal(t, opening-10, balance)
	_, err = j.post(a, "2-out", -10, opening-20)
	require.ErrorIs(t, err, lease.ErrStale)
	require.ErrorIs(t, j.note(a, 1), lease.ErrStale)

	isNew, err = j.post(b, "1-out", -10, opening-20)
	require.NoError(t, err)
	require.False(t, isNew, "it was done before")
	require.NoError(t, j.note(writer{"node-1", "account-1", "shard/1", 4}, 1), "each shard has a fence of its own")

	entries, _ := j.snapshot()
	var outcomes []stage.Outcome
	for _, x := range entries {
		outcomes = append(outcomes, x.Outcome)
	}
	require.Equal(t, []stage.Outcome{stage.Written, stage.Written, stage.Written, stage.Refused, stage.Refused, stage.Repeated, stage.Written}, outcomes)
	require.Equal(t, opening-10, j.balances["account-0"])
}

func TestAFrozenNodeStandsStillUntilItThaws(t *testing.T) {
	var f freezer
	f.midWork("a withdrawal")
	require.False(t, f.thaw(func(int) { t.Error("it was not frozen") }))

	struck, gone := make(chan string, 1), make(chan struct{})
	f.arm(func(what string) { struck <- what })
	f.midWork("") // not what it waits for
	require.Empty(t, struck)
	go func() { f.midWork("withdrawal 7"); close(gone) }()
	require.Equal(t, "withdrawal 7", <-struck)
	select {
	case <-gone:
		t.Fatal("it went on")
	default:
	}
	for !f.thaw(func(inside int) { require.LessOrEqual(t, inside, 1) }) {
	}
	<-gone
	f.midWork("withdrawal 8")
}

func TestWhetherShardsAreSpread(t *testing.T) {
	in := sharding.Info{Shards: 5, Nodes: []sharding.NodeInfo{
		{ID: "a", Hosts: true, Shards: 3}, {ID: "b", Hosts: true, Shards: 2}, {ID: "bank"}}}
	text, even := spread(in, "a", "b")
	require.True(t, even)
	require.Equal(t, "a 3, b 2", text)
	_, even = spread(in, "a", "b", "c")
	require.False(t, even, "c has none")
	_, even = spread(in, "a")
	require.False(t, even, "b has some")
	in.Nodes[0].Shards = 2
	_, even = spread(in, "a", "b")
	require.False(t, even, "one is not hosted")
	in.Nodes[0].Shards, in.Nodes[1].Shards = 4, 1
	_, even = spread(in, "a", "b")
	require.False(t, even, "one has too many")
}
