package lease_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestFenceRefusesLowerTokens(t *testing.T) {
	f := lease.NewFence(5)
	require.Equal(t, lease.Token(5), f.Highest())
	ran := 0
	write := func() error { ran++; return nil }
	require.ErrorIs(t, f.Do(4, write), lease.ErrStale, "what was kept with the data counts")
	require.ErrorIs(t, f.Do(0, write), lease.ErrStale, "no token: nothing to fence by")
	require.ErrorIs(t, lease.NewFence(0).Do(0, write), lease.ErrStale)
	require.Zero(t, ran, "a refused write does not run")
	require.NoError(t, f.Do(5, write), "the holder writes again and again")
	require.NoError(t, f.Advance(7))
	require.ErrorIs(t, f.Do(6, write), lease.ErrStale)
	require.ErrorContains(t, f.Do(6, write), "token 6 after 7")
	require.Equal(t, 1, ran)
	failure := errors.New("disk full")
	require.ErrorIs(t, f.Do(9, func() error { return failure }), failure)
	require.Equal(t, lease.Token(9), f.Highest(), "a write that failed was seen all the same")
	require.Panics(t, func() { f.Do(9, func() error { panic("oops") }) })
	require.NoError(t, f.Do(9, write), "a panic leaves the fence usable")
}

// Whatever the order in which holders come, writes happen in the order of their
// tokens, one at a time.
func TestFenceUnderConcurrency(t *testing.T) {
	f := lease.NewFence(0)
	var wg sync.WaitGroup
	var written []lease.Token // guarded by the fence itself: the race detector judges
	for i := range 50 {
		wg.Go(func() {
			for range 20 {
				token := lease.Token(1 + i + rand.IntN(50))
				err := f.Do(token, func() error { written = append(written, token); return nil })
				if err != nil && !errors.Is(err, lease.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.IsNonDecreasing(t, written)
	require.Equal(t, written[len(written)-1], f.Highest())
}
