package lease

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

func TestWindowIsOverWhenEitherClockPassed(t *testing.T) {
	w := &window{mono: 10, wall: 100}
	require.True(t, w.holds(store.Reading{Mono: 9, Wall: 99}))
	require.False(t, w.holds(store.Reading{Mono: 10, Wall: 99}))
	require.False(t, w.holds(store.Reading{Mono: 9, Wall: 100}))
	require.False(t, closedWindow.holds(store.Reading{Mono: -1 << 62, Wall: -1 << 62}))
}

// fixedClock is a clock that stands where it is put.
type fixedClock struct {
	store.Clock
	now store.Reading
}

func (c *fixedClock) Now() store.Reading { return c.now }

func windowed(w window) (*deadline, *fixedClock, *int) {
	c, kicks := &fixedClock{}, 0
	s := &deadline{clock: c, kick: func() { kicks++ }}
	s.window.Store(&w)
	return s, c, &kicks
}

func TestAWindowFoundClosedStaysClosed(t *testing.T) {
	s, c, kicks := windowed(window{mono: 10, wall: 10})
	require.True(t, s.trusts(store.Reading{Mono: 9, Wall: 9}))
	require.False(t, s.trusts(store.Reading{Mono: 10, Wall: 9}))
	require.Equal(t, 1, *kicks)
	require.False(t, s.trusts(store.Reading{}), "also for an earlier reading")
	require.Equal(t, 1, *kicks, "one kick is enough")
	require.False(t, s.extend(c.now, 100), "nor does a renewal reopen it")
	require.Zero(t, s.remaining(c.now))
}

func TestExtendTakesTheLaterSent(t *testing.T) {
	s, c, _ := windowed(window{mono: 10, wall: 10})
	c.now = store.Reading{Mono: 5, Wall: 5}
	require.True(t, s.extend(store.Reading{Mono: 4, Wall: 4}, 10))
	require.True(t, s.extend(store.Reading{Mono: 2, Wall: 2}, 10), "the answer to an earlier one comes later")
	require.EqualValues(t, 9, s.remaining(c.now))
	c.now = store.Reading{Mono: 14, Wall: 13}
	require.False(t, s.extend(store.Reading{Mono: 13, Wall: 13}, 10), "the deadline has passed")
	s, c, _ = windowed(window{mono: 10, wall: 10})
	c.now = store.Reading{Mono: 9, Wall: 9}
	require.False(t, s.extend(store.Reading{Mono: 1, Wall: 1}, 8), "an answer that says it is over already")
	require.False(t, s.trusts(c.now))
}

func TestAWallClockSteppedBackDoesNotHideASleep(t *testing.T) {
	s, _, _ := windowed(window{mono: 1e9, wall: 1e9})
	s.rewind(store.Reading{Mono: 0, Wall: -5e9})
	require.True(t, s.trusts(store.Reading{Mono: 0, Wall: -5e9}))
	require.False(t, s.trusts(store.Reading{Mono: 0, Wall: -4e9}), "a sleep of a second, by the new wall clock")
	s, _, _ = windowed(window{mono: 1e9, wall: 1e9})
	before := s.window.Load()
	s.rewind(store.Reading{Mono: 1e8, Wall: 1e8 - int64(wallSlack)})
	s.rewind(store.Reading{Mono: 1e8, Wall: 9e8})
	require.Same(t, before, s.window.Load(), "slewing, and a step ahead, change nothing")
	s.close()
	s.rewind(store.Reading{Mono: 0, Wall: -5e9})
	require.False(t, s.trusts(store.Reading{}), "nothing reopens it")
}

// idle is a store that is not called.
type idle struct{ store.Store }

func (idle) Limits() store.Limits { return store.Limits{} }

// A request is bounded; what the store says when it is told to end still counts,
// if it comes within a tenth.
func TestCallIsBounded(t *testing.T) {
	const attempt = time.Second
	for _, c := range []struct {
		late  time.Duration // after the end of the attempt
		heard bool
	}{{0, true}, {attempt / 20, true}, {attempt / 5, false}} {
		synctest.Test(t, func(t *testing.T) {
			k, err := NewKeeper(idle{}, Config{ID: "a", AttemptTimeout: attempt})
			require.NoError(t, err)
			defer k.Close(t.Context())
			began := time.Now()
			v, err := call(t.Context(), &k.core, request{}, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				time.Sleep(c.late)
				return 7, nil
			})
			if c.heard {
				require.NoError(t, err)
				require.Equal(t, 7, v)
				require.Equal(t, attempt+c.late, time.Since(began))
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "no answer within 1s")
			require.Equal(t, attempt+attempt/10, time.Since(began))
		})
	}
}

// As many pools stay as are in use, not as there were ever TTLs.
func TestPoolsOfSessionsGoWithTheirUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := NewKeeper(memory.New(), Config{ID: "a"})
		require.NoError(t, err)
		defer k.Close(t.Context())
		pools := func() int {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.sessions.pools)
		}
		ttl := WithTTL(10 * time.Second)
		a, err := k.Lease("a", ttl)
		require.NoError(t, err)
		b, err := k.Lease("b", ttl)
		require.NoError(t, err)
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, 1, pools(), "b has it")
		won, err := b.Acquire(t.Context())
		require.True(t, won, "%v", err)
		for range 2 {
			require.NoError(t, b.Close(t.Context()))
		}
		require.Equal(t, 1, pools(), "its session is kept for the next")
		time.Sleep(time.Minute)
		require.Zero(t, pools())
	})
}

// The default logger writes warnings: what it would not write does not wait for it.
func TestTheDefaultLoggersLevelIsKnown(t *testing.T) {
	core := newLater(boundary.Default(), zap.String("keeper", "a")).logger().Core()
	require.False(t, core.Enabled(zap.InfoLevel))
	require.True(t, core.Enabled(zap.WarnLevel))
}

func TestWhatAFollowerRemembersIsBounded(t *testing.T) {
	var d heard
	d.forget()
	for i := range 3 * goneAtOnce {
		name := fmt.Sprint("n", i)
		d.put(name, mark{Token(i + 1), 1})
		d.delete(name)
		require.Equal(t, mark{Token(i + 1), 1}, d.last(name))
		require.LessOrEqual(t, len(d.gone)+len(d.goneBefore), 2*goneAtOnce)
	}
	require.Empty(t, d.stands)
	const last = 3 * goneAtOnce
	require.NotZero(t, d.last(fmt.Sprint("n", last-goneAtOnce)), "of the latest so many")
	// What is no record hides no token.
	d.put("n", mark{7, 1})
	d.put("n", mark{})
	require.Equal(t, mark{7, 1}, d.last("n"))
	d.delete("n")
	require.Equal(t, mark{7, 1}, d.last("n"))
}
