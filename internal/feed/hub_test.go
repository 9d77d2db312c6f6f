package feed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// All watches of one time have one run, which ends with the last of them or when it fails.
func TestAHubHasOneRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h feed.Hub
		var runs []*feed.Run
		begin := func(r *feed.Run) { runs = append(runs, r) }
		subscribe := func() (*feed.Watch[feed.Change], *feed.Run) {
			w := feed.NewWatch[feed.Change](store.Scope{}, 10)
			return w, h.Subscribe(w, begin)
		}
		h.Wake() // no run: nothing
		require.Zero(t, h.Watches())
		a, r := subscribe()
		b, same := subscribe()
		require.Same(t, r, same)
		require.Equal(t, 2, h.Watches())
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
		r.Push([]feed.Change{{Seq: 7}})
		got, err := b.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, []feed.Change{{Seq: 7}}, got, "b's alone")

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
		require.Zero(t, h.Watches())
		require.Len(t, runs, 2)
	})
}

// A run ends by an error that stays, or that lasts.
func TestWhatEndsARun(t *testing.T) {
	lost, passing := errors.New("lost"), errors.New("passing")
	for what, x := range map[string]struct {
		err   error
		after time.Duration
		ends  bool
	}{
		"passing":       {passing, 10 * time.Second, false},
		"it lasts":      {passing, 10*time.Second + 1, true},
		"lost":          {fmt.Errorf("%w: so", lost), 0, true},
		"denied":        {store.ErrDenied, 0, true},
		"none, however": {nil, time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var h feed.Hub
			w := feed.NewWatch[feed.Change](store.Scope{}, 10)
			r := h.Subscribe(w, func(*feed.Run) {})
			time.Sleep(time.Second)
			require.True(t, r.Tried(nil, lost, zap.NewNop()))
			time.Sleep(x.after)
			require.Equal(t, x.err == nil, r.Tried(x.err, lost, zap.NewNop()), what)
			require.Equal(t, x.ends, r.Ctx.Err() != nil, what)
			h.Fail(lost)
			_, err := w.Take(t.Context())
			if !x.ends {
				x.err = lost
			}
			require.ErrorIs(t, err, x.err, what)
		})
	}
}

// A watch that needs signs of life gets one in time, and shortens the pauses of the reader.
func TestSignsOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h feed.Hub
		w := feed.NewWatch[feed.Change](store.Scope{Progress: 8 * time.Second}, 10)
		r := h.Subscribe(w, func(*feed.Run) {})
		h.Subscribe(feed.NewWatch[feed.Change](store.Scope{}, 10), nil)
		require.Equal(t, 2*time.Second, r.Within(time.Minute, 4))
		require.Equal(t, time.Second, r.Within(time.Second, 4))
		time.Sleep(3 * time.Second)
		r.Reassure()
		time.Sleep(time.Second)
		r.Reassure()
		got, err := w.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, []feed.Change{{Event: store.Event{Kind: store.EventProgress}}}, got)
	})
}
