package barelease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

// table is what two holders write to, in turn. It remembers the highest token, if its fence is
// asked.
type table struct {
	fence *lease.Fence
	last  string
}

func (x *table) write(who string) func() error { return func() error { x.last = who; return nil } }

// What docs/own-lease.md says of a lease without tokens: a process that is stopped between its
// question and its write, and goes on when another holds the name, writes over what that
// has written. With tokens the resource refuses it.
func TestWithoutTokensALateWriteLands(t *testing.T) {
	for _, x := range []struct {
		name  string
		of    leasetest.BareMaker
		token bool
	}{{"bare", bare, false}, {"with tokens", ofKeepers, true}} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, data := x.of(t), table{fence: lease.NewFence(0)}
				a, b := w.Lease(), w.Lease()
				first := hold(t, a)
				require.True(t, first.CheckAlive(), "it may write: the last that it looks at")
				w.Pause(a, 2*w.TTL, func() {
					second := hold(t, b)
					require.Equal(t, x.token, data.fence.Do(second.Token(), data.write("b")) == nil)
					if !x.token { // no fence takes it: it can only be written without
						require.NoError(t, data.write("b")())
					}

					err := data.fence.Do(first.Token(), data.write("a")) // late
					require.ErrorIs(t, err, lease.ErrStale)
					if !x.token {
						require.NoError(t, data.write("a")())
					}
				})
				want := "b"
				if !x.token {
					want = "a"
				}
				require.Equal(t, want, data.last)
				require.False(t, first.CheckAlive(), "it learns of it too late")
				require.NoError(t, b.Release(t.Context()))
			})
		})
	}
}

// hold acquires a lease and returns its term.
func hold(t *testing.T, l lease.Lease) lease.Term {
	t.Helper()
	won, err := l.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	term, stop := lease.TermOf(l)
	t.Cleanup(stop)
	return term
}

// Run needs no more than the four methods, and no tokens.
func TestRunUnderABareLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := bare(t)
		a, b := w.Lease(), w.Lease()
		hold(t, a)
		time.AfterFunc(ttl, func() { _ = a.Release(t.Context()) })
		require.NoError(t, lease.Run(t.Context(), b, func(_ context.Context, term lease.Term) error {
			require.Zero(t, term.Token())
			require.Equal(t, "job", term.Name())
			require.False(t, a.CheckAlive())
			return nil
		}))
		require.False(t, b.CheckAlive())
	})
}
