package lease_test

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
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestRunWaitsRunsAndReleases(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
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

// runner is Run, or what keeps its rules.
type runner func(context.Context, lease.Lease, func(context.Context, lease.Term) error) error

// runners are all that run f under a lease.
var runners = map[string]runner{
	"Run":        lease.Run,
	"TryRun":     lease.TryRun,
	"RunForever": forever(),
	"Once": func(ctx context.Context, l lease.Lease, f func(context.Context, lease.Term) error) error {
		return lease.Once(ctx, l, func(context.Context) (bool, error) { return false, nil }, f)
	},
}

func forever(opts ...lease.RunOption) runner {
	return func(ctx context.Context, l lease.Lease, f func(context.Context, lease.Term) error) error {
		return lease.RunForever(ctx, l, f, opts...)
	}
}

func TestRunCancelsOnLossAndWaitsForTheReturn(t *testing.T) {
	once := map[string]runner{"Run": lease.Run, "TryRun": lease.TryRun}
	each(t, once, func(t *testing.T, store *memory.Store, run runner) {
		a := start(t, store, "a")
		la := a.lease("job")
		var cancelled, returned time.Time
		done := meanwhile(func() error {
			return run(context.Background(), la, func(ctx context.Context, term lease.Term) error {
				<-ctx.Done()
				cancelled = time.Now()
				require.False(t, term.CheckAlive(), "CheckAlive is false before the context is done")
				require.ErrorIs(t, context.Cause(ctx), lease.ErrExpired)
				time.Sleep(3 * ttl)          // stubborn
				requireFree(t, store, "job") // its TTL covered it; it was not released under the work
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

		b := &bornDead{}
		require.ErrorIs(t, run(t.Context(), b, notCalled), lease.ErrExpired, "it does not begin under a lost term")
		require.EqualValues(t, 1, b.released.Load())
	})
}

func TestAPanicIsPassedOnAfterTheRelease(t *testing.T) {
	each(t, runners, func(t *testing.T, store *memory.Store, run runner) {
		la := start(t, store, "a").lease("job")
		require.PanicsWithValue(t, "oops", func() {
			_ = run(t.Context(), la, func(context.Context, lease.Term) error { panic("oops") })
		})
		requireFree(t, store, "job")
	})
}

func TestWhatRunsRefuses(t *testing.T) {
	for name, run := range runners {
		require.ErrorIs(t, run(t.Context(), nil, notCalled), lease.ErrInvalid, name)
		require.ErrorIs(t, run(t.Context(), &plain{}, nil), lease.ErrInvalid, name)
		err := run(t.Context(), unlike{Lease: &plain{}}, notCalled)
		require.ErrorIs(t, err, lease.ErrInvalid, "%s: it can't be told from others", name)
	}
	done := func(context.Context) (bool, error) { t.Error("asked"); return false, nil }
	require.ErrorIs(t, lease.Once(t.Context(), nil, done, notCalled), lease.ErrInvalid)
	require.ErrorIs(t, lease.Once(t.Context(), &plain{}, done, nil), lease.ErrInvalid)
	require.ErrorIs(t, lease.Once(t.Context(), &plain{}, nil, notCalled), lease.ErrInvalid)
	for _, o := range []lease.RunOption{
		nil, lease.WithBackoff(0, time.Second), lease.WithBackoff(-1, time.Second), lease.WithBackoff(2*time.Second, time.Second),
		lease.WithBackoff(time.Second, 366*24*time.Hour),
	} {
		require.ErrorIs(t, forever(o)(t.Context(), &plain{}, notCalled), lease.ErrInvalid)
	}
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
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
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

func notCalled(context.Context, lease.Term) error { panic("not called") }

func TestTryRunSkipsWhatAnotherHas(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		for name, l := range map[string]lease.Lease{"the handle": lb, "a wrapper": wrapped{lb}} {
			began := time.Now()
			ctx := within(t, time.Minute)
			err := lease.TryRun(ctx, l, notCalled)
			require.ErrorIs(t, err, lease.ErrHeld, name)
			var held *lease.HeldError
			require.ErrorAs(t, err, &held, name)
			require.Equal(t, "a", held.Record.Owner.ID)
			require.Equal(t, token(t, la), held.Record.Token)
			require.ErrorContains(t, err, `"job"`)
			require.Zero(t, time.Since(began), "it does not wait")
		}
		err := lease.TryRun(t.Context(), opaque{lb}, notCalled)
		require.ErrorIs(t, err, lease.ErrHeld, "a lease that can't tell its holder")
		require.True(t, la.CheckAlive())
		require.NoError(t, la.Release(t.Context()))

		why := errors.New("the work's own")
		require.ErrorIs(t, lease.TryRun(t.Context(), lb, func(ctx context.Context, term lease.Term) error {
			require.True(t, term.CheckAlive())
			require.Equal(t, token(t, lb), term.Token())
			return why
		}), why)
		requireFree(t, store, "job")
	})
}

// In one process a name has one handle: who works under it, or waits for it, is another.
func TestTryRunSkipsWhatARunOfThisProcessIsAbout(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		la, lb := a.lease("job"), b.lease("job")
		end, ended := make(chan struct{}), make(chan error, 2)
		go func() {
			ended <- lease.Run(context.Background(), la, func(context.Context, lease.Term) error { <-end; return nil })
		}()
		synctest.Wait()
		err := lease.TryRun(t.Context(), wrapped{la}, notCalled)
		var held *lease.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "a", held.Record.Owner.ID)
		require.True(t, la.CheckAlive(), "it did not release it under the other's work")

		go func() {
			ended <- lease.Run(context.Background(), lb, func(context.Context, lease.Term) error { <-end; return nil })
		}()
		synctest.Wait()
		require.ErrorIs(t, lease.TryRun(t.Context(), lb, notCalled), lease.ErrHeld, "another call waits")
		close(end)
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
		ran := false
		require.NoError(t, lease.TryRun(t.Context(), lb, func(context.Context, lease.Term) error { ran = true; return nil }))
		require.True(t, ran)
	})
}

func TestTryRunKeepsTheRulesOfRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		la := start(t, store, "a").lease("job")
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, lease.TryRun(ctx, la, func(ctx context.Context, _ lease.Term) error {
			cancel()
			<-ctx.Done()
			return nil
		}))
		requireFree(t, store, "job")
		require.ErrorIs(t, lease.TryRun(ctx, la, notCalled), context.Canceled)

		p := &plain{}
		p.refuse.Store(1)
		require.ErrorIs(t, lease.TryRun(t.Context(), p, notCalled), lease.ErrHeld)
		require.EqualValues(t, 1, p.acquired.Load(), "one attempt")
	})
}

func TestTryRunTellsWhatKeptItFromAcquiring(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		la := a.lease("job")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Drop, Hang: true})
		began := time.Now()
		require.ErrorIs(t, lease.TryRun(t.Context(), la, notCalled), lease.ErrUnknown)
		require.Equal(t, ttl, time.Since(began), "OperationTimeout bounds it")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Deny})
		require.ErrorIs(t, lease.TryRun(t.Context(), la, notCalled), lease.ErrDenied)
		a.store.SetRule(nil)
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, lease.TryRun(t.Context(), la, notCalled), lease.ErrClosed)
	})
}

// ErrHeld says that f did not run: an f that failed as something else is held does not have it said.
func TestErrHeldSaysThatTheWorkDidNotRun(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		b.hold("inner")
		inner := a.lease("inner")
		pool, err := lease.NewPool(a.Keeper, "pool", 1)
		require.NoError(t, err)
		work := func(ctx context.Context) error {
			err := lease.TryRun(ctx, inner, notCalled)
			require.ErrorIs(t, err, lease.ErrHeld)
			return err
		}
		for what, err := range map[string]error{
			"TryRun":      lease.TryRun(t.Context(), a.lease("job"), func(ctx context.Context, _ lease.Term) error { return work(ctx) }),
			"Pool.TryRun": pool.TryRun(t.Context(), func(ctx context.Context, _ int, _ lease.Term) error { return work(ctx) }),
		} {
			require.NotErrorIs(t, err, lease.ErrHeld, what)
			var held *lease.HeldError
			require.False(t, errors.As(err, &held), what)
			require.ErrorContains(t, err, `"inner"`, what)
		}
		require.NoError(t, pool.Close(t.Context()))
	})
}

// schema is what Once is run for in these tests: it is at some version, or not.
type schema struct {
	mu    sync.Mutex
	is    bool
	asked int
	runs  int
}

func (s *schema) done(context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.is, nil
}

func (s *schema) migrate(context.Context, lease.Term) error {
	time.Sleep(ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is = true
	s.runs++
	return nil
}

func TestOnceOneRunsItAndTheOthersWait(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var s schema
		const nodes = 20
		ended := make(chan time.Duration, nodes)
		began := time.Now()
		for i := range nodes {
			h := start(t, store, string(rune('a'+i))).lease("migrations")
			go func() {
				require.NoError(t, lease.Once(t.Context(), h, s.done, s.migrate))
				ended <- time.Since(began)
			}()
		}
		for range nodes {
			took := <-ended
			require.GreaterOrEqual(t, took, ttl)
			require.Less(t, took, ttl+100*time.Millisecond, "who waited need not have the lease in turn")
		}
		require.Equal(t, 1, s.runs)
		requireFree(t, store, "migrations")
		before := store.Stats().Acquire
		late := start(t, store, "late").lease("migrations")
		require.NoError(t, lease.Once(t.Context(), late, s.done, notCalled))
		require.Equal(t, before, store.Stats().Acquire, "who comes late asks for no lease")
	})
}

func TestWhatEndsOnce(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		h := a.lease("migrations")
		why := errors.New("no such table")
		never := func(context.Context) (bool, error) { return false, nil }
		err := lease.Once(t.Context(), h, never, func(context.Context, lease.Term) error { return why })
		require.ErrorIs(t, err, why)
		err = lease.Once(t.Context(), h, never, func(context.Context, lease.Term) error { return nil })
		require.ErrorIs(t, err, lease.ErrNotDone)
		require.ErrorContains(t, err, `"migrations"`)
		asked := 0
		for _, at := range []int{1, 2, 3} { // before, under the lease, and after
			asked = 0
			ran := false
			err = lease.Once(t.Context(), h, func(context.Context) (bool, error) {
				if asked++; asked == at {
					return true, why // the error counts
				}
				return false, nil
			}, func(context.Context, lease.Term) error { ran = true; return nil })
			require.ErrorIs(t, err, why)
			require.Equal(t, at, asked)
			require.Equal(t, at == 3, ran)
			requireFree(t, store, "migrations")
		}
		require.PanicsWithValue(t, "oops", func() {
			lease.Once(t.Context(), h, func(context.Context) (bool, error) { panic("oops") }, notCalled)
		})
		requireFree(t, store, "migrations")

		// While another has it.
		b := start(t, store, "b")
		b.hold("migrations")
		ctx := within(t, time.Minute)
		require.ErrorIs(t, lease.Once(ctx, h, never, notCalled), context.DeadlineExceeded)
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, lease.Once(t.Context(), h, never, notCalled), lease.ErrClosed)
	})
}

// It is done, so what becomes of the release is no error of the caller's.
func TestOnceIsContentThoughItCantRelease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var s schema
		a := start(t, store, "a")
		require.NoError(t, lease.Once(t.Context(), a.lease("migrations"), s.done, func(ctx context.Context, term lease.Term) error {
			a.store.Partition()
			s.is = true
			return nil
		}))
	})
}

// The answer under the lease is slow, and the lease is lost meanwhile: the answer is old.
func TestOnceDoesNotBeginByAnOldAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var s schema
		a := start(t, store, "a")
		require.NoError(t, lease.Once(t.Context(), a.lease("migrations"), func(ctx context.Context) (bool, error) {
			is, _ := s.done(ctx)
			if s.asked == 2 {
				a.store.Partition()
				time.Sleep(2 * ttl)
				a.store.Heal()
			}
			return is, nil
		}, func(ctx context.Context, term lease.Term) error {
			require.True(t, term.CheckAlive())
			require.NoError(t, ctx.Err())
			return s.migrate(ctx, term)
		}))
		require.Equal(t, 1, s.runs)
	})
}

func TestRunForeverLeadsAgainAfterALoss(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		la := a.lease("job")
		ctx, cancel := context.WithCancel(context.Background())
		var tokens []lease.Token
		done := meanwhile(func() error {
			return lease.RunForever(ctx, la, func(ctx context.Context, term lease.Term) error {
				tokens = append(tokens, term.Token())
				<-ctx.Done()
				return nil // a loss is a loss, though f says that it is content
			})
		})
		synctest.Wait()
		for lost := range 3 {
			require.Len(t, tokens, lost+1)
			a.store.Partition()
			time.Sleep(ttl + time.Second)
			synctest.Wait()
			require.Len(t, tokens, lost+1, "nothing is led behind a partition")
			a.store.Heal()
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		require.Len(t, tokens, 4)
		require.IsIncreasing(t, tokens)
		cancel()
		require.NoError(t, <-done, "f returned nil, and the term stood")
		requireFree(t, store, "job")
	})
}

func TestWhatFReturnsToRunForever(t *testing.T) {
	why := errors.New("the work's own")
	type row struct {
		f     func(n int, l lease.Lease) error
		calls int
		is    []error // none: nil is returned
	}
	each(t, map[string]row{
		"nil: it is over":      {func(int, lease.Lease) error { return nil }, 1, nil},
		"ErrStop":              {func(int, lease.Lease) error { return fmt.Errorf("%w: %w", lease.ErrStop, why) }, 1, []error{lease.ErrStop, why}},
		"errors, and then nil": {func(n int, _ lease.Lease) error { return []error{why, why, nil}[n] }, 3, nil},
		"it steps down, then ends": {func(n int, l lease.Lease) error {
			if n > 0 {
				return nil
			}
			return l.Release(context.Background())
		}, 2, nil},
	}, func(t *testing.T, store *memory.Store, c row) {
		h := start(t, store, "a").lease("job")
		calls := 0
		err := lease.RunForever(t.Context(), h, func(context.Context, lease.Term) error {
			defer func() { calls++ }()
			return c.f(calls, h)
		})
		require.Equal(t, c.calls, calls)
		if c.is == nil {
			require.NoError(t, err)
		}
		for _, is := range c.is {
			require.ErrorIs(t, err, is)
		}
		requireFree(t, store, "job")
	})
}

// The pauses double up to the longest, with jitter, and begin anew after a term that lasted.
func TestThePausesOfRunForever(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h := start(t, store, "a").lease("job")
		var calls []time.Time
		var ended time.Time
		var pauses []time.Duration
		err := lease.RunForever(t.Context(), h, func(context.Context, lease.Term) error {
			calls = append(calls, time.Now())
			if len(calls) > 1 {
				pauses = append(pauses, time.Since(ended))
			}
			requireHeld(t, store, "job")
			defer func() { ended = time.Now() }()
			switch len(calls) {
			case 8:
				time.Sleep(31 * time.Second)
			case 10:
				return lease.ErrStop
			}
			return errors.New("no")
		})
		require.ErrorIs(t, err, lease.ErrStop)
		want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 1, 2}
		require.Len(t, pauses, len(want))
		for i, p := range pauses {
			require.GreaterOrEqual(t, p, want[i]*time.Second/2, "pause %d", i)
			require.LessOrEqual(t, p, want[i]*time.Second, "pause %d", i)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began, n := time.Now(), 0
		err := lease.RunForever(t.Context(), &plain{}, func(context.Context, lease.Term) error {
			if n++; n == 11 {
				return lease.ErrStop
			}
			return errors.New("no")
		}, lease.WithBackoff(time.Millisecond, 4*time.Millisecond))
		require.ErrorIs(t, err, lease.ErrStop)
		require.Less(t, time.Since(began), 40*time.Millisecond)
		require.Greater(t, time.Since(began), 15*time.Millisecond)
	})
}

// While one pauses after its own error, another leads.
func TestAnErrorGivesOthersTheirChance(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 2)
		var bad, good atomic.Int32
		for id, f := range map[string]func(context.Context, lease.Term) error{
			"a": func(context.Context, lease.Term) error { bad.Add(1); return errors.New("no") },
			"b": func(ctx context.Context, _ lease.Term) error { good.Add(1); <-ctx.Done(); return ctx.Err() },
		} {
			h := start(t, store, id).lease("job")
			go func() { done <- lease.RunForever(ctx, h, f) }()
		}
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, good.Load())
		require.LessOrEqual(t, bad.Load(), int32(1))
		cancel()
		for range 2 {
			require.ErrorIs(t, <-done, context.Canceled)
		}
		requireFree(t, store, "job")
	})
}

func TestHowRunForeverEnds(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		wait := func(ctx context.Context, h *lease.Handle, f func(context.Context, lease.Term) error) <-chan error {
			done := meanwhile(func() error { return lease.RunForever(ctx, h, f) })
			synctest.Wait()
			return done
		}
		until := func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return context.Cause(ctx) }

		h := a.lease("closed")
		working := wait(context.Background(), h, until)
		waiting := wait(context.Background(), b.lease("closed"), notCalled)
		ctx, cancel := context.WithCancel(context.Background())
		paused := wait(ctx, b.lease("paused"), func(context.Context, lease.Term) error { return errors.New("its own") })
		cancel()
		err := <-paused
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "its own")
		require.NoError(t, b.Close(t.Context()))
		require.ErrorIs(t, <-waiting, lease.ErrClosed)
		began := time.Now()
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, <-working, lease.ErrClosed)
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, lease.RunForever(t.Context(), h, notCalled), lease.ErrClosed)
	})
}

// What is no record stands under the name until an operator deletes it.
func TestRunForeverOutlastsABadRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &bad{}
		p.times.Store(5)
		require.ErrorIs(t, lease.Run(t.Context(), p, notCalled), lease.ErrBadRecord)
		require.NoError(t, lease.RunForever(t.Context(), p, func(context.Context, lease.Term) error { return nil }))
	})
}

// bad says so many times that its record is none.
type bad struct {
	plain
	times atomic.Int32
}

func (b *bad) Acquire(ctx context.Context) (bool, error) {
	if b.times.Add(-1) >= 0 {
		return false, lease.ErrBadRecord
	}
	return b.plain.Acquire(ctx)
}

func requireHeld(t *testing.T, store store.Store, name string) {
	t.Helper()
	_, ok := standing(t, store, name)
	require.True(t, ok, "%s is held", name)
}

// embedding is a wrapper that needs no Unwrap to be looked through.
type embedding struct{ *lease.Handle }

// unlike can't be compared with another of its kind.
type unlike struct {
	lease.Lease
	_ []int
}

func TestRunsOfOneLeaseTakeTurns(t *testing.T) {
	each(t, map[string]func(*lease.Handle) lease.Lease{
		"the handle":  func(h *lease.Handle) lease.Lease { return h },
		"a wrapper":   func(h *lease.Handle) lease.Lease { return wrapped{wrapped{h}} },
		"an embedder": func(h *lease.Handle) lease.Lease { return &embedding{h} },
	}, func(t *testing.T, store *memory.Store, wrap func(*lease.Handle) lease.Lease) {
		a, b := start(t, store, "a"), start(t, store, "b")
		job := a.lease("job")
		var running atomic.Int32
		tokens := make(chan lease.Token, 2)
		end := []chan struct{}{make(chan struct{}), make(chan struct{})}
		run := func(l lease.Lease, i int) {
			err := lease.Run(t.Context(), l, func(_ context.Context, term lease.Term) error {
				require.EqualValues(t, 1, running.Add(1), "calls of f at one moment")
				tokens <- term.Token()
				<-end[i] // work that needs a while to stop
				running.Add(-1)
				return nil
			})
			require.NoError(t, err)
		}
		go run(job, 0)
		synctest.Wait()
		go run(wrap(job), 1)
		time.Sleep(3 * ttl)
		require.Len(t, tokens, 1)
		mustNotWin(t, b.lease("job"))
		close(end[0])
		synctest.Wait()
		require.Greater(t, token(t, job), <-tokens, "a term of its own")
		close(end[1])
		synctest.Wait()
		requireFree(t, store, "job")
	})
}

func TestRunWaitsForItsTurnNoLongerThanItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		job := start(t, store, "a").lease("job")
		end := make(chan struct{})
		go lease.Run(t.Context(), job, func(context.Context, lease.Term) error { <-end; return nil })
		synctest.Wait()
		never := func(context.Context, lease.Term) error { t.Error("called"); return nil }
		require.ErrorIs(t, lease.Run(within(t, time.Minute), job, never), context.DeadlineExceeded)
		require.True(t, job.CheckAlive(), "the first goes on")
		close(end)
		synctest.Wait()
		require.NoError(t, lease.Run(t.Context(), job, func(context.Context, lease.Term) error { return nil }))
	})
}

// narrowed is a lease that is alive only while something else is, too, and may tell
// of its own loss.
type narrowed struct {
	lease.Lease
	refused atomic.Bool
	lost    atomic.Pointer[func(lease.Loss)]
}

func (n *narrowed) CheckAlive() bool    { return !n.refused.Load() && n.Lease.CheckAlive() }
func (n *narrowed) Unwrap() lease.Lease { return n.Lease }
func (n *narrowed) OnLost(f func(lease.Loss)) func() bool {
	n.lost.Store(&f)
	stop := n.Lease.OnLost(f)
	return func() bool { n.lost.Store(nil); return stop() }
}

// hasty is a lease that is lost just before who asks for that is registered.
type hasty struct{ *narrowed }

func (h hasty) OnLost(f func(lease.Loss)) func() bool {
	h.refused.Store(true)
	return h.narrowed.OnLost(f)
}

func TestALossBeforeTheRegistrationEndsTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		n := &narrowed{Lease: start(t, store, "a").lease("job")}
		mustWin(t, n)
		term, stop := lease.TermOf(hasty{n})
		defer stop()
		require.False(t, term.CheckAlive())
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
	})
}

func TestATermIsAsNarrowAsWhatWrapsItsLease(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		n := &narrowed{Lease: a.lease("job")}
		l := wrapped{n}
		why := errors.New("the other thing ended")
		err := lease.Run(t.Context(), l, func(ctx context.Context, term lease.Term) error {
			require.True(t, term.CheckAlive())
			held, ok := lease.As[lease.Termed](l)
			require.True(t, ok)
			same, ok := held.Term()
			require.True(t, ok)
			require.Equal(t, term.Token(), same.Token())
			c, ok := term.(lease.Continuing)
			require.True(t, ok)
			require.Zero(t, c.Continues())

			n.refused.Store(true)
			require.False(t, term.CheckAlive())
			require.False(t, same.CheckAlive())
			_, ok = held.Term()
			require.False(t, ok)
			n.refused.Store(false)
			require.False(t, term.CheckAlive(), "a term that was seen dead stays so")

			require.NoError(t, ctx.Err())
			(*n.lost.Load())(lease.Loss{Name: "job", Reason: why})
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), why)
			return nil
		})
		require.ErrorIs(t, err, why)
		require.Nil(t, n.lost.Load(), "what was registered is taken back")
		requireFree(t, store, "job")

		mustWin(t, l)
		term, stop := lease.TermOf(l)
		defer stop()
		n.lost.Store(nil)
		lost := watchLosses(n.Lease)
		a.store.Partition()
		time.Sleep(ttl)
		synctest.Wait()
		lost.one(t, lease.ErrExpired)
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
	})
}

// What TermOf registers is freed by stop: a lease that is held for long is asked for its term again and
// again.
func TestTermOfKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		l := &narrowed{Lease: start(t, store, "a").lease("job")}
		mustWin(t, l)
		term, stop := lease.TermOf(l)
		require.True(t, term.CheckAlive())
		stop()
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrReleased, "else it hangs on the context of the term within")
		require.True(t, l.CheckAlive())
	})
}
