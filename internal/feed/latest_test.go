package feed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/internal/feed"
)

type tale struct{ previous, state, skipped int }

func newLatest() (*feed.Latest[int], *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return &feed.Latest[int]{Log: zap.New(core)}, logs
}

// A follower is told the present state, if there is one, and then every change.
func TestLatestTellsEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newLatest()
		var told []tale
		stop := f.Follow(func(p, s, n int) { told = append(told, tale{p, s, n}) })
		synctest.Wait()
		require.Empty(t, told, "there is nothing to tell yet")
		for s := 1; s <= 3; s++ {
			f.Set(s)
			synctest.Wait()
		}
		require.Equal(t, []tale{{0, 1, 0}, {1, 2, 0}, {2, 3, 0}}, told)
		var late []tale
		f.Follow(func(p, s, n int) { late = append(late, tale{p, s, n}) })
		synctest.Wait()
		require.Equal(t, []tale{{0, 3, 0}}, late)
		stop()
		stop()
		f.Set(4)
		synctest.Wait()
		require.Len(t, told, 3)
		require.Equal(t, tale{3, 4, 0}, late[1])
	})
}

// A slow follower is told the newest, and holds up neither the source nor others.
func TestASlowFollowerGetsTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newLatest()
		var slow, quick []tale
		running := false
		f.Follow(func(p, s, n int) {
			require.False(t, running, "one call at a time")
			running = true
			time.Sleep(10300 * time.Millisecond)
			running = false
			slow = append(slow, tale{p, s, n})
		})
		f.Follow(func(p, s, n int) { quick = append(quick, tale{p, s, n}) })
		began := time.Now()
		for s := 1; s <= 25; s++ {
			f.Set(s)
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
func TestAFollowerPanicsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, logs := newLatest()
		calls := 0
		var stop func()
		stop = f.Follow(func(_, s, _ int) {
			calls++
			if s == 2 {
				stop()
				f.Set(3)
			}
			panic("no")
		})
		f.Set(1)
		synctest.Wait()
		f.Set(2)
		synctest.Wait()
		f.Set(4)
		synctest.Wait()
		require.Equal(t, 2, calls, "none begins after stop")
		require.Equal(t, 2, logs.FilterMessage("a follower failed").Len())
	})
}

// What is told is what is true when it is told.
func TestFreshIsCalledFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newLatest()
		f.Set(1)
		first := true
		f.Fresh = func() {
			if first {
				first = false
				f.Set(2)
			}
		}
		var told []tale
		f.Follow(func(p, s, n int) { told = append(told, tale{p, s, n}) })
		synctest.Wait()
		require.Equal(t, []tale{{0, 2, 0}}, told)
	})
}
