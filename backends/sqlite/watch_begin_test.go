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

// stream has a watch's events come one by one, with the error that ends it as the last one's name.
func stream(t *testing.T, s *Store, deletions bool) <-chan string {
	ctx, cancel := context.WithCancel(context.Background())
	told := make(chan string, 100)
	go func() {
		defer close(told)
		for e, err := range s.Watch(ctx, store.Scope{Deletions: deletions}) {
			if err != nil {
				told <- err.Error()
				return
			}
			told <- fmt.Sprint(e.Kind, e.Record.Name)
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range told {
		}
	})
	return told
}

func next(t *testing.T, told <-chan string) string {
	t.Helper()
	select {
	case e := <-told:
		return e
	case <-time.After(soon):
		require.Fail(t, "nothing is told")
		return ""
	}
}

// A watch begins without the write lock, where nothing has run out: neither does it wait for one
// who writes, nor does a renewal wait until it has read all.
func TestAWatchBeginsBesideWriters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	mine := win(t, s, sess, "job")
	put, synced := fmt.Sprint(store.EventPut, "job"), fmt.Sprint(store.EventSynced)
	c := connection(t, s.Path(), "BEGIN IMMEDIATE")
	all, deletions := stream(t, s, false), stream(t, s, true)
	require.Equal(t, put, next(t, all))
	require.Equal(t, synced, next(t, all))
	require.Equal(t, synced, next(t, deletions))
	must(c.ExecContext(ctx, "ROLLBACK"))(t)
	must(s.Release(ctx, []store.Held{mine.Held()}))(t)
	for _, told := range []<-chan string{all, deletions} {
		require.Equal(t, fmt.Sprint(store.EventDelete, "job"), next(t, told))
	}
}

// What had run out when a watch began, and was removed after, is not told: it was not in the
// snapshot. What comes under its name is told, to its end.
func TestAWatchBeginsBeforeARemoval(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	dead := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, dead, "dead")
	sess := open(t, s, 2, owner("b"), time.Minute)
	live := win(t, s, sess, "live")
	c := connection(t, s.Path(), runOut(dead), "BEGIN IMMEDIATE")
	all, deletions := stream(t, s, false), stream(t, s, true)
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, all, "whether it has ended is not known")
	require.Empty(t, deletions)
	must(c.ExecContext(ctx, "ROLLBACK"))(t)
	require.Equal(t, fmt.Sprint(store.EventPut, "live"), next(t, all))
	require.Equal(t, fmt.Sprint(store.EventSynced), next(t, all))
	require.Equal(t, fmt.Sprint(store.EventSynced), next(t, deletions))

	again := win(t, s, sess, "dead") // if it was not removed before, it is now
	must(s.Release(ctx, []store.Held{again.Held(), live.Held()}))(t)
	require.Equal(t, fmt.Sprint(store.EventPut, "dead"), next(t, all))
	for _, told := range []<-chan string{all, deletions} {
		require.Equal(t, fmt.Sprint(store.EventDelete, "dead"), next(t, told))
		require.Equal(t, fmt.Sprint(store.EventDelete, "live"), next(t, told))
	}
	require.Empty(t, all)
	require.Empty(t, deletions)
}
