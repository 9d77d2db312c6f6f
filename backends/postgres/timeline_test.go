package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// TestTimelines: of one database system only later ones are used; of two none is compared, and what
// was used of the one is remembered beside the other.
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
	require.ErrorIs(t, p.older(server{7, 2}), ErrOldPrimary)
	require.Nil(t, p.checked(), "of what was refused")
	require.EqualValues(t, 3, p.highest())
	require.NoError(t, p.use(server{7, 4}))
	require.Equal(t, server{7, 4}, *p.checked())
	require.NoError(t, p.use(server{8, 1}), "another system")
	require.EqualValues(t, 1, p.highest())
	require.ErrorIs(t, p.use(server{7, 3}), ErrOldPrimary, "after a visit to another system")
	require.EqualValues(t, 1, p.highest(), "of what was refused")
	require.NoError(t, p.use(server{7, 4}))
	require.EqualValues(t, 4, p.highest())
	p.accept()
	require.Nil(t, p.checked())
	require.Zero(t, p.highest())
	require.NoError(t, p.use(server{7, 1}))
}

// TestManySystems: those that were used last are remembered, and no more than a few.
func TestManySystems(t *testing.T) {
	t.Parallel()
	var p primary
	require.NoError(t, p.use(server{7, 3}))
	for i := range int64(100) {
		require.NoError(t, p.use(server{100 + i, 2}))
		require.NoError(t, p.use(server{7, 3}))
		require.LessOrEqual(t, len(p.used), systems)
	}
	require.ErrorIs(t, p.older(server{7, 2}), ErrOldPrimary)
	require.ErrorIs(t, p.older(server{199, 1}), ErrOldPrimary)
	require.NoError(t, p.older(server{100, 1}), "used too long ago")
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
	is, latest := told(), s.primary.latestLocked(7)
	s.primary.mu.Unlock()
	require.True(t, is)
	require.EqualValues(t, 2, latest)
	require.NoError(t, <-done)
	require.NoError(t, s.primary.use(server{7, 1}))
}
