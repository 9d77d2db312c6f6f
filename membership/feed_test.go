package membership

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/lease"
)

type tale struct{ previous, state, skipped int }

func newFeed() (*feed[int], *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return &feed[int]{log: func() *zap.Logger { return zap.New(core) }}, logs
}

// A follower is told the present state, if there is one, and then every change.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFeed()
		var told []tale
		stop := f.follow(func(p, s, n int) { told = append(told, tale{p, s, n}) })
		synctest.Wait()
		require.Empty(t, told, "there is nothing to tell yet")
		for s := 1; s <= 3; s++ {
			f.set(s)
			synctest.Wait()
		}
		require.Equal(t, []tale{{0, 1, 0}, {1, 2, 0}, {2, 3, 0}}, told)
		var late []tale
		f.follow(func(p, s, n int) { late = append(late, tale{p, s, n}) })
		synctest.Wait()
		require.Equal(t, []tale{{0, 3, 0}}, late)
		stop()
		stop()
		f.set(4)
		synctest.Wait()
		require.Len(t, told, 3)
		require.Equal(t, tale{3, 4, 0}, late[1])
		require.Len(t, f.followers, 1)
	})
}

// A slow follower is told the newest, and holds up neither the source nor others.
func TestFeedSlowFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFeed()
		var slow, quick []tale
		running := false
		f.follow(func(p, s, n int) {
			require.False(t, running, "one call at a time")
			running = true
			time.Sleep(10300 * time.Millisecond)
			running = false
			slow = append(slow, tale{p, s, n})
		})
		f.follow(func(p, s, n int) { quick = append(quick, tale{p, s, n}) })
		began := time.Now()
		for s := 1; s <= 25; s++ {
			f.set(s)
			time.Sleep(time.Second)
		}
		require.Equal(t, 25*time.Second, time.Since(began))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, quick, 25)
		require.Equal(t, []tale{{0, 1, 0}, {1, 11, 9}, {11, 21, 9}, {21, 25, 3}}, slow)
	})
}

// A panic of a follower is logged, and it goes on to be told. stop works from within.
func TestFeedPanicAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, logs := newFeed()
		calls := 0
		var stop func()
		stop = f.follow(func(_, s, _ int) {
			calls++
			if s == 2 {
				stop()
				f.set(3)
			}
			panic("no")
		})
		f.set(1)
		synctest.Wait()
		f.set(2)
		synctest.Wait()
		f.set(4)
		synctest.Wait()
		require.Equal(t, 2, calls, "none begins after stop")
		require.Equal(t, 2, logs.FilterMessage("a follower failed").Len())
	})
}

// What is told is what is true when it is told.
func TestFeedIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFeed()
		f.set(1)
		f.fresh = func() {
			if f.state == 1 {
				f.set(2)
			}
		}
		var told []tale
		f.follow(func(p, s, n int) { told = append(told, tale{p, s, n}) })
		synctest.Wait()
		require.Equal(t, []tale{{0, 2, 0}}, told)
	})
}

func TestStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := owner("a"), owner("b")
		s := NewStatic(a)
		var told []LeaderChanged
		stop := s.Follow(func(c LeaderChanged) { told = append(told, c) })
		for _, l := range []lease.Owner{a, a, b, {}} {
			synctest.Wait()
			s.Set(l)
		}
		synctest.Wait()
		require.Equal(t, []LeaderChanged{
			{},
			{Leader: a, IsSelf: true},
			{Leader: b, Previous: a},
			{Previous: b},
		}, told)
		stop()
		s.Set(a)
		synctest.Wait()
		require.Len(t, told, 4)
	})
}
