//go:build linux

package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// When more ends at once than one transaction removes, what is left has ended all the same.
func TestMoreEndsThanOneTransactionRemoves(t *testing.T) {
	ctx := context.Background()
	now := time.Hour
	s, err := newStore(ctx, file(t), clock{boot: "boot", now: func() time.Duration { return now }})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	many := open(t, s, 1, owner("a"), time.Minute)
	claims := make([]store.Claim, 3*sweepShare/2)
	for i := range claims {
		claims[i] = store.Claim{Name: fmt.Sprint("many/", i), Nonce: 1}
	}
	must(s.Acquire(ctx, many, claims))(t)
	now += time.Second
	last := open(t, s, 2, owner("b"), time.Minute)
	r := win(t, s, last, "job")
	now += 2 * time.Minute

	for range 2 { // the first leaves some of the many, and what ended after them
		grants := must(s.Renew(ctx, []store.Session{last}))(t)
		require.ErrorIs(t, grants[0].Err, store.ErrSessionGone)
	}
	var left int
	require.NoError(t, s.writer.get("SELECT count(*) FROM holdfast_session", nil, &left))
	require.Zero(t, left, "two transactions remove all")
	_, err = s.Acquire(ctx, last, []store.Claim{{Name: "more", Nonce: 1}})
	require.ErrorIs(t, err, store.ErrSessionGone)
	next := win(t, s, open(t, s, 3, owner("c"), time.Minute), "job")
	require.Greater(t, next.Token, r.Token)
}
