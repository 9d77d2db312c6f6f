package feed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/feed"
)

func TestAQueueIsInOrderAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		q := &feed.Queue{Limit: 10, Call: func(f func()) { f() }}
		<-q.Idle()
		add := func(n int) feed.Item { return feed.Item{Do: func() { time.Sleep(time.Second); got = append(got, n) }} }
		require.True(t, q.Put(1, add(1)))
		time.Sleep(time.Millisecond)
		q.Put(1, add(3))
		q.Put(0, add(2))
		<-q.Idle()
		require.Equal(t, []int{1, 2, 3}, got, "those of the first class first")
	})
}

func TestAFullQueueDropsAndCountsButTheLastOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		dropped := map[int]int64{}
		firsts := 0
		q := &feed.Queue{Limit: 2, Bytes: 10, Call: func(f func()) { f() }, Dropped: func(of int, n int64, first bool) {
			if dropped[of] += n; first {
				firsts++
			}
		}}
		say := func(s string, size int, key any) feed.Item {
			return feed.Item{Do: func() { time.Sleep(time.Second); got = append(got, s) }, Size: size, Key: key}
		}
		q.Put(0, say("runs", 0, nil))
		time.Sleep(time.Millisecond)
		require.True(t, q.Put(0, say("key 1", 5, "key")))
		require.True(t, q.Put(0, say("plain", 0, nil)))
		require.False(t, q.Put(0, say("dropped", 0, nil)))
		require.True(t, q.Put(0, say("key 2", 5, "key")))
		require.True(t, q.Put(0, say("other", 0, "other")), "one for each key has room")
		require.True(t, q.Put(1, say("large", 100, nil)), "it passes alone")
		require.False(t, q.Put(1, say("dropped", 1, nil)))
		<-q.Idle()
		require.Equal(t, []string{"runs", "plain", "key 2", "other", "large"}, got)
		require.Equal(t, map[int]int64{0: 2, 1: 1}, dropped)
		require.Equal(t, 2, firsts)
		require.True(t, q.Put(0, say("six", 6, nil)), "what was replaced takes no room")
		<-q.Idle()
	})
}
