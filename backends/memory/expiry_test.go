package memory_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
)

func TestExpiriesAreAppliedEarliestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &stepClock{}
		s := memory.NewAt(clock)
		const n = 50
		for i := range n {
			ttl := time.Duration((i*37)%n+1) * time.Second // every length once
			sess := open(t, s, store.SessionID(i+1), owner("a"), ttl)
			win(t, s, sess, fmt.Sprintf("%02d", int(ttl/time.Second)))
		}
		for i := range n / 2 { // close some from the middle of the queue
			if i%3 == 0 {
				require.NoError(t, s.CloseSession(t.Context(), store.Session{ID: store.SessionID(i + 1), Owner: owner("a")}))
			}
		}
		var names []string
		for e, err := range s.Watch(t.Context(), store.Scope{}) {
			require.NoError(t, err)
			if e.Kind == store.EventSynced {
				clock.step(time.Hour)
				require.Empty(t, list(t, s, ""))
			}
			if e.Kind == store.EventDelete {
				names = append(names, e.Record.Name)
				if len(names) == n-9 {
					break
				}
			}
		}
		require.IsIncreasing(t, names)
	})
}

func TestTheStoresOwnClockJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &stepClock{}
		s := memory.NewAt(clock)
		a := open(t, s, 1, owner("a"), time.Second)
		win(t, s, a, "n")
		time.Sleep(time.Hour)
		require.Len(t, get(t, s, "n"), 1, "by its clock no time passed")
		clock.step(time.Second)
		require.Empty(t, get(t, s, "n"))
		forever := open(t, s, 2, owner("a"), math.MaxInt64)
		win(t, s, forever, "n")
		clock.step(time.Hour)
		require.Len(t, get(t, s, "n"), 1, "a deadline does not run over")
	})
}

func TestAClockWhoseTimersRunAheadDelaysTheNewsButCannotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &stepClock{hasty: true}
		s := memory.NewAt(clock)
		win(t, s, open(t, s, 1, owner("a"), time.Second), "n")
		ctx, cancel := context.WithCancel(t.Context())
		deleted := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for e := range s.Watch(ctx, store.Scope{}) {
				if e.Kind == store.EventDelete {
					close(deleted)
				}
			}
		})
		clock.step(time.Second - 1) // one nanosecond is left, and stays left
		time.Sleep(time.Second)
		require.LessOrEqual(t, clock.timers(), 1001)
		clock.step(1)
		time.Sleep(time.Millisecond)
		<-deleted
		cancel()
		wg.Wait()
	})
}

// stepClock stands still but for its steps. Its timers do not fire; if it is
// hasty they fire by the system's clock.
type stepClock struct {
	hasty bool

	mu      sync.Mutex
	now     time.Duration
	started int
}

func (c *stepClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}

func (c *stepClock) timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

func (c *stepClock) Now() store.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return store.Reading{Mono: c.now, Wall: int64(c.now)}
}

func (c *stepClock) AfterFunc(d time.Duration, f func()) store.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started++
	if c.hasty {
		return time.AfterFunc(d, f)
	}
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// countingClock counts the timers that are pending.
type countingClock struct {
	store.Clock
	mu      sync.Mutex
	pending int
}

func (c *countingClock) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending += n
}

func (c *countingClock) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending
}

func (c *countingClock) AfterFunc(d time.Duration, f func()) store.Timer {
	c.add(1)
	return countedTimer{c, c.Clock.AfterFunc(d, func() { c.add(-1); f() })}
}

type countedTimer struct {
	c *countingClock
	store.Timer
}

func (t countedTimer) Stop() bool {
	stopped := t.Timer.Stop()
	if stopped {
		t.c.add(-1)
	}
	return stopped
}

func TestATimerIsPendingOnlyWhileItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &countingClock{Clock: store.SystemClock()}
		s := memory.NewAt(clock)
		for i := range 100 {
			win(t, s, open(t, s, store.SessionID(i+1), owner("a"), time.Duration(100-i)*time.Second), fmt.Sprint(i))
		}
		require.Zero(t, clock.now(), "nobody watches")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range s.Watch(ctx, store.Scope{}) {
				}
			})
		}
		synctest.Wait()
		require.Equal(t, 1, clock.now())
		open(t, s, 200, owner("a"), time.Millisecond)
		require.Equal(t, 1, clock.now())
		time.Sleep(50 * time.Second)
		synctest.Wait() // a session ends at this moment
		require.Equal(t, 1, clock.now())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, clock.now(), "no session is open")
		open(t, s, 201, owner("a"), time.Second)
		require.Equal(t, 1, clock.now())
		cancel()
		wg.Wait()
		require.Zero(t, clock.now(), "nobody watches any more")
	})
}

func TestAStoreThatNobodyRefersToIsCollected(t *testing.T) {
	collected := make(chan struct{})
	func() {
		s := memory.New()
		win(t, s, open(t, s, 1, owner("a"), time.Hour), "n")
		for range s.Watch(t.Context(), store.Scope{}) {
			break
		}
		runtime.AddCleanup(s, func(c chan struct{}) { close(c) }, collected)
	}()
	for range 10 {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatal("the store is still referred to")
}

// Many records expire at once, each with its event. The nightly tier compares the time that few and many
// take; beside other work on the processor the ratio says nothing.
func TestExpiryOfManyRecords(t *testing.T) {
	for name, each := range map[string]bool{"one session": false, "a session each": true} {
		t.Run(name, func(t *testing.T) {
			const few, many = 2_000, 64_000
			if !tier.Nightly() {
				expire(t, few, each)
				return
			}
			least := func(n int) time.Duration {
				return min(expire(t, n, each), expire(t, n, each), expire(t, n, each))
			}
			require.Less(t, float64(least(many))/float64(least(few)), 250.0, "32 times as many records; in a quadratic time it is 1024")
		})
	}
}

// expire returns how long it takes that n records expire at once, before a watch.
func expire(t *testing.T, n int, each bool) (took time.Duration) {
	clock := &stepClock{}
	s := memory.NewAt(clock)
	for i := range n {
		id := store.SessionID(1)
		if each {
			id = store.SessionID(i + 1)
		}
		if each || i == 0 {
			open(t, s, id, owner("a"), time.Second+time.Duration(i))
		}
		win(t, s, store.Session{ID: id, Owner: owner("a")}, fmt.Sprintf("name/%d", i))
	}
	deleted := 0
	for e, err := range s.Watch(t.Context(), store.Scope{}) {
		require.NoError(t, err)
		if e.Kind == store.EventSynced {
			clock.step(time.Hour)
			begin := time.Now()
			require.Empty(t, get(t, s, "name/1"))
			took = time.Since(begin)
		}
		if e.Kind == store.EventDelete {
			if deleted++; deleted == n {
				break
			}
		}
	}
	require.Empty(t, list(t, s, ""))
	return took
}
