package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func offer(to store.Session, name string) store.Offer {
	return store.Offer{Name: name, Owner: to.Owner, Session: to.ID, TTL: to.TTL, Nonce: 70}
}

func TestBadInputIsRefusedWithItsName(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	for want, sess := range map[string]store.Session{
		"ID":          {ID: 0, Owner: owner("a"), TTL: time.Second},
		"TTL":         {ID: 5, Owner: owner("a")},
		"incarnation": {ID: 5, TTL: time.Second},
		"session is":  {ID: 1, Owner: owner("b"), TTL: time.Second},
	} {
		_, err := s.OpenSession(context.Background(), sess)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	out, err := s.Acquire(context.Background(), a, []store.Claim{{Name: "a//b"}, {Name: strings.Repeat("x", store.MaxName+1)}, {Name: "fine"}})
	require.NoError(t, err)
	require.ErrorIs(t, out[0].Err, store.ErrInvalid)
	require.ErrorIs(t, out[1].Err, store.ErrInvalid)
	require.True(t, out[2].OK)

	require.Equal(t, store.Limits{Name: "memory", While: true, BySession: true, Prompt: true}, s.Limits())
	require.Equal(t, time.Nanosecond, open(t, s, 7, owner("a"), 1).TTL)
}

func TestStatsCountCalls(t *testing.T) {
	s := memory.New()
	ctx := context.Background()
	a := open(t, s, 1, owner("a"), time.Minute)
	b := open(t, s, 2, owner("b"), time.Minute)
	r := win(t, s, a, "n")
	_, _ = s.Renew(ctx, []store.Session{a, b, {ID: 3}})
	_, _ = s.Transfer(ctx, []store.Transfer{{Held: r.Held(), To: offer(b, "n")}})
	_, _ = s.Release(ctx, []store.Held{r.Held()})
	_, _ = s.Get(ctx, "n")
	list(t, s, "")
	for range s.Watch(ctx, store.Scope{}) {
		break
	}
	require.NoError(t, s.CloseSession(ctx, a))
	require.Equal(t, memory.Stats{
		OpenSession: 2, CloseSession: 1, Acquire: 1, Renew: 1, RenewedSessions: 2,
		Release: 1, Transfer: 1, Get: 1, List: 1, Watch: 1,
	}, s.Stats())
}

func fresh(storetest.TB) func() store.Store {
	s := memory.New()
	return func() store.Store { return s }
}

// cutOff is a store behind a link on which nothing arrives.
func cutOff(storetest.TB) func() store.Store {
	s := faultstore.Wrap(memory.New())
	s.Partition()
	return func() store.Store { return s }
}

func TestConformanceOnFakeTime(t *testing.T) {
	storetest.Run(t, fresh, storetest.FakeTime(), storetest.Unreachable(cutOff))
}

func TestConformanceOnRealTime(t *testing.T) {
	tier.NightlyOnly(t, "TestConformanceOnFakeTime has the same cases")
	storetest.Run(t, fresh, storetest.TTL(time.Second), storetest.ExpirySlack(time.Second), storetest.Unreachable(cutOff))
}

func TestBadInput(t *testing.T) {
	inputtest.Contexts(t, memory.New())
	inputtest.Zeros(t, nil, new(memory.Store))
	_, err := new(memory.Store).Get(t.Context(), "a")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "memory.New")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func owner(id string) store.Owner {
	return store.Owner{ID: id, Incarnation: id + "-1", Address: id + ":80"}
}

// open opens a session and returns it as granted.
func open(t testing.TB, s *memory.Store, id store.SessionID, o store.Owner, ttl time.Duration) store.Session {
	t.Helper()
	sess := store.Session{ID: id, Owner: o, TTL: ttl}
	g, err := s.OpenSession(context.Background(), sess)
	require.NoError(t, err)
	require.NoError(t, g.Err)
	sess.TTL = g.TTL
	return sess
}

// claim makes one claim.
func claim(t testing.TB, s *memory.Store, sess store.Session, c store.Claim) store.Outcome {
	t.Helper()
	out, err := s.Acquire(context.Background(), sess, []store.Claim{c})
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
}

// win acquires a name that must be free.
func win(t testing.TB, s *memory.Store, sess store.Session, name string) store.Record {
	t.Helper()
	out := claim(t, s, sess, store.Claim{Name: name, Nonce: 7})
	require.True(t, out.OK, "%q: %+v", name, out)
	return out.Record
}

func get(t testing.TB, s *memory.Store, names ...string) []store.Record {
	t.Helper()
	found, err := s.Get(context.Background(), names...)
	require.NoError(t, err)
	return found
}

func list(t testing.TB, s *memory.Store, prefix string) map[string]store.Record {
	t.Helper()
	found := map[string]store.Record{}
	for r, err := range s.List(context.Background(), store.Query{Prefix: prefix}) {
		require.NoError(t, err)
		found[r.Name] = r
	}
	return found
}

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

func TestAWatchOfDeletionsYieldsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		ctx := t.Context()
		a, b := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("b"), time.Second)
		stands := win(t, s, a, "x/1")
		var events []store.Event
		var last store.Token
		for e, err := range s.Watch(ctx, store.Scope{Prefix: "x/", Deletions: true}) {
			require.NoError(t, err)
			if events = append(events, e); e.Kind == store.EventSynced {
				for i := range 1<<17 + 1 { // what is left out fills no buffer
					win(t, s, a, fmt.Sprint("x/a", i))
				}
				win(t, s, b, "y/1")
				last = win(t, s, b, "x/2").Token // and expires
				_, err = s.Release(ctx, []store.Held{stands.Held()})
				require.NoError(t, err)
			}
			if len(events) == 3 {
				break
			}
		}
		require.Equal(t, store.EventSynced, events[0].Kind)
		for i, name := range []string{"x/1", "x/2"} {
			require.Equal(t, store.EventDelete, events[i+1].Kind)
			require.Equal(t, store.Record{Name: name}, events[i+1].Record)
			require.Greater(t, events[i+1].Revision, last)
			last = events[i+1].Revision
		}
	})
}

func TestAWatchEndsWithItsContextEvenIfChangesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a := open(t, s, 1, owner("a"), time.Minute)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("why"))
		defer cancel()
		var errs []error
		for e, err := range s.Watch(ctx, store.Scope{}) {
			if e.Kind == store.EventSynced {
				win(t, s, a, "x")
				win(t, s, a, "y")
			}
			if e.Kind == store.EventPut {
				time.Sleep(2 * time.Second)
			}
			errs = append(errs, err)
		}
		require.Len(t, errs, 3, "synced, one put, the error")
		require.ErrorIs(t, errs[2], context.DeadlineExceeded)
		require.ErrorContains(t, errs[2], "why")
	})
}

func TestASlowWatcherIsCutOffAndDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the session does not run out, however slow the machine is
		s := memory.New()
		a := open(t, s, 1, owner("a"), time.Minute)
		var slow []store.Event
		var end error
		for e, err := range s.Watch(t.Context(), store.Scope{}) {
			if err != nil {
				end = err
				continue
			}
			slow = append(slow, e)
			if e.Kind == store.EventSynced {
				for i := range 10 {
					win(t, s, a, fmt.Sprint("fits/", i))
				}
			}
			if len(slow) == 11 {
				for i := range 1<<17 + 1 {
					win(t, s, a, fmt.Sprint("too many/", i))
				}
			}
		}
		require.ErrorIs(t, end, memory.ErrWatchOverrun)
		require.Len(t, slow, 11)
		require.Equal(t, "fits/9", slow[10].Record.Name)

		again := 0
		for e, err := range s.Watch(t.Context(), store.Scope{}) {
			require.NoError(t, err)
			if e.Kind == store.EventSynced {
				break
			}
			again++
		}
		require.Equal(t, 10+1<<17+1, again, "a new snapshot has all")
	})
}
