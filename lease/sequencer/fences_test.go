package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func newFences(t testing.TB, opts ...sequencer.Option) *sequencer.Fences {
	t.Helper()
	f, err := sequencer.NewFences(opts...)
	require.NoError(t, err)
	return f
}

func TestFencesRefuseLowerTokensByName(t *testing.T) {
	f := newFences(t)
	ran := 0
	do := func(s sequencer.Sequencer) error {
		return f.Do(t.Context(), s, func(context.Context) error { ran++; return nil })
	}
	require.NoError(t, do(seq("a", 7)))
	require.NoError(t, do(seq("b", 3)), "each name has a mark of its own")
	require.NoError(t, do(seq("a", 7)), "the holder comes again and again")
	require.Equal(t, 3, ran)
	err := do(seq("a", 6))
	var stale *sequencer.StaleError
	require.ErrorIs(t, err, lease.ErrStale)
	require.ErrorAs(t, err, &stale)
	require.Equal(t, sequencer.StaleError{Sequencer: seq("a", 6), Seen: 7}, *stale)
	require.True(t, stale.Superseded())
	require.ErrorContains(t, err, "sequencer a@6: stale fencing token: token 7 has been seen")
	require.ErrorIs(t, f.Advance(t.Context(), seq("a", 6)), lease.ErrStale)
	require.Equal(t, 3, ran, "what is refused does not run")
	require.Equal(t, lease.Token(7), f.Marks()["a"])
	require.Equal(t, lease.Token(3), f.Marks()["b"])
	require.Zero(t, f.Marks()["c"])
	require.NoError(t, f.Advance(t.Context(), seq("b", 9)))
	require.ErrorIs(t, do(seq("b", 3)), lease.ErrStale)

	failure := errors.New("disk full")
	require.ErrorIs(t, f.Do(t.Context(), seq("a", 8), func(context.Context) error { return failure }), failure)
	require.ErrorIs(t, do(seq("a", 7)), lease.ErrStale, "a token whose work failed was seen all the same")
	require.Panics(t, func() { _ = f.Do(t.Context(), seq("a", 8), func(context.Context) error { panic("oops") }) })
	require.NoError(t, do(seq("a", 9)), "a panic does not leave the fence shut")
}

func TestMarksOutliveTheProcess(t *testing.T) {
	f := newFences(t)
	require.NoError(t, f.Advance(t.Context(), seq("a", 7)))
	require.NoError(t, f.Advance(t.Context(), seq("b", 3)))
	marks := f.Marks()
	require.Equal(t, map[string]lease.Token{"a": 7, "b": 3}, marks)
	f = newFences(t, sequencer.WithMarks(marks))
	marks["a"] = 1
	require.ErrorIs(t, f.Advance(t.Context(), seq("a", 6)), lease.ErrStale)
	require.NoError(t, f.Advance(t.Context(), seq("a", 7)))
}

func TestFencesThatAreFullRefuseFurtherNames(t *testing.T) {
	f := newFences(t, sequencer.WithLimit(2))
	require.NoError(t, f.Advance(t.Context(), seq("a", 1)))
	require.NoError(t, f.Advance(t.Context(), seq("b", 1)))
	for range 3 {
		err := f.Advance(t.Context(), seq("c", 9))
		require.ErrorIs(t, err, sequencer.ErrFull)
		require.NotErrorIs(t, err, lease.ErrStale)
	}
	require.Equal(t, map[string]lease.Token{"a": 1, "b": 1}, f.Marks(), "nothing is forgotten for it")
	require.NoError(t, f.Advance(t.Context(), seq("a", 2)))

	require.False(t, f.Forget("c"))
	require.NoError(t, f.Do(t.Context(), seq("b", 1), func(context.Context) error {
		require.False(t, f.Forget("b"), "it is in use")
		return nil
	}))
	require.True(t, f.Forget("b"))
	require.NoError(t, f.Advance(t.Context(), seq("c", 9)))
}

func TestFencesBelieveWhatTheStoreHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		link := faultstore.Wrap(store)
		k := keep(t, store, "a")
		asked := 0
		stored := keep(t, link, "reader")
		f := newFences(t, sequencer.WithReader(readerFunc(func(ctx context.Context, name string) (lease.Record, error) {
			asked++
			return stored.Get(ctx, name)
		})))
		h, term := hold(t, k, "job")
		first := of(t, term)

		var stale *sequencer.StaleError
		require.ErrorAs(t, f.Advance(t.Context(), seq("job", first.Token+1000)), &stale)
		require.False(t, stale.Superseded())
		require.Zero(t, f.Marks()["job"], "what was made up raises nothing")
		require.ErrorIs(t, f.Advance(t.Context(), seq("other", 1)), lease.ErrNotHeld)
		require.Empty(t, f.Marks())
		asked = 0
		for range 10 {
			require.NoError(t, f.Advance(t.Context(), first))
		}
		require.Equal(t, 1, asked, "once for each change of owner")

		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, f.Advance(t.Context(), first), "nobody came after it")
		term, err := h.AcquireTerm(t.Context())
		require.NoError(t, err)
		second := of(t, term)
		link.Partition()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = f.Advance(ctx, second)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.Equal(t, first.Token, f.Marks()["job"], "what is not known raises nothing")
		link.Heal()
		require.NoError(t, f.Advance(t.Context(), second))
		asked = 0
		require.ErrorIs(t, f.Advance(t.Context(), first), lease.ErrStale)
		require.Zero(t, asked)

		// A token that a later one has followed, and that was never seen here.
		f = newFences(t, sequencer.WithReader(stored))
		require.ErrorAs(t, f.Advance(t.Context(), first), &stale)
		require.True(t, stale.Superseded())
		require.Equal(t, second.Token, f.Marks()["job"], "the store told of it")
	})
}

func TestFencesWithAReaderForgetWhatTheyCanAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		k := keep(t, store, "a")
		f := newFences(t, sequencer.WithReader(k), sequencer.WithLimit(3))
		var stale []sequencer.Sequencer
		for i := range 20 {
			h, term := hold(t, k, fmt.Sprint("job/", i))
			stale = append(stale, of(t, term))
			require.NoError(t, f.Advance(t.Context(), of(t, term)))
			require.NoError(t, h.Release(t.Context()))
			_, err := h.Acquire(t.Context())
			require.NoError(t, err)
			term, _ = h.Term()
			require.NoError(t, f.Advance(t.Context(), of(t, term)))
			require.LessOrEqual(t, len(f.Marks()), 3)
		}
		for _, s := range stale {
			require.ErrorIs(t, f.Advance(t.Context(), s), lease.ErrStale, "though its mark may be forgotten")
		}
		// What is in use stays.
		block, in := make(chan struct{}), make(chan struct{}, 3)
		for i := range 3 {
			h := seqOf(t, k, fmt.Sprint("job/", i))
			go func() {
				_ = f.Do(t.Context(), h, func(context.Context) error { in <- struct{}{}; <-block; return nil })
			}()
			<-in
		}
		require.ErrorIs(t, f.Advance(t.Context(), seqOf(t, k, "job/7")), sequencer.ErrFull)
		close(block)
		synctest.Wait()
		require.NoError(t, f.Advance(t.Context(), seqOf(t, k, "job/7")))
	})
}

// seqOf is the sequencer of whoever holds name.
func seqOf(t *testing.T, k *lease.Keeper, name string) sequencer.Sequencer {
	t.Helper()
	r, err := k.Get(t.Context(), name)
	require.NoError(t, err)
	return seq(name, r.Token)
}

// A call that the store has answered, and that goes on when a later holder's mark is forgotten,
// must not come after it.
func TestAnAnswerThatComesLateDoesNotCountForAForgottenMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := newFences(t, sequencer.WithLimit(2), sequencer.WithReader(readerFunc(func(_ context.Context, name string) (lease.Record, error) {
			if name == "job" {
				<-hold // it has read token 5, and is slow to say so
				return lease.Record{Name: name, Token: 5}, nil
			}
			return lease.Record{Name: name, Token: 1}, nil
		})))
		late := make(chan error, 1)
		go func() { late <- f.Advance(t.Context(), seq("job", 5)) }()
		synctest.Wait()
		require.False(t, f.Forget("job"), "it is asked about")
		require.NoError(t, f.Advance(t.Context(), seq("a", 1)))
		require.NoError(t, f.Advance(t.Context(), seq("b", 1)), "in the place of a")
		require.False(t, f.Forget("job"))
		close(hold)
		require.NoError(t, <-late)
	})
}

func TestALaterTokenWaitsForWorkOfEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFences(t)
		end := make(chan struct{})
		cause := make(chan error, 2)
		began := make(chan struct{}, 2)
		for range 2 { // side by side
			go func() {
				_ = f.Do(t.Context(), seq("a", 1), func(ctx context.Context) error {
					began <- struct{}{}
					<-ctx.Done()
					cause <- context.Cause(ctx)
					<-end
					return nil
				})
			}()
		}
		<-began
		<-began
		require.NoError(t, f.Advance(t.Context(), seq("a", 1)), "of the same token")
		require.NoError(t, f.Advance(t.Context(), seq("b", 9)), "of another name")
		second := make(chan error, 1)
		go func() { second <- f.Advance(t.Context(), seq("a", 2)) }()
		for range 2 {
			err := <-cause
			require.ErrorIs(t, err, lease.ErrStale)
			require.ErrorContains(t, err, "token 2 has been seen")
		}
		require.ErrorIs(t, f.Advance(t.Context(), seq("a", 1)), lease.ErrStale, "from now on")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatal("it did not wait: ", err)
		default:
		}
		// One that waits is superseded, too.
		third := make(chan error, 1)
		go func() { third <- f.Advance(t.Context(), seq("a", 3)) }()
		require.ErrorIs(t, <-second, lease.ErrStale)
		close(end)
		require.NoError(t, <-third)
		require.NoError(t, f.Advance(t.Context(), seq("a", 3)))
		require.True(t, f.Forget("a"), "nothing is left of it")
	})
}

func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFences(t, sequencer.WithPatience(3*time.Second))
		end := make(chan struct{})
		began := make(chan struct{})
		go func() {
			_ = f.Do(t.Context(), seq("a", 1), func(context.Context) error { close(began); <-end; return nil })
		}()
		<-began
		at := time.Now()
		err := f.Advance(t.Context(), seq("a", 2))
		require.ErrorIs(t, err, sequencer.ErrBusy)
		require.NotErrorIs(t, err, lease.ErrStale)
		require.Equal(t, 3*time.Second, time.Since(at))
		// The one that gave up has left nothing that says when the first is over.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = f.Advance(ctx, seq("a", 3))
		require.ErrorIs(t, err, sequencer.ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		err = f.Do(t.Context(), seq("a", 3), func(context.Context) error { t.Error("beside the first"); return nil })
		require.ErrorIs(t, err, sequencer.ErrBusy)
		require.ErrorIs(t, f.Advance(t.Context(), seq("a", 2)), lease.ErrStale)
		close(end)
		synctest.Wait()
		require.NoError(t, f.Advance(t.Context(), seq("a", 3)))
		require.True(t, f.Forget("a"))

		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, f.Do(ctx, seq("a", 9), func(context.Context) error { t.Error("after its context"); return nil }), context.Canceled)
		require.Zero(t, f.Marks()["a"], "nor was it seen")
	})
}

// A store that does not answer is waited for no longer than for others' work, whatever the caller's
// context says.
func TestAskingTheStoreIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFences(t, sequencer.WithPatience(3*time.Second), sequencer.WithReader(readerFunc(func(ctx context.Context, _ string) (lease.Record, error) {
			<-ctx.Done()
			return lease.Record{}, context.Cause(ctx)
		})))
		at := time.Now()
		err := f.Advance(t.Context(), seq("a", 2))
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(at))
		require.Empty(t, f.Marks())
	})
}

// Tokens that were made up cost the store no more than ten requests a second, at once or one after the
// other, be the lease held or free, and do not keep the holder out for longer than that.
func TestForgedTokensAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		stored := keep(t, store, "reader")
		var asked atomic.Int64
		f := newFences(t, sequencer.WithReader(readerFunc(func(ctx context.Context, name string) (lease.Record, error) {
			asked.Add(1)
			time.Sleep(time.Millisecond)
			return stored.Get(ctx, name)
		})))
		_, term := hold(t, keep(t, store, "a"), "job")
		for _, name := range []string{"job", "free"} {
			asked.Store(0)
			began := time.Now()
			var all sync.WaitGroup
			for i := range lease.Token(400) {
				all.Go(func() { require.ErrorIs(t, f.Advance(t.Context(), seq(name, 1000+i)), lease.ErrStale) })
			}
			all.Wait()
			for i := range lease.Token(20) {
				require.ErrorIs(t, f.Advance(t.Context(), seq(name, 2000+i)), lease.ErrStale)
			}
			require.LessOrEqual(t, asked.Load(), int64(time.Since(began)/(100*time.Millisecond))+1, name)
			require.Less(t, time.Since(began), 3*time.Second)
		}
		var forging sync.WaitGroup
		for i := range lease.Token(100) {
			forging.Go(func() { require.ErrorIs(t, f.Advance(t.Context(), seq("job", 3000+i)), lease.ErrStale) })
		}
		began := time.Now()
		require.NoError(t, f.Advance(t.Context(), of(t, term)))
		require.Less(t, time.Since(began), 250*time.Millisecond)
		forging.Wait()
	})
}

// Who asks for others ends: they ask themselves, and are not told that.
func TestAnAskerThatEndsIsNotTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		stored := keep(t, store, "reader")
		f := newFences(t, sequencer.WithReader(readerFunc(func(ctx context.Context, name string) (lease.Record, error) {
			select {
			case <-time.After(time.Second):
				return stored.Get(ctx, name)
			case <-ctx.Done():
				return lease.Record{}, ctx.Err()
			}
		})))
		_, term := hold(t, keep(t, store, "a"), "job")
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- f.Advance(ctx, of(t, term)) }()
		synctest.Wait()
		second := make(chan error, 1)
		go func() { second <- f.Advance(t.Context(), of(t, term)) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-first, lease.ErrUnknown)
		require.NoError(t, <-second)
	})
}
