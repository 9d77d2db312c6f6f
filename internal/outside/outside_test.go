package outside_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/remoting"
)

func TestCallMakesAPanicAnError(t *testing.T) {
	want := errors.New("plain")
	require.Equal(t, want, outside.Call(func() error { return want }))
	require.ErrorContains(t, outside.Call(func() error { panic("boom") }), "panicked: boom")
	v, err := outside.Get(func() (int, error) { panic("boom") })
	require.Zero(t, v)
	require.ErrorContains(t, err, "boom")
}

func TestAsideTellsWhatBecameOfIt(t *testing.T) {
	for want, f := range map[string]func() (int, error){
		"":       func() (int, error) { return 1, nil },
		"boom":   func() (int, error) { panic("boom") },
		"Goexit": func() (int, error) { runtime.Goexit(); return 1, nil },
	} {
		told := make(chan error)
		outside.Aside(f, func(_ int, err error) { told <- err })
		if err := <-told; want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// stream is a system whose subscriber does what it is told.
func stream(t *testing.T, do func(event any)) *outside.World {
	t.Helper()
	system := actor.NewActorSystem(remoting.LogTo(nil))
	system.EventStream.Subscribe(do)
	return outside.Of(system)
}

func TestWhatIsToldIsToldBeforeItReturnsAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []any
		w := stream(t, func(e any) {
			time.Sleep(outside.Patience / 2)
			got = append(got, e)
			switch e {
			case 1:
				panic("a bug")
			case 2:
				runtime.Goexit()
			case 3:
				defer panic("a bug at the end of a goroutine")
				runtime.Goexit()
			}
		})
		for i := range 6 {
			w.Publish(i)
			require.Len(t, got, i+1)
		}
		require.Equal(t, []any{0, 1, 2, 3, 4, 5}, got)
	})
}

// One that hangs is waited for once; what comes meanwhile is told when it returns, in
// order, within a bound.
func TestOneThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []any
		release := make(chan struct{})
		core, lines := observer.New(zap.ErrorLevel)
		system := actor.NewActorSystem(remoting.LogTo(zap.New(core)))
		system.EventStream.Subscribe(func(e any) {
			if e == 0 {
				<-release
			}
			got = append(got, e)
		})
		w := outside.Of(system)
		began := time.Now()
		for i := range outside.Limit + 1 {
			w.Publish(i)
		}
		require.Equal(t, outside.Patience, time.Since(began))
		for i := range 1000 {
			w.Publish(outside.Limit + 1 + i)
		}
		require.Equal(t, outside.Patience+outside.Hung, time.Since(began), "there is no room: once for all of them")
		require.Empty(t, got)
		synctest.Wait()
		require.Equal(t, 1, lines.FilterMessageSnippet("no more events").Len(), "also where it never returns")
		close(release)
		synctest.Wait()
		require.Len(t, got, outside.Limit+1, "the one that hung, and the bound")
		for i, e := range got {
			require.Equal(t, i, e)
		}
		require.Equal(t, 1, lines.FilterMessageSnippet("were not told").FilterField(zap.Int64("count", 1000)).Len())
		w.Publish("later")
		require.Equal(t, "later", got[len(got)-1], "it is waited for again")
	})
}

// One that returns within Hung, whatever kept it, costs nothing that is told meanwhile, however
// much that is.
func TestOneThatReturnsLateCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := map[int]int{}
		w := stream(t, func(any) {})
		var all sync.WaitGroup
		const each = 3 * outside.Limit
		for from := range 3 {
			all.Go(func() {
				for i := range each {
					n := from*each + i
					w.Do(func() {
						if got[n]++; n == 0 || n == 1000 {
							time.Sleep(outside.Hung - time.Millisecond)
						}
					})
				}
			})
		}
		all.Wait()
		time.Sleep(outside.Hung)
		require.Len(t, got, 3*each)
		for e, n := range got {
			require.Equal(t, 1, n, "what was told as number %d", e)
		}
	})
}

// One that takes its time with everything is waited for once, too.
func TestOneThatIsSlowHoldsUpForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stream(t, func(any) { time.Sleep(outside.Hung / 2) })
		began := time.Now()
		for i := range 10 * outside.Limit {
			w.Publish(i)
		}
		require.Less(t, time.Since(began), outside.Hung+5*outside.Patience)
		time.Sleep(3 * outside.Limit * outside.Hung)
	})
}

// One that returns in time each time, and takes less than comes from many, has a bound behind it too.
func TestMoreThanOneThatIsSlowTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, lasts, tellers = outside.Patience / 2, 20 * time.Second, 500
		var got atomic.Int64
		w := stream(t, func(any) { time.Sleep(takes); got.Add(1) })
		var all sync.WaitGroup
		for range tellers {
			all.Go(func() {
				for began := time.Now(); time.Since(began) < lasts; {
					w.Publish(1)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		all.Wait()
		took := got.Load()
		time.Sleep(10 * outside.Most * takes)
		require.LessOrEqual(t, got.Load()-took, int64(outside.Most))
		took = got.Load()
		w.Publish("later")
		require.Equal(t, took+1, got.Load(), "there is room again")
	})
}

// Events that nobody takes leave the dead letters, and what actors are told, their room;
// and these the events. In what order they came is kept.
func TestEventsDisplaceNoDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * outside.Hung) // protoactor's log of dead letters ends a second later
		var events, letters, got []any
		release := make(chan struct{})
		w := stream(t, func(e any) {
			if e == 0 {
				<-release
			}
			if letter, ok := e.(*actor.DeadLetterEvent); ok {
				e = letter.Message
				letters = append(letters, e)
			} else {
				events = append(events, e)
			}
			got = append(got, e)
		})
		for i := range outside.Limit + 100 {
			w.Publish(i)
		}
		for i := range outside.Limit + 100 {
			w.DeadLetter(actor.NewPID("nonhost", "gone"), -i)
		}
		w.Publish("late")
		close(release)
		synctest.Wait()
		require.Len(t, events, outside.Limit+1, "the one that hung, and the bound")
		require.Len(t, letters, outside.Limit)
		require.Equal(t, append(events, letters...), got)
		require.NotContains(t, events, "late")
		w.DeadLetter(actor.NewPID("nonhost", "gone"), "later")
		w.Publish("later")
		require.Equal(t, []any{"later", "later"}, got[len(got)-2:], "there is room again")
	})
}

// One that hung and goes on is waited for again, though much waits behind it still:
// nothing is left out that it has time for.
func TestOneThatReturnedIsWaitedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []any
		release := make(chan struct{})
		w := stream(t, func(e any) {
			if e == 0 {
				<-release
			}
			time.Sleep(time.Millisecond)
			got = append(got, e)
		})
		n := 3 * outside.Limit
		for i := range n {
			if i == outside.Limit/2 {
				close(release)
				time.Sleep(10 * time.Millisecond)
			}
			w.Publish(i)
		}
		time.Sleep(time.Minute)
		require.Len(t, got, n)
	})
}

func TestOneThatCallsBackIsNotWaitedForByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []any
		var w *outside.World
		w = stream(t, func(e any) {
			if e == "outer" {
				w.Publish("inner")
			}
			got = append(got, e)
		})
		w.Publish("outer")
		synctest.Wait()
		time.Sleep(outside.Hung)
		require.Equal(t, []any{"outer", "inner"}, got)
	})
}

// Who tells an actor that has ended may hold a lock.
func TestTellingAnActorThatHasEnded(t *testing.T) {
	release := make(chan struct{})
	system := actor.NewActorSystem(remoting.LogTo(nil))
	letters := make(chan any, 2)
	system.EventStream.Subscribe(func(e any) {
		if letter, ok := e.(*actor.DeadLetterEvent); ok {
			<-release
			letters <- letter.Message
		}
	})
	for i := range 2 {
		outside.Tell(system, actor.NewPID(system.Address(), "gone"), i) // it returns
	}
	close(release)
	require.Equal(t, 0, <-letters)
	require.Equal(t, 1, <-letters)
}
