//go:build linux

package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// takeReaders has the Store's reads wait, until as many are given back.
func takeReaders(s *Store) {
	for range readerCount {
		if l := <-s.readers; l != nil {
			l.close()
		}
	}
}

func giveReaders(s *Store, n int) {
	for range n {
		s.readers <- nil
	}
}

// What changes after a watch was registered, and before its snapshot, is told by that, once.
func TestAChangeBeforeASnapshot(t *testing.T) {
	t.Parallel()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	first := stream(t, s, false)
	synced := fmt.Sprint(store.EventSynced)
	require.Equal(t, synced, next(t, first))
	takeReaders(s)
	second := stream(t, s, false)
	registered := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.follow.watchers) == 2 }
	require.Eventually(t, registered, soon, time.Millisecond)
	mine := win(t, s, sess, "job")
	put := fmt.Sprint(store.EventPut, "job")
	require.Equal(t, put, next(t, first), "the follower has told of it")
	giveReaders(s, readerCount)
	require.Equal(t, put, next(t, second))
	require.Equal(t, synced, next(t, second))
	must(s.Release(t.Context(), []store.Held{mine.Held()}))(t)
	require.Equal(t, fmt.Sprint(store.EventDelete, "job"), next(t, second))
}

// What changed after a watch's snapshot, while another became the first to be told of changes, is
// told to both.
func TestAChangeBeforeARegistration(t *testing.T) {
	t.Parallel()
	path := quickFile(t)
	s, other := openAt(t, path), openAt(t, path)
	takeReaders(s)
	late := stream(t, s, false)
	for { // the watch opens the reader that it is given, and gives it back
		s.mu.Lock() // it can't be registered
		giveReaders(s, 1)
		time.Sleep(20 * time.Millisecond)
		if l := <-s.readers; l != nil {
			s.readers <- l
			break
		}
		s.mu.Unlock()
	}
	giveReaders(s, readerCount-1)
	win(t, other, open(t, other, 1, owner("b"), time.Minute), "job")
	first := feed.NewWatch[change]("", false, 0, watchBuffer)
	_, at, err := other.snapshot(t.Context(), first)
	require.NoError(t, err)
	s.follow.beginLocked(first, at.from)
	defer s.unsubscribe(first)
	s.mu.Unlock()
	require.Equal(t, fmt.Sprint(store.EventPut, "job"), next(t, late))
	require.Equal(t, fmt.Sprint(store.EventSynced), next(t, late))
}
