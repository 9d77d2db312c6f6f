package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// calls notes when a store was asked to do what.
type calls struct {
	mu sync.Mutex
	at map[faultstore.Op][]time.Time
}

// noting has the calls of a node noted, and disturbed by f if that is not nil.
func (n *node) noting(f func(faultstore.Call) faultstore.Fault) *calls {
	c := &calls{at: map[faultstore.Op][]time.Time{}}
	n.store.SetRule(func(x faultstore.Call) faultstore.Fault {
		c.mu.Lock()
		c.at[x.Op] = append(c.at[x.Op], time.Now())
		c.mu.Unlock()
		if f != nil {
			return f(x)
		}
		return faultstore.Fault{}
	})
	return c
}

func (c *calls) of(op faultstore.Op) []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Time(nil), c.at[op]...)
}

// trustLeft is for how long a lease is trusted from now.
func trustLeft(t *testing.T, h *lease.Handle) time.Duration {
	t.Helper()
	return time.Until(info(t, h).TrustedUntil)
}

func noJitter(c *lease.Config) { c.Jitter = -1 }

// Each policy renews when it says, without and with jitter.
func TestWhenPoliciesRenew(t *testing.T) {
	for r, at := range map[lease.Renewal]time.Duration{
		(lease.Renewal{}):     ttl / 3,
		lease.RenewEager():    ttl / 2,
		lease.RenewAt(0.2):    ttl / 5,
		lease.RenewAt(0.73):   ttl * 73 / 100,
		lease.RenewLazy():     8100 * time.Millisecond, // of a window of 9 s
		lease.RenewAdaptive(): 6425 * time.Millisecond, // two attempts of 1.125 s, and a tenth of each, and 100 ms
	} {
		for _, jitter := range []float64{-1, 0.1} {
			t.Run(fmt.Sprint(r, jitter), func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memory.Store) {
					a := start(t, store, "a", func(c *lease.Config) { c.Jitter = jitter })
					asked := a.noting(nil)
					began := time.Now()
					h := a.hold("job", lease.WithRenewal(r))
					lost := watchLosses(h)
					time.Sleep(10 * ttl)
					require.Empty(t, lost.all())
					require.True(t, h.CheckAlive())
					renewed := asked.of(faultstore.Renew)
					least, most := at, at
					if jitter > 0 {
						least, most = at*89/100, at*111/100
						if r == lease.RenewLazy() || r == lease.RenewAdaptive() {
							most = at
						}
					}
					for i, x := range renewed {
						require.LessOrEqual(t, least, x.Sub(began)+time.Microsecond, "renewal %d", i)
						require.GreaterOrEqual(t, most, x.Sub(began)-time.Microsecond, "renewal %d", i)
						began = x
					}
					require.InDelta(t, float64(10*ttl/at), float64(len(renewed)), float64(10*ttl/at)/8+1)
					term, _ := h.Term()
					require.Equal(t, r, term.(lease.Informed).Info().Renewal)
					require.Equal(t, len(renewed), term.(lease.Informed).Info().Renewals)
				})
			})
		}
	}
}

// Sessions are shared among leases of one TTL and policy, and no others.
func TestPoliciesDoNotShareSessions(t *testing.T) {
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
		of := map[store.SessionID][]string{}
		hold := func(kind string, n int, opts ...lease.Option) (ids map[store.SessionID]bool) {
			ids = map[store.SessionID]bool{}
			for i := range n {
				name := fmt.Sprintf("%s/%d", kind, i)
				a.hold(name, opts...)
				rec, ok := standing(t, db, name)
				require.True(t, ok)
				ids[rec.Session] = true
			}
			for id := range ids {
				require.Empty(t, of[id], "%s has a session of another kind", kind)
				of[id] = append(of[id], kind)
			}
			return ids
		}
		for _, r := range []lease.Renewal{(lease.Renewal{}), lease.RenewEager(), lease.RenewAt(0.2), lease.RenewAt(0.25), lease.RenewLazy(), lease.RenewAdaptive()} {
			require.Len(t, hold(r.String(), 3, lease.WithRenewal(r)), 1, "%v shares", r)
			require.Len(t, hold("short "+r.String(), 3, lease.WithRenewal(r), lease.WithTTL(ttl/2)), 1, "%v shares", r)
		}
		for _, r := range []lease.Renewal{lease.RenewOnActivity(), lease.RenewByHand(), lease.RenewNever()} {
			require.Len(t, hold(r.String(), 3, lease.WithRenewal(r)), 3, "%v: what renews one renews no other", r)
		}
		require.Len(t, hold("own", 3, lease.WithOwnSession()), 3)
	})
}

// A lease that is never renewed ends on time, and that is told as what it is. It is no trouble of
// the node's.
func TestNeverEndsOnTime(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		kept := a.hold("kept")
		h := a.hold("seat", lease.WithRenewal(lease.RenewNever()))
		term, _ := h.Term()
		lost := watchLosses(h)
		require.Equal(t, 9*time.Second, trustLeft(t, h))

		// Whatever else is renewed here.
		time.Sleep(4 * time.Second)
		require.NoError(t, kept.Renew(t.Context()))
		h.Touch()
		err := h.Renew(t.Context())
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "RenewNever")
		time.Sleep(5*time.Second - time.Millisecond)
		require.True(t, h.CheckAlive())
		require.NoError(t, a.Health(t.Context()), "nearly over is no trouble")
		require.Empty(t, lost.all())
		time.Sleep(time.Millisecond)
		require.False(t, h.CheckAlive())
		x := lost.one(t, lease.ErrLapsed)
		require.ErrorIs(t, x.Reason, lease.ErrExpired, "for who knows of no policies")
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrLapsed)
		require.NoError(t, a.Health(t.Context()), "nobody has to do anything")
		mustNotWin(t, b.lease("seat"))
		time.Sleep(time.Second)
		bs, err := b.Lease("seat/2")
		require.NoError(t, err)
		require.NoError(t, bs.Close(t.Context()))
		requireFree(t, store, "seat") // a TTL after it was won
		require.True(t, kept.CheckAlive())
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrInvalid)

		// It can be had again, for a whole TTL.
		time.Sleep(ttl)
		mustWin(t, h)
		require.Equal(t, 9*time.Second, trustLeft(t, h))
		require.NoError(t, h.Release(t.Context()))
		time.Sleep(ttl)
		require.Len(t, lost.all(), 1)
	})
}

// A term that is not renewed has a TTL of its own, whatever was held before it.
func TestATermOfItsOwnHasAWholeTTL(t *testing.T) {
	for _, r := range []lease.Renewal{lease.RenewOnActivity(), lease.RenewByHand(), lease.RenewNever()} {
		t.Run(r.String(), func(t *testing.T) {
			onOne(t, func(t *testing.T, store *memory.Store, a *node) {
				asked := a.noting(nil)
				h := a.hold("seat", lease.WithRenewal(r))
				for range 5 {
					time.Sleep(2 * time.Second)
					require.NoError(t, h.Release(t.Context()))
					synctest.Wait()
					require.Len(t, asked.of(faultstore.CloseSession), len(asked.of(faultstore.OpenSession)), "what nobody needs is closed")
					mustWin(t, h)
					require.Equal(t, 9*time.Second, trustLeft(t, h))
				}
				require.Empty(t, asked.of(faultstore.Renew))
				require.NoError(t, h.Close(t.Context()))
				// What was transferred to it as well.
				b := start(t, store, "b")
				from := b.hold("seat", lease.WithRenewal(r))
				to := a.lease("seat", lease.WithRenewal(r))
				o := offerOf(t, to)
				time.Sleep(3 * time.Second)
				require.NoError(t, from.Transfer(t.Context(), o))
				mustAdopt(t, to, o)
				require.Equal(t, 9*time.Second, trustLeft(t, to))
			})
		})
	}
}

// A Keeper does not wait for the owner of what ended on time, and does for that of what is held.
func TestCloseDoesNotWaitForWhatLapsed(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		h := a.hold("seat", lease.WithRenewal(lease.RenewNever()))
		a.hold("lapsed", lease.WithRenewal(lease.RenewNever()), lease.WithTTL(time.Second))
		lost := watchLosses(h)
		time.Sleep(2 * time.Second)
		began := time.Now()
		done := meanwhile(func() error { return a.Close(context.Background()) })
		lost.one(t, lease.ErrClosed)
		time.Sleep(time.Second)
		require.Empty(t, done, "one is held")
		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, <-done)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// What was in use when its machine slept did not lapse: its work is waited for. What comes after
// the end is no use.
func TestAPauseInUseIsNoLapse(t *testing.T) {
	for _, used := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			a := start(t, store, "a", noJitter)
			h := a.hold("session/x", lease.WithRenewal(lease.RenewOnActivity()))
			other := a.hold("seat/x", lease.WithRenewal(lease.RenewNever()))
			lost, ended := watchLosses(h), watchLosses(other)
			time.Sleep(time.Second)
			if used {
				h.Touch()
			}
			other.Touch()
			a.clock.StepWall(2 * ttl)
			for _, x := range []*lease.Handle{h, other} {
				x.Touch()
				require.False(t, x.CheckAlive())
			}
			synctest.Wait()
			ended.one(t, lease.ErrLapsed)
			if x := lost.one(t, lease.ErrExpired); used {
				require.NotErrorIs(t, x.Reason, lease.ErrLapsed)
				require.ErrorContains(t, a.Health(t.Context()), "session/x")
			} else {
				require.ErrorIs(t, x.Reason, lease.ErrLapsed)
				require.NoError(t, a.Health(t.Context()))
			}
		})
	}
}

// What lapsed can be released in the time until the store ends it: then another may have it.
func TestWhatLapsedIsReleased(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		h := a.hold("seat", lease.WithRenewal(lease.RenewNever()))
		time.Sleep(9500 * time.Millisecond)
		require.False(t, h.CheckAlive())
		mustNotWin(t, b.lease("seat"))
		require.NoError(t, h.Release(t.Context()))
		requireFree(t, store, "seat")
		mustWin(t, h)
		time.Sleep(9500 * time.Millisecond)
		before := token(t, a.hold("other"))
		mustWin(t, h) // in the margin, without a release
		require.Greater(t, token(t, h), before)
		require.Equal(t, 9*time.Second, trustLeft(t, h))
	})
}

// Every policy outlives one renewal that stalls, at every TTL, whatever AttemptTimeout is; the default
// does with its own.
func TestPoliciesOutliveAStalledRenewal(t *testing.T) {
	policies := []lease.Renewal{(lease.Renewal{}), lease.RenewEager(), lease.RenewAt(0.7), lease.RenewLazy(), lease.RenewAdaptive()}
	for _, r := range policies {
		for _, d := range []time.Duration{lease.MinTTL, time.Second, 5 * time.Second, ttl, 30 * time.Minute} {
			if r == lease.RenewAt(0.7) && d == lease.MinTTL {
				continue // it is later than the deadline
			}
			t.Run(fmt.Sprint(r, d), func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memory.Store) {
					a := start(t, store, "a", func(c *lease.Config) {
						if r != (lease.Renewal{}) {
							c.AttemptTimeout = ttl
						}
					})
					h := a.hold("job", lease.WithRenewal(r), lease.WithTTL(d))
					lost := watchLosses(h)
					a.store.SetRule(firstRenewal(faultstore.Fault{Kind: faultstore.Drop, Hang: true}))
					time.Sleep(2 * d)
					require.Positive(t, a.store.Injected(faultstore.Renew))
					require.Empty(t, lost.all())
					require.True(t, h.CheckAlive())
				})
			})
		}
	}
}

// The latest fraction that is accepted keeps the lease over a store that is well and answers within a
// hundredth of the TTL, as a policy and as Config.RenewFraction.
func TestTheLatestFractionKeepsTheLease(t *testing.T) {
	for _, d := range []time.Duration{lease.MinTTL, 500 * time.Millisecond, time.Second, ttl} {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprint(d, own), func(t *testing.T) {
				bubble(t, func(t *testing.T, store *memory.Store) {
					latest, k := 0.95, start(t, store, "k")
					for k.Validate("job", lease.WithTTL(d), lease.WithRenewal(lease.RenewAt(latest))) != nil {
						latest -= 0.001
					}
					opts := []lease.Option{lease.WithTTL(d), lease.WithRenewal(lease.RenewAt(latest))}
					a := start(t, store, "a", func(c *lease.Config) {
						if !own {
							c.TTL, c.RenewFraction = d, latest
							opts = nil
						}
					})
					h := a.hold("job", opts...)
					lost := watchLosses(h)
					a.store.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Delay, Delay: d / 100}, faultstore.Renew))
					time.Sleep(2000 * d)
					require.Empty(t, lost.all(), "renewed at %.3f", latest)
				})
			})
		}
	}
}

// OperationTimeout does not follow a TTL of half an hour, and neither does what a caller waits.
func TestLongLeasesDoNotKeepTheirCallersWaiting(t *testing.T) {
	type row struct{ keeper, ttl, most time.Duration }
	each(t, map[string]row{
		"of a short Keeper": {ttl, 30 * time.Minute, ttl},
		"of a long one":     {30 * time.Minute, 0, 30 * time.Second},
	}, func(t *testing.T, store *memory.Store, c row) {
		a := start(t, store, "a", func(cfg *lease.Config) { cfg.TTL = c.keeper })
		opts := []lease.Option{lease.WithRenewal(lease.RenewByHand())}
		if c.ttl > 0 {
			opts = append(opts, lease.WithTTL(c.ttl))
		}
		h := a.hold("run", opts...)
		time.Sleep(10 * time.Minute)
		a.store.Partition()
		began := time.Now()
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrUnknown)
		require.Equal(t, c.most, time.Since(began))
		_, err := a.lease("other").Acquire(t.Context())
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(began), 2*c.most)
		a.store.Heal()
		require.NoError(t, h.Renew(t.Context()))
		require.Equal(t, 27*time.Minute, trustLeft(t, h).Round(time.Minute))
	})
}

func TestOnActivity(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", noJitter)
		asked := a.noting(nil)
		h := a.hold("session/x", lease.WithRenewal(lease.RenewOnActivity()))
		lost := watchLosses(h)
		renewals := func() int { synctest.Wait(); return len(asked.of(faultstore.Renew)) }

		// Touched early: renewed when that is due, once.
		for range 1000 {
			h.Touch()
		}
		time.Sleep(3 * time.Second)
		require.Zero(t, renewals())
		time.Sleep(time.Second)
		require.Equal(t, 1, renewals())
		// Not touched since: not renewed.
		time.Sleep(7 * time.Second)
		require.Equal(t, 1, renewals())
		require.Equal(t, 1333*time.Millisecond, trustLeft(t, h).Truncate(time.Millisecond))
		// Touched late: at once.
		h.Touch()
		require.Equal(t, 2, renewals())
		require.Equal(t, 9*time.Second, trustLeft(t, h))
		// In constant use: as seldom as by default.
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			h.Touch()
		}
		require.Equal(t, 2+3, renewals())
		require.NoError(t, a.Health(t.Context()))
		// In no use it ends. That is no trouble.
		require.Empty(t, lost.all())
		time.Sleep(ttl + 3*time.Second)
		lost.one(t, lease.ErrLapsed)
		require.NoError(t, a.Health(t.Context()))
		h.Touch()
		require.False(t, h.CheckAlive())
		require.Equal(t, 6, renewals(), "the last touch was renewed when that was due")
	})
}

// What is called for every request of a session costs it nothing.
func TestTouchAllocatesNothing(t *testing.T) {
	a := start(t, memory.New(), "a")
	for _, h := range []*lease.Handle{a.hold("session/x", lease.WithRenewal(lease.RenewOnActivity())), a.hold("job"), a.lease("free"), {}} {
		require.Zero(t, testing.AllocsPerRun(1000, h.Touch))
	}
}

// A touch that can't be followed is a loss, not an end on time: renewals fail.
func TestActivityThatTheStoreDoesNotHear(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		h := a.hold("session/x", lease.WithRenewal(lease.RenewOnActivity()))
		lost := watchLosses(h)
		a.store.Partition()
		h.Touch()
		time.Sleep(6 * time.Second)
		require.ErrorContains(t, a.Health(t.Context()), "not renewed")
		time.Sleep(4 * time.Second)
		require.NotErrorIs(t, lost.one(t, lease.ErrExpired).Reason, lease.ErrLapsed)
	})
}

func TestRenewByHand(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		asked := a.noting(nil)
		h := a.lease("job", lease.WithRenewal(lease.RenewByHand()))
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrNotHeld)
		mustWin(t, h)
		lost := watchLosses(h)
		for range 5 {
			time.Sleep(8 * time.Second)
			require.Equal(t, time.Second, trustLeft(t, h))
			h.Touch() // has no say
			require.NoError(t, h.Renew(t.Context()))
			require.Equal(t, 9*time.Second, trustLeft(t, h))
		}
		require.Len(t, asked.of(faultstore.Renew), 5)
		require.NoError(t, a.Health(t.Context()))
		time.Sleep(9 * time.Second)
		lost.one(t, lease.ErrLapsed)
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrNotHeld)
		require.NoError(t, a.Health(t.Context()))
		require.NoError(t, h.Close(t.Context()))
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrClosed)
	})
}

// Of many who ask at once each has what it asked for, and no lease is renewed once for each.
func TestShouldRenew(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h, err := start(t, store, "a").Keeper.Lease("job", lease.WithTTL(10*time.Second), lease.WithRenewal(lease.RenewByHand()))
		require.NoError(t, err)
		require.False(t, h.ShouldRenew(0.5), "it is not held")
		for _, renew := range []func() error{
			func() error { _, err := h.AcquireTerm(t.Context()); return err },
			func() error { return h.Renew(t.Context()) },
		} {
			require.NoError(t, renew())
			require.False(t, h.ShouldRenew(0.5))
			time.Sleep(4500*time.Millisecond - 1) // of the 9 s that it is trusted for
			require.False(t, h.ShouldRenew(0.5))
			time.Sleep(time.Nanosecond)
			require.True(t, h.ShouldRenew(0.5))
			require.False(t, h.ShouldRenew(0.8))
		}
		time.Sleep(5 * time.Second)
		require.False(t, h.ShouldRenew(0.5), "it has lapsed")
	})
}

func TestRenewalsByHandGoTogether(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		var hs []*lease.Handle
		for _, name := range manyNames(100) {
			hs = append(hs, a.hold(name, lease.WithRenewal(lease.RenewByHand())))
		}
		asked := a.noting(func(c faultstore.Call) faultstore.Fault {
			return faultstore.Fault{Kind: faultstore.Delay, Delay: 100 * time.Millisecond}
		})
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for _, h := range hs {
			for range 3 {
				all.Go(func() {
					if err := h.Renew(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		require.LessOrEqual(t, len(asked.of(faultstore.Renew)), 100)
		for _, h := range hs {
			require.LessOrEqual(t, 8800*time.Millisecond, trustLeft(t, h))
		}
	})
}

// With other policies Renew extends the session earlier, and its rhythm goes on from there.
func TestRenewDoesNoHarmElsewhere(t *testing.T) {
	for _, r := range []lease.Renewal{(lease.Renewal{}), lease.RenewLazy(), lease.RenewAdaptive(), lease.RenewOnActivity()} {
		t.Run(r.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a := start(t, store, "a", noJitter)
				asked := a.noting(nil)
				h := a.hold("job", lease.WithRenewal(r))
				lost := watchLosses(h)
				for range 20 {
					time.Sleep(3 * time.Second)
					h.Touch()
					require.NoError(t, h.Renew(t.Context()))
					require.Equal(t, 9*time.Second, trustLeft(t, h))
				}
				require.Len(t, asked.of(faultstore.Renew), 20)
				require.Empty(t, lost.all())
			})
		})
	}
}

// What becomes of a Renew that the store does not answer.
func TestRenewWithoutAnAnswer(t *testing.T) {
	byHand := lease.WithRenewal(lease.RenewByHand())
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.OperationTimeout = 3 * time.Second })
		h := a.hold("job", byHand)
		lost := watchLosses(h)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, h.Renew(done), context.Canceled)

		// One failure, or two, it outlives.
		var n int
		a.noting(func(c faultstore.Call) faultstore.Fault {
			if n++; c.Op == faultstore.Renew && n <= 2 {
				return faultstore.Fault{Kind: faultstore.Drop}
			}
			return faultstore.Fault{}
		})
		time.Sleep(time.Second)
		require.NoError(t, h.Renew(t.Context()))
		require.LessOrEqual(t, 8*time.Second, trustLeft(t, h))

		// It gives its caller up, and goes on.
		a.store.SetRule(nil)
		a.store.Partition()
		time.Sleep(time.Millisecond)
		began := time.Now()
		soon := within(t, time.Second)
		err := h.Renew(soon)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		err = h.Renew(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "within 3s")
		require.Equal(t, 4*time.Second, time.Since(began))
		require.True(t, h.CheckAlive(), "until its deadline")
		require.ErrorContains(t, a.Health(t.Context()), "not renewed")
		a.store.Heal()
		time.Sleep(3 * time.Second)
		require.LessOrEqual(t, 3*time.Second, trustLeft(t, h), "what was asked for is done")
		require.NoError(t, a.Health(t.Context()))

		// One that comes to the deadline is a loss.
		a.store.Partition()
		for err = error(lease.ErrUnknown); errors.Is(err, lease.ErrUnknown); {
			err = h.Renew(t.Context())
		}
		require.ErrorIs(t, err, lease.ErrExpired)
		require.NotErrorIs(t, err, lease.ErrLapsed)
		require.NotErrorIs(t, lost.one(t, lease.ErrExpired).Reason, lease.ErrLapsed)
		a.store.Heal()
		require.NoError(t, h.Release(t.Context()))

		// So is what the store says has gone, and what the store denies is said at once.
		mustWin(t, h)
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Deny})
		time.Sleep(time.Second)
		require.ErrorIs(t, h.Renew(t.Context()), lease.ErrDenied)
		require.True(t, h.CheckAlive())
		a.store.SetRule(nil)
		time.Sleep(2 * time.Second)
		require.LessOrEqual(t, 7*time.Second, trustLeft(t, h), "it is allowed again")
	})
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
		for _, x := range []struct {
			name string
			end  func(*lease.Handle) error
			why  error
		}{
			{"release", func(h *lease.Handle) error { return h.Release(context.Background()) }, lease.ErrReleased},
			{"close", func(h *lease.Handle) error { return h.Close(context.Background()) }, lease.ErrReleased},
			{"gone", func(h *lease.Handle) error {
				rec, _ := standing(t, db, h.Name())
				_, err := db.Release(context.Background(), []store.Held{rec.Held()})
				return err
			}, lease.ErrRecordGone},
			{"keeper", func(h *lease.Handle) error {
				time.AfterFunc(time.Second, func() { _ = h.Release(context.Background()) })
				return a.Close(context.Background())
			}, lease.ErrClosed},
		} {
			h := a.hold(x.name, byHand)
			time.Sleep(time.Second)
			a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Drop, Hang: true})
			done := meanwhile(func() error { return h.Renew(context.Background()) })
			synctest.Wait()
			require.NoError(t, x.end(h), x.name)
			require.ErrorIs(t, <-done, x.why, x.name)
			a.store.SetRule(nil)
			require.NoError(t, h.Release(context.Background()))
		}
	})
}

func TestPoliciesTravelAsText(t *testing.T) {
	for word, r := range map[string]lease.Renewal{
		"default": {}, "eager": lease.RenewEager(), "lazy": lease.RenewLazy(), "adaptive": lease.RenewAdaptive(),
		"activity": lease.RenewOnActivity(), "manual": lease.RenewByHand(), "never": lease.RenewNever(),
		"0.4": lease.RenewAt(0.4), "0.3333333333333333": lease.RenewAt(1.0 / 3), "1e-07": lease.RenewAt(1e-7),
	} {
		t.Run(word, func(t *testing.T) {
			require.Equal(t, word, r.String())
			back := lease.RenewNever()
			require.NoError(t, back.UnmarshalText([]byte(word)))
			require.Equal(t, r, back)
			require.Equal(t, r, lease.RenewalOf(lease.WithRenewal(lease.RenewLazy()), nil, lease.WithRenewal(r), lease.WithTTL(time.Second)))
		})
	}
	var r lease.Renewal
	require.NoError(t, r.UnmarshalText([]byte("0.5")))
	require.True(t, r == lease.RenewEager(), "the same policy by another word")
	require.Equal(t, (lease.Renewal{}), lease.RenewalOf())

	for r, automatic := range map[lease.Renewal]bool{
		(lease.Renewal{}): true, lease.RenewAt(0.2): true, lease.RenewLazy(): true, lease.RenewAdaptive(): true,
		lease.RenewOnActivity(): false, lease.RenewByHand(): false, lease.RenewNever(): false,
	} {
		require.Equal(t, automatic, r.Automatic(), r.String())
	}
}

func TestTextsThatAreNoPolicy(t *testing.T) {
	for _, text := range []string{"", " ", "Default", "lazily", "never ", "0", "1", "1.5", "-0.3", "NaN", "Inf", "-Inf", "1e999", "33%", "1/3", "0,4", "\xff"} {
		t.Run(text, func(t *testing.T) {
			r := lease.RenewLazy()
			err := r.UnmarshalText([]byte(text))
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "must be")
			require.Equal(t, lease.RenewLazy(), r, "nothing has changed")
		})
	}
	k := keeper(t, memory.New(), lease.Config{ID: "a"})
	for _, f := range []float64{0, 1, -0.1, 1.1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorIs(t, k.Validate("job", lease.WithRenewal(lease.RenewAt(f))), lease.ErrInvalid, "%v", f)
	}
}

// A combination that can't be kept is refused where it is made, with what it breaks.
func TestPoliciesThatCanNotBeKept(t *testing.T) {
	const short = 300 * time.Millisecond
	usual := keeper(t, memory.New(), lease.Config{ID: "a"})
	wide := keeper(t, memory.New(), lease.Config{ID: "a", Margin: 2 * time.Second})
	for _, x := range []struct {
		what string
		k    *lease.Keeper
		ttl  time.Duration
		r    lease.Renewal
		says []string // nothing: it is taken
	}{
		{"no fraction", usual, 0, lease.RenewAt(0), []string{"lease.RenewAt", "above 0 and below 1"}},
		{"all of it", usual, 0, lease.RenewAt(1), []string{"lease.RenewAt", "above 0 and below 1"}},
		{"not a number", usual, 0, lease.RenewAt(math.NaN()), []string{"lease.RenewAt", "above 0 and below 1"}},
		{"past the deadline", usual, 0, lease.RenewAt(0.9), []string{"lease.RenewAt", "9.9s + 1s", "leaves -900ms", "TTL of 10s", "at least 900ms", "a fraction of at most 0.736"}},
		{"past it with jitter", usual, 0, lease.RenewAt(0.82), []string{"a fraction of at most 0.736"}},
		{"too little is left", usual, 0, lease.RenewAt(0.8), []string{"leaves 200ms", "for two attempts", "at least 900ms"}},
		{"just enough is left", usual, 0, lease.RenewAt(0.736), nil},
		{"too little, of little", usual, short, lease.RenewAt(0.55), []string{"leaves 18.5ms", "at least 20ms"}},
		{"too often", usual, short, lease.RenewAt(0.001), []string{"lease.RenewAt", "1ms apart"}},
		{"the shortest", usual, short, lease.RenewLazy(), nil},
		{"the shortest, adaptive", usual, short, lease.RenewAdaptive(), nil},
		{"the shortest, half", usual, short, lease.RenewEager(), nil},
		{"a day", usual, 24 * time.Hour, lease.RenewLazy(), nil},
		{"a year, never", usual, 365 * 24 * time.Hour, lease.RenewNever(), nil},
		{"lazy, with little left", wide, 2100 * time.Millisecond, lease.RenewLazy(), []string{"lazy", "margin of 2s", "leaves 10ms", "at least 20ms"}},
		{"adaptive, with little left", wide, 2100 * time.Millisecond, lease.RenewAdaptive(), []string{"adaptive", "12.5ms for each of two attempts", "at least 20ms"}},
		{"never, trusted for nothing", wide, time.Second, lease.RenewNever(), []string{"margin of 2s", "below the TTL of 1s"}},
		{"by hand, trusted for nothing", wide, time.Second, lease.RenewByHand(), []string{"below the TTL of 1s"}},
		{"on activity, trusted for nothing", wide, time.Second, lease.RenewOnActivity(), []string{"below the TTL of 1s"}},
		{"on activity, later than trusted", wide, 2500 * time.Millisecond, lease.RenewOnActivity(), []string{"lease.WithTTL", "of the TTL of 2.5s", "at least 50ms"}},
		{"by hand, trusted for little", wide, 2500 * time.Millisecond, lease.RenewByHand(), nil},
	} {
		t.Run(x.what, func(t *testing.T) {
			opts := []lease.Option{lease.WithRenewal(x.r)}
			if x.ttl > 0 {
				opts = append(opts, lease.WithTTL(x.ttl))
			}
			h, err := x.k.Lease("job", opts...)
			if x.says == nil {
				require.NoError(t, err)
				require.Equal(t, x.r, h.Renewal())
				require.NoError(t, h.Close(t.Context()))
				return
			}
			require.ErrorIs(t, err, lease.ErrInvalid)
			for _, text := range x.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}
