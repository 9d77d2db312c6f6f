package lease_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestWaitHearsByTheWatchAtOnce(t *testing.T) {
	watched(t, func(t *testing.T, store store.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		require.NoError(t, la.Wait(t.Context()), "what is ours is not waited for")
		heard := meanwhile(func() error { return lb.Wait(context.Background()) })
		time.Sleep(3 * ttl)
		require.Empty(t, heard)
		require.NoError(t, la.Release(t.Context()))
		synctest.Wait()
		require.Len(t, heard, 1, "no time has passed")
		require.NoError(t, <-heard)
		require.NoError(t, lb.Wait(t.Context()), "and a name that is free is free at once")
		ctx := within(t, time.Second)
		mustWin(t, la)
		require.ErrorIs(t, lb.Wait(ctx), context.DeadlineExceeded)
	})
}

// looks returns when the node read a name, and lets nothing be watched.
func looks(n *node) func() []time.Duration {
	began := time.Now()
	var mu sync.Mutex
	var at []time.Duration
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		switch c.Op {
		case faultstore.Get:
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
		case faultstore.Watch:
			return faultstore.Fault{Kind: faultstore.Drop, Hang: true}
		}
		return faultstore.Fault{}
	})
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return append([]time.Duration(nil), at...)
	}
}

func TestWaitPollsAtGrowingJitteredIntervals(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		const lowest, highest = time.Second, 10 * time.Second
		a := start(t, store, "a")
		b := start(t, store, "b", func(c *lease.Config) { c.PollMin, c.PollMax = lowest, highest })
		a.hold("job")
		at := looks(b)
		stop := b.lease("job").OnFree(func() { t.Error("it never was") })
		time.Sleep(2 * time.Minute)
		seen := at()
		require.Zero(t, seen[0], "the first look is taken at once")
		want := lowest
		distinct := map[time.Duration]bool{}
		for i := 1; i < len(seen); i++ {
			pause := seen[i] - seen[i-1]
			distinct[pause] = true
			require.LessOrEqual(t, pause, want+time.Millisecond)
			require.GreaterOrEqual(t, pause, want*3/4-lowest/4, "rounded down to a grid")
			want = min(2*want, highest)
		}
		require.Greater(t, len(distinct), len(seen)/4, "jittered, on the grid")
		require.True(t, stop())
		require.False(t, stop())
		time.Sleep(time.Minute)
		require.Len(t, at(), len(seen), "nobody waits, nobody looks")
	})
}

func TestOnFreeByPolling(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		looks(b)
		free := make(chan time.Time, 3)
		lb.OnFree(func() { free <- time.Now() })
		lb.OnFree(func() { panic("harms nobody") })
		stop := lb.OnFree(func() { t.Error("was stopped") })
		time.Sleep(time.Minute)
		require.True(t, stop())
		require.Empty(t, free)
		released := time.Now()
		require.NoError(t, la.Release(t.Context()))
		require.LessOrEqual(t, (<-free).Sub(released), 10*time.Second)
		time.Sleep(time.Minute)
		require.Empty(t, free, "once")
		require.NotPanics(t, func() { lb.OnFree(nil)() })
	})
}

func TestPollingBacksTheWatchUp(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		b := start(t, &deafStore{Store: store}, "b", func(c *lease.Config) { c.PollMax = time.Minute })
		la, lb := a.hold("job"), b.lease("job")
		mustNotWin(t, lb)
		time.Sleep(time.Second)
		gets := store.Stats().Get
		free := make(chan time.Time, 1)
		lb.OnFree(func() { free <- time.Now() })
		time.Sleep(time.Minute)
		require.LessOrEqual(t, store.Stats().Get-gets, uint64(5), "with a watch the looks are PollMax apart; three are reconciliation's")
		released := time.Now()
		require.NoError(t, la.Release(t.Context()))
		require.LessOrEqual(t, (<-free).Sub(released), time.Minute, "a watch that has gone deaf is backed up")
	})
}

// deafStore's watches tell their snapshot and nothing after it.
type deafStore struct{ *memory.Store }

func (d *deafStore) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for ev, err := range d.Store.Watch(ctx, of) {
			if !yield(ev, err) || ev.Kind == store.EventSynced {
				break
			}
		}
		<-ctx.Done()
		yield(store.Event{}, ctx.Err())
	}
}

// The looks of very many waiters go together.
func TestLooksAreBatched(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		const least = time.Second
		a, b := start(t, store, "a"), start(t, store, "b", func(c *lease.Config) { c.PollMin = least })
		at := looks(b)
		for _, name := range manyNames(100) {
			a.hold(name)
			b.lease(name).OnFree(func() { t.Error("it never was") })
		}
		time.Sleep(least / 2) // the first looks are taken at once
		first := len(at())
		time.Sleep(time.Minute)
		looked := at()[first:]
		require.Greater(t, len(looked), 100, "each name at least once in 10 s, and that often at many moments")
		for i, when := range looked[1:] {
			require.GreaterOrEqual(t, when-looked[i], least/4, "one look at all that is due")
		}
	})
}

// What spreads a herd is how many names became free, not how many somebody waits
// for: one name is told of at once, however many others wait.
func TestAHerdIsSpreadByWhatBecameFree(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		const n = 1001
		hs, free := make([]*lease.Handle, n), make(chan time.Time, n)
		for i, name := range manyNames(n) {
			hs[i] = a.hold(name)
			b.lease(name).OnFree(func() { free <- time.Now() })
		}
		time.Sleep(2 * time.Second)
		for _, h := range hs[:10] { // one after the other
			released := time.Now()
			require.NoError(t, h.Release(t.Context()))
			require.Less(t, (<-free).Sub(released), 10*time.Millisecond)
			time.Sleep(1500 * time.Millisecond)
		}
		began := time.Now()
		require.NoError(t, a.Close(closing(t, hs[10:]))) // all others together
		var early, late int
		for range n - 10 {
			switch after := (<-free).Sub(began); {
			case after < 100*time.Millisecond:
				early++
			case after <= time.Second+10*time.Millisecond:
				late++
			}
		}
		require.Equal(t, n-10, early+late, "within a second")
		require.Greater(t, late, n/2, "and not all at once")
	})
}

// closing gives the handles up as soon as their Keeper is closed.
func closing(t *testing.T, hs []*lease.Handle) context.Context {
	for _, h := range hs {
		h.OnLost(func(lease.Loss) { h.Release(context.Background()) })
	}
	return t.Context()
}

// A name that is freed with many others is told of after a pause; the handle may have
// been closed meanwhile.
func TestOnFreeIsNotCalledAfterClose(t *testing.T) {
	each(t, map[string]func(*node, *lease.Handle) error{
		"the handle's": func(_ *node, h *lease.Handle) error { return h.Close(context.Background()) },
		"the keeper's": func(n *node, _ *lease.Handle) error { return n.Close(context.Background()) },
	}, func(t *testing.T, store *memory.Store, end func(*node, *lease.Handle) error) {
		a, b := start(t, store, "a"), start(t, store, "b")
		const n = 300
		var mine []*lease.Handle
		var closed atomic.Bool
		var before, after atomic.Int32
		var theirs []*lease.Handle
		for i := range n {
			name := fmt.Sprint("job/", i)
			mine = append(mine, a.hold(name))
			h := b.lease(name)
			theirs = append(theirs, h)
			h.OnFree(func() {
				if closed.Load() {
					after.Add(1)
				}
				before.Add(1)
			})
		}
		time.Sleep(time.Second)
		for _, h := range mine {
			require.NoError(t, h.Release(t.Context()))
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Less(t, before.Load(), int32(n), "a herd is spread")
		for _, h := range theirs {
			require.NoError(t, end(b, h))
		}
		synctest.Wait()
		closed.Store(true)
		time.Sleep(2 * time.Second)
		require.Zero(t, after.Load())
	})
}
