package directory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// A node with another number of shards may hold all of them, and many may differ: the log has a few
// lines.
func TestLinesOfAnotherNumberOfShards(t *testing.T) {
	core, lines := observer.New(zap.WarnLevel)
	names, err := NamesOf("g", "account")
	require.NoError(t, err)
	now := time.Second
	table := New(Config{Names: names, Shards: 100, Log: zap.New(core), Elapsed: func() time.Duration { return now },
		Changed: func() {}})
	put := func(i int, life string) {
		table.onShard(store.Event{Kind: store.EventPut, Record: lease.Record{Name: names.Shard(i),
			Owner: lease.Owner{ID: "z", Incarnation: life}, Token: lease.Token(i + 1), Metadata: map[string]string{keyShards: "256"}}})
	}
	for i := range 256 {
		put(i, fmt.Sprint(i))
	}
	require.Len(t, lines.All(), boundary.Burst)
	now += boundary.Every
	put(1, "the last")
	all := lines.All()
	require.Len(t, all, boundary.Burst+1)
	require.EqualValues(t, 256-boundary.Burst, all[boundary.Burst].ContextMap()["missed"])
	require.False(t, table.Shard(1).Held, "such a record does not count")
}
