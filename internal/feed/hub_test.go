package feed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/feed"
)

// All watches of one time have one run, which ends with the last of them or when it fails.
func TestAHubHasOneRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h feed.Hub[int]
		var runs []*feed.Run[int]
		begin := func(r *feed.Run[int]) { runs = append(runs, r) }
		subscribe := func() (*feed.Watch[int], *feed.Run[int]) {
			w := feed.NewWatch[int]("", false, 0, 10)
			return w, h.Subscribe(w, begin)
		}
		h.Wake() // no run: nothing
		require.False(t, h.Watched())
		a, r := subscribe()
		b, same := subscribe()
		require.Same(t, r, same)
		require.True(t, h.Watched())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, r.Begun(ended))
		close(r.Began)
		require.True(t, r.Begun(t.Context()))
		began := time.Now()
		h.Wake()
		h.Wake()
		require.True(t, r.Rest(time.Hour))
		require.Zero(t, time.Since(began), "it was woken")
		require.True(t, r.Rest(time.Second))
		require.Equal(t, time.Second, time.Since(began), "once")
		h.Unsubscribe(r, a)
		r.Each(func(ws feed.Watches[int]) { ws.Push("x", false, 7) })
		got, err := b.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{7}, got, "b's alone")

		no := errors.New("no")
		r.Fail(no)
		require.False(t, r.Rest(time.Hour))
		_, err = b.Take(t.Context())
		require.ErrorIs(t, err, no)
		c, next := subscribe()
		require.NotSame(t, r, next)
		h.Unsubscribe(r, b)
		require.NoError(t, next.Ctx.Err(), "the former run's last watch is not its")
		h.Unsubscribe(next, c)
		require.Error(t, next.Ctx.Err())
		require.True(t, next.Begun(t.Context()), "it is over, as its watch will be")
		require.False(t, h.Watched())
		require.Len(t, runs, 2)
	})
}
