package feed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

func TestAWatchTakesWaitingEvents(t *testing.T) {
	w := feed.NewWatch[int](store.Scope{Prefix: "a/", Deletions: true}, 3)
	ws := feed.Watches[int]{w: {}}
	ws.Push("a/1", true, 1)
	ws.Push("a/1", false, 7) // deletions alone
	ws.Push("b/1", true, 7)
	ws.Reassure(time.Now().Add(time.Hour), 7) // it needs none
	w.Push(2)
	got, err := w.Take(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, got)
	synctest.Test(t, func(t *testing.T) {
		w := feed.NewWatch[int](store.Scope{}, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.Push(1)
		_, err = w.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "a context that is done comes first")
	})
}

func TestAWatchThatIsTooSlowEnds(t *testing.T) {
	w := feed.NewWatch[int](store.Scope{Prefix: "a/"}, 3)
	for i := range 5 {
		w.Push(i)
	}
	for range 2 {
		got, err := w.Take(t.Context())
		require.Empty(t, got)
		require.ErrorIs(t, err, feed.ErrOverrun)
		require.EqualError(t, err, `lease watch overrun: more than 3 changes under "a/" waited`)
		w.Fail(errors.New("later"))
	}
}

func TestAWatchFailsBehindWaitingEvents(t *testing.T) {
	w := feed.NewWatch[int](store.Scope{}, 3)
	w.Push(1)
	failure := errors.New("disk")
	w.Fail(failure)
	w.Fail(errors.New("later"))
	w.Push(2)
	got, err := w.Take(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1}, got)
	_, err = w.Take(t.Context())
	require.Equal(t, failure, err)
}
