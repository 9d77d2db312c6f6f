//go:build linux

package sqlite

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// Names, metadata and owners of the greatest lengths and of odd letters come back as they were.
func TestOddTexts(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, file(t))
	sess := store.Session{ID: math.MaxInt64, TTL: time.Hour, Owner: store.Owner{ID: "'; DROP TABLE holdfast_lease; --", Incarnation: "ü\u2028", Address: strings.Repeat("a", 255)}}
	must(s.OpenSession(ctx, sess))(t)
	names := []string{strings.Repeat("n", store.MaxName), "%_*?[a]", "Job", "job", "jöb", "\u00e9", "e\u0301", "\U0010ffff", "'\"`"}
	for i, name := range names {
		m := map[string]string{"": "", "nul": "a\x00b", "quotes": `'"`, "wide": "\U0010ffff"}
		out, err := s.Acquire(ctx, sess, []store.Claim{{Name: name, Nonce: math.MaxUint64 - uint64(i), Metadata: m}})
		require.NoError(t, err)
		require.True(t, out[0].OK, "%q: %+v", name, out)
		found := must(s.Get(ctx, name))(t)
		require.Len(t, found, 1, "%q", name)
		require.Equal(t, name, found[0].Name)
		require.Equal(t, m, found[0].Metadata)
		require.Equal(t, sess.Owner, found[0].Owner)
		require.Equal(t, sess.ID, found[0].Session)
		require.Equal(t, math.MaxUint64-uint64(i), found[0].Nonce)
		var listed int
		for r, err := range s.List(ctx, store.Query{Prefix: name}) {
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(r.Name, name))
			listed++
		}
		require.NotZero(t, listed)
	}
	for _, bad := range []string{"a\x00b", "\xff", "a\xc3", strings.Repeat("n", store.MaxName+1), ""} {
		out := must(s.Acquire(ctx, sess, []store.Claim{{Name: bad, Nonce: 1}}))(t)
		require.ErrorIs(t, out[0].Err, store.ErrInvalid, "%q", bad)
		found := must(s.Get(ctx, bad))(t)
		require.Empty(t, found, "%q", bad)
		for _, prefix := range []string{bad, bad + "\xff"} {
			for _, err := range s.List(ctx, store.Query{Prefix: prefix}) {
				require.NoError(t, err)
			}
		}
		require.ErrorIs(t, Guard(ctx, begin(t, users(t, s.Path(), "")), ownership{bad, 1}), store.ErrInvalid)
	}
	out, err := s.Acquire(ctx, sess, []store.Claim{{Name: "big", Nonce: 1, Metadata: map[string]string{"x": strings.Repeat("\x01", 1<<20)}}})
	require.NoError(t, err)
	require.True(t, out[0].OK || out[0].Err != nil)
}

// At the end of the numbers calls fail, and nothing is issued twice or below what was.
func TestTheEndOfNumbers(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Hour)
	db := users(t, path, "")
	must(db.ExecContext(ctx, "UPDATE holdfast_meta SET last = ?", int64(math.MaxInt64-1)))(t)
	last := win(t, s, sess, "last")
	require.Equal(t, store.Token(math.MaxInt64), last.Token)
	_, err := s.Acquire(ctx, sess, []store.Claim{{Name: "one more", Nonce: 1}})
	require.Error(t, err)
	must(s.Renew(ctx, []store.Session{sess}))(t)
	found := must(s.Get(ctx, "last", "one more"))(t)
	require.Len(t, found, 1)

	for _, year := range []int{1, 1969, 2300, 9999} { // a time of day that is far off
		other := openAt(t, file(t))
		other.wall = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		sess := open(t, other, 1, owner("a"), time.Hour)
		first := win(t, other, sess, "a")
		require.NotZero(t, first.Token)
		require.Greater(t, win(t, other, sess, "b").Token, first.Token)
	}

	now := time.Duration(math.MaxInt64 - 10)
	late, err := newStore(ctx, file(t), clock{boot: "late", now: func() time.Duration { return now }})
	require.NoError(t, err)
	sess = open(t, late, 1, owner("a"), time.Hour)
	r := win(t, late, sess, "job")
	require.GreaterOrEqual(t, r.Left, time.Duration(0))
	must(late.Renew(ctx, []store.Session{sess}))(t)
	require.NoError(t, late.Close())
}

// A session that was taken away by hand leaves nothing to one that gets its ID.
func TestASessionThatIsTakenAwayByHand(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, file(t))
	db := users(t, s.Path(), "")
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	must(db.ExecContext(ctx, "DELETE FROM holdfast_session"))(t)
	found := must(s.Get(ctx, "job"))(t)
	require.Empty(t, found)
	g := must(s.Renew(ctx, []store.Session{sess}))(t)
	require.ErrorIs(t, g[0].Err, store.ErrSessionGone)
	open(t, s, 1, owner("b"), time.Hour)
	found = must(s.Get(ctx, "job"))(t)
	require.Empty(t, found, "it was told as free")
}
