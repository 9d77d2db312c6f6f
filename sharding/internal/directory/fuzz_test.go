package directory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Whatever stands in the records of a type, what is made of them does not panic and
// keeps within its bounds: a number of shards is one that can be, tokens of a shard
// never go back, and only nodes whose record has their name take part.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 5, 1, 1, 2, 6, 0, 2, 3, 4, 0}, "shard/g/t/1", "n", "n-1", "4", "1")
	f.Add([]byte{0, 0, 5, 0, 0, 0, 3, 0, 0, 64, 0, 0}, "shard/g/t/01", "", "", "65537", "")
	f.Add([]byte{1, 0, 9, 0, 1, 64, 9, 0}, "region/g/t/n/n-1", "n", "n-1", "-4", "x")
	f.Fuzz(func(t *testing.T, script []byte, name, id, incarnation, count, hosts string) {
		n, err := NamesOf("g", "t")
		require.NoError(t, err)
		table := New(Config{Names: n, Shards: 4, Name: n.Shard, Self: "self", Log: zap.NewNop(),
			Elapsed: func() time.Duration { return 1 }, Coordinator: func() {}, Reset: func() {}, Changed: func() {},
			Shard: func(i int, rec lease.Record, known bool) {
				require.True(t, i < 4 && (!known || rec.Name == n.Shard(i)))
			}})
		owner := lease.Owner{ID: id, Incarnation: incarnation}
		for len(script) >= 4 {
			what, kind, token, shard := script[0], script[1], lease.Token(script[2]), script[3]
			script = script[4:]
			rec := lease.Record{Name: name, Owner: owner, Token: token, Metadata: map[string]string{keyShards: count,
				keyHosts: hosts}}
			if what&0x80 != 0 {
				rec.Metadata = Metadata(4, true)
			}
			if got, err := CountOf(rec); err == nil {
				require.True(t, got >= 1 && got <= MaxShards)
			} else {
				require.ErrorIs(t, err, lease.ErrBadRecord)
			}
			ev := store.Event{Kind: store.EventKind(kind % 5), Revision: token}
			before := table.All()
			switch what & 0x7f % 4 {
			case 0:
				if shard&1 != 0 {
					rec.Name = n.Shard(int(shard>>1) % 5)
				}
				ev.Record = rec
				table.onShard(ev)
			case 1:
				if own, err := n.Region(owner); err == nil && shard&1 != 0 {
					rec.Name = own
				}
				ev.Record = rec
				table.onRegion(ev)
			default:
				if shard&1 != 0 {
					rec.Name = n.Coordinator
				}
				ev.Record = rec
				table.onCoordinator(ev)
			}
			for i, st := range table.All() {
				require.GreaterOrEqual(t, st.Last, before[i].Last)
				require.True(t, !st.Held || st.Record.Name == n.Shard(i))
			}
			_, _ = table.Coordinator()
			for _, g := range table.Participants(false) {
				own, err := n.Region(g.Owner)
				require.NoError(t, err)
				require.NotEmpty(t, own)
			}
		}
		for i := range 4 { // shards' names are read as they are written, and no others
			back, ok := n.Number(n.Shard(i), 4)
			require.True(t, ok)
			require.Equal(t, i, back)
		}
		if i, ok := n.Number(name, 4); ok {
			require.Equal(t, n.Shard(i), name)
		}
	})
}
