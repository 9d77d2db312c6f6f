package node

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/partition"
)

// In a rollout a node with an older layout does not tell of its own partitions that they have no owner.
func TestPartitionsOfAnotherLayout(t *testing.T) {
	in := partition.Info{Layout: "daemons 3", Counts: "daemons 3", Table: []partition.PartitionInfo{
		{Number: 0, Owner: "a", Phase: "active"}, {Number: 1, Owner: "a", Phase: "stopping"}, {Number: 2}}}
	require.Equal(t, []inquiry.Shard{{N: 1, Phase: "stopping"}, {N: 2}}, typeOf(in).Own)
	in.Counts = "daemons 2"
	require.Equal(t, []inquiry.Shard{{N: 1, Phase: "stopping"}}, typeOf(in).Own)
}
