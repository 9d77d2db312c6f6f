package etcdstore

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// Whatever key stands among those of a shard, it is an id that may be one, somebody
// else's, or no record; and every id is read as it was written.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a", "a%2Fb", "a/b", "%", "%00", "%zz", "\xff", "%FF", "ü", "a+b", "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		s := &Store{prefix: "p/"}
		base := s.markKey("shard/g/t/1")
		id, mine, err := s.parse(base, &mvccpb.KeyValue{Key: []byte(base + rest)})
		switch {
		case err != nil:
			require.ErrorIs(t, err, lease.ErrBadRecord)
			require.False(t, mine)
		case mine:
			require.NoError(t, sharding.ValidateEntityID(id))
		default:
			require.Empty(t, id)
		}
		if sharding.ValidateEntityID(rest) != nil {
			return
		}
		back, mine, err := s.parse(base, &mvccpb.KeyValue{Key: []byte(base + url.PathEscape(rest))})
		require.NoError(t, err)
		require.True(t, mine)
		require.Equal(t, rest, back)
	})
}
