//go:build unix

package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// TestRenewOfSeveralIncarnations: of sessions with one id the one that lives is told so, and no
// other, in whatever order they come.
func TestRenewOfSeveralIncarnations(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	lives, more := session(t, s, "a"), session(t, s, "b")
	other := lives
	other.Owner.Incarnation += "-before"
	third := lives
	third.Owner.Incarnation += "-after"
	for _, order := range [][]store.Session{{lives, other}, {other, lives}, {other, more, third, lives, lives, other, more}} {
		grants := must(s.Renew(t.Context(), order))(t)
		require.Len(t, grants, len(order))
		for i, x := range order {
			if x.Owner == lives.Owner || x.Owner == more.Owner {
				require.NoError(t, grants[i].Err, i)
				require.Equal(t, lives.TTL, grants[i].TTL, i)
			} else {
				require.ErrorIs(t, grants[i].Err, store.ErrSessionGone, i)
				require.Zero(t, grants[i].TTL, i)
			}
		}
	}
}
