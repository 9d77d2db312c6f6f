package postgres

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

func TestGapsAreFollowed(t *testing.T) {
	g := gaps{last: 10}
	require.NoError(t, g.read(nil, []int64{11, 14}))
	require.Equal(t, []int64{12, 13}, g.asked())
	require.EqualValues(t, 11, g.floor())
	// Noted with the writers of the next read; those that come later don't count.
	require.NoError(t, g.read([]string{"3/1", "4/1"}, []int64{15}))
	require.NoError(t, g.read([]string{"4/1", "5/1"}, nil))
	require.Equal(t, []int64{12, 13}, g.asked())
	require.NoError(t, g.read([]string{"4/1"}, []int64{13}))
	require.Equal(t, []int64{12}, g.asked())
	require.NoError(t, g.read([]string{"5/1"}, nil))
	require.Empty(t, g.asked(), "its writers have ended, and it did not come: it was rolled back")
	require.EqualValues(t, 15, g.floor())

	// No writer is under way at all: what is missing was rolled back before.
	require.NoError(t, g.read(nil, []int64{20}))
	require.NoError(t, g.read(nil, nil))
	require.Empty(t, g.asked())

	require.ErrorIs(t, g.read(nil, []int64{20 + mostMissing + 1}), ErrWatchLost)
}

// TestGapsOfAnyHistory: writers take numbers, commit or roll back at any moment, and readers read at
// any: each number that was committed is found exactly once, and nothing is missed for ever.
func TestGapsOfAnyHistory(t *testing.T) {
	for range 300 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		type writer struct {
			name  string
			taken []int64
		}
		var under []writer
		visible := map[int64]bool{}
		var next, committed int64
		g, found := gaps{}, map[int64]int{}
		read := func() {
			asked := g.asked()
			var writers []string
			if len(asked) > 0 {
				for _, w := range under {
					writers = append(writers, w.name)
				}
			}
			if rng.IntN(2) == 0 && len(under) > 0 { // one ends between the two statements of a read
				i := rng.IntN(len(under))
				for _, n := range under[i].taken {
					visible[n] = true
					committed++
				}
				under = slices.Delete(under, i, i+1)
			}
			var page []int64
			for n := range visible {
				if n > g.last || slices.Contains(asked, n) {
					page = append(page, n)
				}
			}
			slices.Sort(page)
			for _, n := range page {
				found[n]++
			}
			require.NoError(t, g.read(writers, page), "seed %d", seed)
		}
		for step := range 200 {
			switch k := rng.IntN(5); {
			case k == 0:
				under = append(under, writer{name: strconv.Itoa(step)})
			case k == 1 && len(under) > 0:
				next++
				w := &under[rng.IntN(len(under))]
				w.taken = append(w.taken, next)
			case k == 2 && len(under) > 0:
				i := rng.IntN(len(under))
				if rng.IntN(3) > 0 {
					for _, n := range under[i].taken {
						visible[n] = true
						committed++
					}
				}
				under = slices.Delete(under, i, i+1)
			case k >= 3:
				read()
			}
		}
		under = nil
		for range 3 {
			read()
		}
		require.Len(t, found, int(committed), "seed %d: changes were missed", seed)
		for n, times := range found {
			require.Equal(t, 1, times, "seed %d: number %d", seed, n)
		}
		require.Empty(t, g.asked(), "seed %d", seed)
	}
}

// TestTimelines: of one database system only later ones are used; of two none is compared.
func TestTimelines(t *testing.T) {
	t.Parallel()
	var p primary
	require.NoError(t, p.use(server{7, 3}))
	require.NoError(t, p.use(server{7, 3}))
	require.Equal(t, server{7, 3}, *p.checked())
	p.forget()
	require.Nil(t, p.checked())
	err := p.use(server{7, 2})
	require.ErrorIs(t, err, ErrOldPrimary)
	require.ErrorIs(t, err, store.ErrDenied)
	require.Nil(t, p.checked(), "of what was refused")
	require.Equal(t, server{7, 3}, p.last())
	require.NoError(t, p.use(server{7, 4}))
	require.Equal(t, server{7, 4}, *p.checked())
	require.NoError(t, p.use(server{8, 1}), "another system")
	require.Equal(t, server{8, 1}, p.last())
	p.accept()
	require.Nil(t, p.checked())
	require.Zero(t, p.last())
	require.NoError(t, p.use(server{7, 1}))
}

// TestAcceptedIsToldFirst: no server that was refused before is used until the Keepers can learn, with
// its first answer, that it was accepted.
func TestAcceptedIsToldFirst(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	s, err := New(pool)
	require.NoError(t, err)
	require.NoError(t, s.primary.use(server{7, 2}))
	s.primary.mu.Lock()
	done := make(chan error, 1)
	go func() { done <- s.AcceptHistory(context.Background()) }()
	told := func() bool { return s.Accepted() == 1 }
	for end := time.Now().Add(30 * time.Second); !told() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	is, used := told(), s.primary.used
	s.primary.mu.Unlock()
	require.True(t, is)
	require.Equal(t, server{7, 2}, used)
	require.NoError(t, <-done)
	require.NoError(t, s.primary.use(server{7, 1}))
}
