package etcd

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// Versions without the time of the grant read records that have it, and the other way round.
func TestOtherVersionsReadTheGrant(t *testing.T) {
	s, at := &records{conn: conn{prefix: "p/"}}, time.UnixMilli(1_700_000_000_123)
	meta := map[string]string{"at": "5", "x": `a,"at":7}`}
	for _, m := range []map[string]string{nil, meta} {
		v, err := s.encode(7, store.Owner{ID: "n", Incarnation: "i", Address: "h:1"}, time.Second, m)
		require.NoError(t, err)
		old := must(s.decode(keyValue(v)))(t)
		require.True(t, old.Granted.IsZero())
		rec := must(s.decode(keyValue(stamp(v, at))))(t)
		require.True(t, rec.Granted.Equal(at))
		rec.Granted = old.Granted
		require.Equal(t, old, rec)

		var b body // as a former version reads it
		require.NoError(t, json.Unmarshal([]byte(stamp(v, at)[jsonStart:]), &b))
		require.Equal(t, body{"n", "i", "h:1", 1000, m}, b)
	}
	for _, odd := range []string{`{"inc":"i","x":{"b":1,"at":5}}`, `{"inc":"i","at":"soon"}`, `{"inc":"i","at":1.5}`} {
		rec, err := s.decode(keyValue(noncePrefix(7) + odd))
		require.NoError(t, err, odd)
		require.True(t, rec.Granted.IsZero(), odd)
	}
	_, err := s.decode(keyValue(noncePrefix(7) + `{"inc":"i","x":{"b":1,"at":5}`))
	require.ErrorIs(t, err, store.ErrBadRecord)
}
