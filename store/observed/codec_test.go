package observed

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// A name is a key that no other name has, made of what every store can hold, and
// what it begins with is what its key begins with.
func FuzzKey(f *testing.F) {
	f.Add("job/Report", "job/")
	f.Add("a_2f", "a/")
	f.Add("../..//\\%*?[]{}'\" :", "\xff")
	f.Add("é", "e\u0301")
	f.Fuzz(func(t *testing.T, a, b string) {
		key := escape(a)
		require.Empty(t, strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-_"))
		name, ok := unescape(key)
		require.True(t, ok)
		require.Equal(t, a, name)
		require.Equal(t, a == b, key == escape(b))
		require.Equal(t, strings.HasPrefix(a, b), strings.HasPrefix(key, escape(b)))
		if name, ok := unescape(b); ok {
			require.Equal(t, b, escape(name))
		}
	})
}

// What stands under a name is no record, or one that is written again as it was read.
func FuzzRecord(f *testing.F) {
	good := encode(record{
		Format: format, Name: "n", Token: 1, Session: 2, Life: math.MaxUint64, Nonce: math.MaxUint64,
		Metadata: map[string]string{"k": "v"},
	})
	f.Add(good, true)
	f.Add([]byte(`{"v":1,"name":"n","token":"0","session":"2","life":"3","nonce":"4"}`), false)
	f.Add([]byte(`{"v":1,"name":"n","token":"9223372036854775808","session":"2","life":"3","nonce":"4"}`), true)
	f.Add([]byte(`{"v":1,"name":"n","token":"1","session":"-2","life":"3","nonce":"4"}`), true)
	f.Add([]byte(`{"v":2,"name":"n","token":"1"}`), true)
	f.Add([]byte(`{"v":1,"name":"m","token":"1"}`), true)
	f.Add([]byte(`{"v":1,"name":"n","token":1}`), true)
	f.Add([]byte(`null`), false)
	f.Fuzz(func(t *testing.T, value []byte, counted bool) {
		r, err := decodeRecord("n", value, counted)
		if err != nil {
			require.ErrorIs(t, err, store.ErrBadRecord)
			require.Equal(t, record{Name: "n"}, r)
			return
		}
		require.Equal(t, "n", r.Name)
		require.Equal(t, counted, r.Token > 0)
		same, err := decodeRecord("n", encode(r), counted)
		require.NoError(t, err)
		if len(r.Metadata) == 0 {
			r.Metadata = nil
		}
		require.Equal(t, r, same)
	})
}

func FuzzSession(f *testing.F) {
	good := encode(session{
		Format: format, ID: "a", Incarnation: "i", Address: "h:1", TTL: 1, Life: math.MaxUint64, Beat: math.MaxUint64,
	})
	f.Add(good)
	f.Add([]byte(`{"v":1,"inc":"i","ttl":"0"}`))
	f.Add([]byte(`{"v":1,"ttl":"1"}`))
	f.Add([]byte(`{"v":0,"inc":"i","ttl":"1"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, value []byte) {
		o, err := decodeSession(value)
		if err != nil {
			require.ErrorIs(t, err, store.ErrBadRecord)
			require.Zero(t, o)
			return
		}
		require.Positive(t, o.TTL)
		require.NotEmpty(t, o.Incarnation)
		same, err := decodeSession(encode(o))
		require.NoError(t, err)
		require.Equal(t, o, same)
	})
}

func TestWaits(t *testing.T) {
	require.EqualValues(t, 1100, wait(1000))
	require.EqualValues(t, 133, wait(121))
	require.EqualValues(t, math.MaxInt64, wait(math.MaxInt64))
	require.Greater(t, wait(math.MaxInt64/2), store.Session{TTL: math.MaxInt64 / 2}.TTL)
}
