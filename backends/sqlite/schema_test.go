//go:build linux

package sqlite

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// Tables of which some are missing are refused, named, and left as they are.
func TestATableThatIsMissing(t *testing.T) {
	for _, what := range []string{"TABLE holdfast_meta", "TABLE holdfast_session", "TABLE holdfast_lease", "TABLE holdfast_change",
		"TRIGGER holdfast_put", "TRIGGER holdfast_bad", "TRIGGER holdfast_delete"} {
		path := file(t)
		s := must(New(context.Background(), path))(t)
		defer func() { require.NoError(t, s.Close()) }()
		sess := open(t, s, 1, owner("a"), time.Minute)
		must(users(t, path, "").Exec("DROP " + what))(t)
		brief, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err := New(brief, path) // beside another
		require.Error(t, err, what)
		_, err = s.Acquire(context.Background(), sess, []store.Claim{{Name: "job", Nonce: 1}})
		require.Equal(t, strings.HasPrefix(what, "TABLE"), err != nil, "%s: a Store that is open: %v", what, err)
		require.NoError(t, s.Close())
		_, err = New(context.Background(), path)
		require.ErrorIs(t, err, ErrSchema, what)
		require.ErrorContains(t, err, "holdfast_")
		if what != "TABLE holdfast_meta" {
			require.ErrorContains(t, err, strings.ToLower(what))
		}
	}
}

// Each write looks for the sessions that have ended, and each watch for the next that does: by an index,
// however many there are, also in a file that an older program has made.
func TestEndsAreFoundByAnIndex(t *testing.T) {
	path := file(t)
	for _, older := range []bool{false, true} {
		if older {
			must(users(t, path, "").Exec("DROP INDEX holdfast_session_ends"))(t)
		}
		s := must(New(context.Background(), path))(t)
		for _, q := range []string{"SELECT id FROM holdfast_session WHERE ends <= 1 ORDER BY ends LIMIT 1", "SELECT min(ends) FROM holdfast_session"} {
			var id, parent, unused int
			var plan string
			require.NoError(t, users(t, path, "").QueryRow("EXPLAIN QUERY PLAN "+q).Scan(&id, &parent, &unused, &plan))
			require.Contains(t, plan, "SEARCH holdfast_session USING COVERING INDEX holdfast_session_ends", q)
		}
		require.NoError(t, s.Close())
	}
}
