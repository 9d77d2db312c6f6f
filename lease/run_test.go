package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

func TestRunWaitsRunsAndReleases(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		failure := errors.New("the work's own")
		done := meanwhile(func() error {
			return lease.Run(context.Background(), lb, func(ctx context.Context, term lease.Term) error {
				require.True(t, term.CheckAlive())
				require.Equal(t, token(t, lb), term.Token())
				require.Equal(t, "job", term.Name())
				require.NoError(t, ctx.Err())
				return failure
			})
		})
		time.Sleep(ttl)
		require.Empty(t, done)
		require.NoError(t, la.Release(t.Context()))
		require.ErrorIs(t, <-done, failure)
		requireFree(t, store, "job")
	})
}

func TestRunCancelsOnLossAndWaitsForTheReturn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.lease("job")
		var cancelled, returned time.Time
		done := meanwhile(func() error {
			return lease.Run(context.Background(), la, func(ctx context.Context, term lease.Term) error {
				<-ctx.Done()
				cancelled = time.Now()
				require.False(t, term.CheckAlive(), "CheckAlive is false before the context is done")
				require.ErrorIs(t, context.Cause(ctx), lease.ErrExpired)
				time.Sleep(3 * ttl) // stubborn
				_, ok := standing(t, store, "job")
				require.False(t, ok, "its TTL covered it; it was not released under the work")
				returned = time.Now()
				return nil
			})
		})
		synctest.Wait()
		began := time.Now()
		releases := store.Stats().Release
		a.store.Partition()
		time.Sleep(ttl)
		synctest.Wait()
		require.Equal(t, trusted, cancelled.Sub(began))
		a.store.Heal()
		require.ErrorIs(t, <-done, lease.ErrExpired)
		require.Equal(t, 3*ttl, returned.Sub(cancelled))
		require.LessOrEqual(t, store.Stats().Release, releases+1)
	})
}

func TestRunPassesAPanicOnAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		la := start(t, store, "a").lease("job")
		require.PanicsWithValue(t, "oops", func() {
			lease.Run(t.Context(), la, func(context.Context, lease.Term) error { panic("oops") })
		})
		requireFree(t, store, "job")
	})
}

func TestRunRefusesNothingToRun(t *testing.T) {
	require.ErrorIs(t, lease.Run(t.Context(), nil, func(context.Context, lease.Term) error { return nil }), lease.ErrInvalid)
	require.ErrorIs(t, lease.Run(t.Context(), &plain{}, nil), lease.ErrInvalid)
}

// plain is a lease that has only what it must have.
type plain struct {
	alive    atomic.Bool
	refuse   atomic.Int32 // so many acquisitions
	acquired atomic.Int32
	released atomic.Int32
	lost     atomic.Pointer[func(lease.Loss)]
}

func (p *plain) Acquire(context.Context) (bool, error) {
	p.acquired.Add(1)
	if p.refuse.Add(-1) >= 0 {
		return false, nil
	}
	p.alive.Store(true)
	return true, nil
}
func (p *plain) Release(context.Context) error { p.alive.Store(false); p.released.Add(1); return nil }
func (p *plain) CheckAlive() bool              { return p.alive.Load() }
func (p *plain) OnLost(f func(lease.Loss)) func() bool {
	p.lost.Store(&f)
	return func() bool { return p.lost.Swap(nil) != nil }
}

func (p *plain) lose(reason error) {
	p.alive.Store(false)
	if f := p.lost.Load(); f != nil {
		(*f)(lease.Loss{Reason: reason})
	}
}

func TestRunOverAPlainLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &plain{}
		p.refuse.Store(5)
		began := time.Now()
		done := meanwhile(func() error {
			return lease.Run(context.Background(), p, func(ctx context.Context, term lease.Term) error {
				require.Zero(t, term.Token())
				require.True(t, term.CheckAlive())
				require.NotEmpty(t, term.Name())
				<-ctx.Done()
				require.False(t, term.CheckAlive())
				return nil
			})
		})
		time.Sleep(time.Minute)
		require.EqualValues(t, 6, p.acquired.Load(), "tried again, at growing intervals of 1 s to 10 s")
		require.Less(t, time.Since(began), 61*time.Second)
		p.lose(lease.ErrTakenOver)
		require.ErrorIs(t, <-done, lease.ErrTakenOver)
		require.EqualValues(t, 1, p.released.Load())
		require.Nil(t, p.lost.Load(), "what Run registered is taken back")

		require.NoError(t, lease.Run(context.Background(), p, func(context.Context, lease.Term) error { return nil }))

		p.refuse.Store(1 << 30)
		ctx := within(t, time.Minute)
		require.ErrorIs(t, lease.Run(ctx, p, func(context.Context, lease.Term) error { return nil }), context.DeadlineExceeded)
	})
}

// bornDead is won, but dead by the time anybody looks.
type bornDead struct{ plain }

func (b *bornDead) CheckAlive() bool { return false }

func TestRunDoesNotBeginUnderALostTerm(t *testing.T) {
	b := &bornDead{}
	err := lease.Run(t.Context(), b, func(context.Context, lease.Term) error { t.Error("called"); return nil })
	require.ErrorIs(t, err, lease.ErrExpired)
	require.EqualValues(t, 1, b.released.Load())
}

// wrapped adds something to a lease.
type wrapped struct{ lease.Lease }

func (w wrapped) Unwrap() lease.Lease { return w.Lease }

// opaque hides what it wraps.
type opaque struct{ lease.Lease }

func TestAsLooksThroughWrappers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h := start(t, store, "a").hold("job")
		l := lease.Lease(wrapped{wrapped{h}})
		got, ok := lease.As[*lease.Handle](l)
		require.True(t, ok)
		require.Same(t, h, got)
		_, ok = lease.As[lease.TransferLease](l)
		require.True(t, ok)
		outer, ok := lease.As[wrapped](l)
		require.True(t, ok)
		require.Equal(t, l, lease.Lease(outer), "the first that fits")
		_, ok = lease.As[lease.Termed](opaque{h})
		require.False(t, ok)
		_, ok = lease.As[lease.Termed](nil)
		require.False(t, ok)
		_, ok = lease.As[lease.Termed](wrapped{})
		require.False(t, ok)
	})
}

func TestTermOf(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		h := a.lease("job")
		term, stop := lease.TermOf(wrapped{h})
		require.False(t, term.CheckAlive(), "not acquired: a term that has ended")
		require.Equal(t, "job", term.Name())
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
		stop()
		mustWin(t, h)
		require.False(t, term.CheckAlive(), "and that stays ended")
		term, stop = lease.TermOf(wrapped{h})
		defer stop()
		require.Equal(t, token(t, h), term.Token())
		at, alive := term.Check()
		require.True(t, alive)
		require.Equal(t, a.clock.Now().Mono, at)

		// One without terms: made from CheckAlive and OnLost.
		made, stop := lease.TermOf(opaque{h})
		require.Zero(t, made.Token())
		require.True(t, made.CheckAlive())
		a.store.Partition()
		time.Sleep(ttl)
		synctest.Wait()
		require.False(t, made.CheckAlive())
		require.ErrorIs(t, context.Cause(made.Context()), lease.ErrExpired)
		a.store.Heal()
		mustWin(t, h)
		require.False(t, made.CheckAlive(), "a later ownership is another term")
		stop()
		dead, stop := lease.TermOf(&plain{})
		defer stop()
		require.ErrorIs(t, context.Cause(dead.Context()), lease.ErrExpired)
	})
}
