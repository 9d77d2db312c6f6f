package lease_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestHealthSaysThatTheStoreDoesNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		refused := errors.New("connection refused")
		a := start(t, store, "a", func(c *lease.Config) { c.AttemptTimeout = 2 * time.Second })
		a.hold("job")

		a.rule(faultstore.Get, faultstore.Fault{Kind: faultstore.Drop, Hang: true})
		began := time.Now()
		err := a.Health(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "keeper a (store ")
		require.ErrorContains(t, err, "the store does not answer")
		require.Len(t, lines(err), 1, "its leases are renewed and well")
		require.Equal(t, 2*time.Second, time.Since(began), "within AttemptTimeout")

		ctx := within(t, time.Second)
		began = time.Now()
		require.ErrorIs(t, a.Health(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began), "or until the caller's context ends")

		a.store.SetRule(nil)
		require.NoError(t, a.Health(t.Context()))

		b := start(t, &answering{Store: store, err: refused}, "b")
		require.ErrorIs(t, b.Health(t.Context()), refused, "wrapped")
	})
}

// answering answers Get with an error.
type answering struct {
	*memory.Store
	err error
}

func (s *answering) Get(context.Context, ...string) ([]lease.Record, error) { return nil, s.err }

func TestHealthTakesABadRecordForAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, &answering{store, fmt.Errorf("holdfast/health: %w", lease.ErrBadRecord)}, "a")
		require.NoError(t, a.Health(t.Context()))
	})
}

func TestHealthTellsOfRenewalsThatFailAndHowMuchTrustIsLeft(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		la := a.hold("job/1")
		a.hold("job/2")
		a.hold("other", lease.WithTTL(20*ttl))
		began := time.Now()
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Drop})
		time.Sleep(ttl / 2)
		synctest.Wait()
		require.True(t, la.CheckAlive())
		err := a.Health(t.Context())
		require.Len(t, lines(err), 1)
		require.ErrorContains(t, err, "1 sessions were not renewed")
		require.ErrorContains(t, err, "with 2 leases")
		require.ErrorContains(t, err, fmt.Sprintf("trusted for %v more", trusted-time.Since(began)))

		a.store.SetRule(nil)
		time.Sleep(2 * time.Second)
		require.NoError(t, a.Health(t.Context()), "after a renewal that succeeded")
	})
}

func TestHealthNamesTheMostUrgentSessions(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		for i := range 20 {
			a.hold(fmt.Sprintf("job/%d", i), lease.WithTTL(ttl*time.Duration(40-i)))
		}
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Drop})
		time.Sleep(20 * ttl * 8 / 10) // none has ended
		err := a.Health(t.Context())
		require.Len(t, lines(err), 1)
		require.ErrorContains(t, err, "20 sessions were not renewed: ")
		require.True(t, strings.HasSuffix(err.Error(), "; …"), err)
		found := regexp.MustCompile(` with 1 leases, \d+ failures, trusted for (\S+) more`).FindAllStringSubmatch(err.Error(), -1)
		require.Len(t, found, 5, err)
		var left []time.Duration
		for _, m := range found {
			d, err := time.ParseDuration(m[1])
			require.NoError(t, err)
			left = append(left, d)
		}
		require.IsIncreasing(t, left)
		require.InDelta(t, (21*trusted - 20*ttl*8/10).Seconds(), left[0].Seconds(), 1, "that of the shortest TTL")
	})
}

func TestHealthSeesAnEndOfTrustThatTheLoopHasNotSeen(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		a.hold("job")
		a.clock.Freeze() // no timer of the node fires
		time.Sleep(trusted + time.Millisecond)
		err := a.Health(t.Context())
		require.Len(t, lines(err), 1)
		require.ErrorContains(t, err, "1 sessions were not renewed: ")
		require.ErrorContains(t, err, " with 1 leases, 0 failures, trusted no more")
		time.Sleep(ttl)
		a.clock.Thaw()
		synctest.Wait()
		require.ErrorContains(t, a.Health(t.Context()), "1 leases were lost and are not released: job")
	})
}

func TestHealthNamesLostLeasesUntilTheirOwnersSpeak(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		var all []*lease.Handle
		for i := range 30 {
			all = append(all, a.hold(fmt.Sprintf("job/%02d", i)))
		}
		other := a.hold("other", lease.WithTTL(10*ttl))
		a.store.Partition()
		time.Sleep(ttl)
		a.store.Heal()
		time.Sleep(time.Second)
		require.True(t, other.CheckAlive())

		err := a.Health(t.Context())
		require.Len(t, lines(err), 1)
		require.ErrorContains(t, err, "30 leases were lost and are not released: job/00, job/01, ")
		require.NotContains(t, err.Error(), "job/20", "names are bounded")
		require.NotContains(t, err.Error(), "other")
		time.Sleep(10 * ttl)
		require.Error(t, a.Health(t.Context()), "however long it takes: work may still run")

		for _, h := range all[1:] {
			require.NoError(t, h.Release(t.Context()))
		}
		require.ErrorContains(t, a.Health(t.Context()), "1 leases were lost and are not released: job/00")
		mustWin(t, all[0])
		require.NoError(t, a.Health(t.Context()), "Acquire begins another term")
	})
}

func TestHealthAfterClose(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		h := a.hold("job")
		closed := meanwhile(func() error { return a.Close(t.Context()) })
		synctest.Wait()
		err := a.Health(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed, "while Close waits for owners")
		require.Len(t, lines(err), 1)
		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, <-closed)
		require.ErrorIs(t, a.Health(t.Context()), lease.ErrClosed)

		// Close comes while the store is asked.
		b := start(t, store, "b")
		b.hold("job/b")
		b.rule(faultstore.Get, faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		asked := meanwhile(func() error { return b.Health(t.Context()) })
		synctest.Wait()
		ctx := within(t, 100*time.Millisecond)
		require.ErrorIs(t, b.Close(ctx), lease.ErrUnknown)
		err = <-asked
		require.ErrorIs(t, err, lease.ErrClosed)
		require.Len(t, lines(err), 1)
	})
}

// meanwhile runs f beside the test.
func meanwhile(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// lines are what a probe shows.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// BenchmarkHealth asks a Keeper with 100 000 leases, and reports how long others
// wait for the Keeper's lock meanwhile.
func BenchmarkHealth(b *testing.B) {
	const n = 100_000
	k := benchKeeper(b, memory.New())
	handles := make([]*lease.Handle, n)
	var wg sync.WaitGroup
	room := make(chan struct{}, 1000)
	for i := range n {
		h, err := k.Lease(fmt.Sprintf("bench/%d", i))
		if err != nil {
			b.Fatal(err)
		}
		handles[i] = h
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if won, err := h.Acquire(context.Background()); !won || err != nil {
				b.Error(won, err)
			}
		})
	}
	wg.Wait()
	stop, waited := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var waits []time.Duration
		for {
			select {
			case <-stop:
				waited <- waits
				return
			default:
			}
			began := time.Now()
			_, _ = k.Lease("bench/0") // in use: no more than a look under the lock
			waits = append(waits, time.Since(began))
			time.Sleep(50 * time.Microsecond)
		}
	}()
	for b.Loop() {
		if err := k.Health(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	waits := <-waited
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Nanoseconds())/1e3, "µs-wait-p50")
	b.ReportMetric(float64(waits[len(waits)*99/100].Nanoseconds())/1e3, "µs-wait-p99")
	for _, h := range handles {
		room <- struct{}{}
		wg.Go(func() { h.Close(context.Background()); <-room })
	}
	wg.Wait()
}

// observed makes a Keeper's log readable.
func observed(level zapcore.Level) (func(*lease.Config), *observer.ObservedLogs) {
	core, logs := observer.New(level)
	return func(c *lease.Config) { c.Logger = zap.New(core) }, logs
}

func TestAnOutageIsOneLineAndOneWhenItIsOver(t *testing.T) {
	each(t, map[string]faultstore.Fault{
		"refused": {Kind: faultstore.Drop}, "silent": {Kind: faultstore.Drop, Hang: true},
	}, func(t *testing.T, store *memory.Store, fault faultstore.Fault) {
		logged, logs := observed(zapcore.WarnLevel)
		limits := store.Limits()
		limits.Endpoints = []string{"one:2379", "two:2379"}
		a := start(t, bounded{store, limits}, "a", logged, noJitter)
		a.hold("x", lease.WithOwnSession())
		a.hold("y", lease.WithOwnSession())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		began := time.Now()
		a.store.SetRule(func(faultstore.Call) faultstore.Fault { return fault })
		for _, name := range []string{"w", "z"} {
			h := a.lease(name)
			go func() {
				done <- lease.Run(ctx, h, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return ctx.Err() })
			}()
		}
		time.Sleep(5 * ttl)
		synctest.Wait()
		all := logs.TakeAll()
		require.Len(t, all, 1, "%v", all)
		require.Equal(t, "store unreachable", all[0].Message)
		fields := all[0].ContextMap()
		require.Equal(t, "one:2379, two:2379", fields["endpoint"])
		require.EqualValues(t, 2, fields["held"])
		require.EqualValues(t, 2, fields["not_held"])
		require.WithinDuration(t, began, fields["since"].(time.Time), ttl/3+time.Second)
		info := a.Info()
		require.WithinDuration(t, fields["since"].(time.Time), info.Since, 0)
		require.ErrorIs(t, info.Failure, faultstore.ErrInjected)
		require.Equal(t, limits.Endpoints, info.Endpoints)
		require.Equal(t, [2]int{0, 4}, [2]int{info.Held, info.Handles})

		a.store.SetRule(nil)
		time.Sleep(ttl)
		all = logs.TakeAll()
		require.Len(t, all, 1, "%v", all)
		require.Equal(t, "store reachable again", all[0].Message)
		require.EqualValues(t, 2, all[0].ContextMap()["lost"])
		info = a.Info()
		require.True(t, info.Since.IsZero())
		require.NoError(t, info.Failure)
		require.Equal(t, 2, info.Held)
		cancel()
		for range 2 {
			require.ErrorIs(t, <-done, context.Canceled)
		}
	})
}

func TestOneLostRequestIsNoOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, store, "a", logged)
		a.hold("job")
		a.once(faultstore.Renew, 1, faultstore.Fault{Kind: faultstore.Drop})
		time.Sleep(3 * ttl)
		for _, e := range logs.All() {
			require.NotContains(t, e.Message, "store ")
		}
	})
}

// apart is a store that answers each session of a renewal by itself: while it is away with an error that
// means that nothing is known, though the call has none.
type apart struct {
	*memory.Store
	away atomic.Pointer[func(store.Session) bool]
}

var errAway = errors.New("connection refused")

func (a *apart) Renew(ctx context.Context, of []store.Session) ([]store.Grant, error) {
	grants, err := a.Store.Renew(ctx, of)
	if away := a.away.Load(); away != nil {
		for i, s := range of {
			if (*away)(s) {
				grants[i] = store.Grant{Err: errAway}
			}
		}
	}
	return grants, err
}

// A renewal in which no session has the store's word is none, also where the errors are those of the
// sessions. One that has it for some of them is.
func TestARenewalOfNoSessionIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		s := &apart{Store: db}
		a := start(t, s, "a", logged, func(c *lease.Config) { c.Jitter = -1 }) // both are renewed in one request
		a.hold("x", lease.WithOwnSession())
		a.hold("y", lease.WithOwnSession())
		failed := 0
		one := func(store.Session) bool { failed++; return failed == 1 }
		s.away.Store(&one)
		for range 100 {
			time.Sleep(ttl / 100)
			require.NoError(t, a.Info().Failure)
		}
		require.Greater(t, failed, 2)
		require.Equal(t, 1, logs.FilterMessage("renewal failed, trying again until the deadline").Len())
		logs.TakeAll()

		all := func(store.Session) bool { return true }
		s.away.Store(&all)
		for range 5 {
			time.Sleep(ttl)
			require.ErrorIs(t, a.Info().Failure, errAway)
		}
		lines := logs.TakeAll()
		require.Len(t, lines, 1, "%v", lines)
		require.Equal(t, "store unreachable", lines[0].Message)

		s.away.Store(nil)
		_, err := a.lease("z").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, a.Info().Failure)
		synctest.Wait()
		require.Equal(t, 1, logs.FilterMessage("store reachable again").Len(), "%v", logs.All())
	})
}

// refusing answers every acquisition with an error that is no outage.
type refusing struct{ store.Store }

func (r refusing) Acquire(context.Context, store.Session, []store.Claim) ([]store.Outcome, error) {
	return []store.Outcome{{Err: errRefused}}, nil
}

var errRefused = errors.New("no more than this many names")

// What keeps Run from its lease is logged once, and told when it ends.
func TestRunTellsWhyItTriesOn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, refusing{store}, "a", logged)
		never := func(context.Context, lease.Term) error { t.Error("called"); return nil }
		err := lease.Run(within(t, time.Minute), a.lease("job"), never)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errRefused)
		synctest.Wait()
		require.Equal(t, 1, logs.FilterMessage("can't be acquired, trying on").Len())
		require.Equal(t, "job", logs.All()[0].ContextMap()["lease"])
	})
}

// generous raises every TTL to a floor of its own.
type generous struct{ *memory.Store }

func (g generous) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	s.TTL = max(s.TTL, 2*time.Second)
	return g.Store.OpenSession(ctx, s)
}

func TestARaisedTTLIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, generous{store}, "a", logged, func(c *lease.Config) { c.TTL = 500 * time.Millisecond; c.NamesPerSession = 1 })
		require.Equal(t, 500*time.Millisecond, a.Info().TTL)
		a.hold("one")
		a.hold("two")
		a.hold("long", lease.WithTTL(3*time.Second))
		synctest.Wait()
		all := logs.All()
		require.Len(t, all, 1, "once: %v", all)
		require.Equal(t, "the store raised the TTL", all[0].Message)
		require.Equal(t, 500*time.Millisecond, all[0].ContextMap()["asked"])
		require.Equal(t, 2*time.Second, all[0].ContextMap()["granted"])
		require.Equal(t, 2*time.Second, a.Info().TTL)
	})
}

// What was lost is not held, though it is not released yet and its session goes on.
func TestInfoCountsWhatIsHeld(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		one := a.hold("one")
		a.hold("two")
		require.Equal(t, 2, a.Info().Held)
		time.Sleep(time.Second) // the watch runs
		rec, _ := standing(t, store, "one")
		remove(t, store, rec)
		synctest.Wait()
		require.False(t, one.CheckAlive())
		require.Equal(t, 1, a.Info().Held)
		mustWin(t, one)
		require.Equal(t, 2, a.Info().Held)
		require.NoError(t, one.Release(t.Context()))
		require.Equal(t, 1, a.Info().Held)
	})
}

// denies has the calls of those kinds denied, all if there are none, and counts them.
func (n *node) denies(ops ...faultstore.Op) *atomic.Int64 {
	var count atomic.Int64
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		if len(ops) > 0 && !slices.Contains(ops, c.Op) {
			return faultstore.Fault{}
		}
		count.Add(1)
		return faultstore.Fault{Kind: faultstore.Deny}
	})
	return &count
}

// Who is denied is told at once, and no attempt follows the one.
func TestADeniedAcquisitionEndsAtOnce(t *testing.T) {
	for _, op := range []faultstore.Op{faultstore.OpenSession, faultstore.Acquire} {
		for name, less := range map[string]func(*memory.Store) store.Store{
			"prompt":    func(s *memory.Store) store.Store { return s },
			"unhurried": func(s *memory.Store) store.Store { return unhurried(s) },
		} {
			t.Run(op.String()+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, db *memory.Store) {
					a := start(t, less(db), "a")
					count := a.denies(op)
					la := a.lease("job")
					began := time.Now()
					won, err := la.Acquire(t.Context())
					require.False(t, won)
					require.ErrorIs(t, err, lease.ErrDenied)
					require.NotErrorIs(t, err, lease.ErrUnknown)
					require.ErrorContains(t, err, `"job"`)
					require.Zero(t, time.Since(began))
					require.EqualValues(t, 1, count.Load())
					_, err = la.AcquireTerm(t.Context())
					require.ErrorIs(t, err, lease.ErrDenied)
					a.store.SetRule(nil)
					mustWin(t, la)
				})
			})
		}
	}
}

// An earlier attempt that got no answer may still land, whatever the next is told.
func TestADenialSettlesNothing(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		a.hold("other")
		n := 0
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op != faultstore.Acquire {
				return faultstore.Fault{}
			}
			if n++; n == 1 {
				return faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * time.Second}
			}
			return faultstore.Fault{Kind: faultstore.Deny}
		})
		_, err := a.lease("job").Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrDenied)
		require.ErrorIs(t, err, lease.ErrUnknown)
		time.Sleep(5*time.Second + ttl + time.Second)
		mustWin(t, b.lease("job"))
	})
}

// A release that is denied ends trust, and is made up for when it is allowed.
func TestADeniedReleaseIsMadeUpFor(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		a.hold("other")
		la, lb := a.hold("job"), b.lease("job")
		count := a.denies(faultstore.Release)
		began := time.Now()
		err := la.Release(t.Context())
		require.ErrorIs(t, err, lease.ErrDenied)
		require.NotErrorIs(t, err, lease.ErrUnknown)
		require.Zero(t, time.Since(began))
		require.False(t, la.CheckAlive())
		time.Sleep(10 * ttl)
		mustNotWin(t, lb)
		require.InDelta(t, 10, count.Load(), 3, "about once per TTL")
		a.store.SetRule(nil)
		time.Sleep(ttl + time.Second)
		mustWin(t, lb)
	})
}

func TestADeniedTransferIsRefused(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		count := a.denies(faultstore.Transfer)
		err := la.Transfer(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrDenied)
		require.ErrorIs(t, err, lease.ErrTransferRefused)
		require.NotErrorIs(t, err, lease.ErrUnknown)
		require.EqualValues(t, 1, count.Load())
		require.False(t, la.CheckAlive())
		mustWin(t, la)
	})
}

// A renewal that is denied is repeated, at a slow pace; the term lives until its deadline,
// and goes on if it is allowed before.
func TestADeniedRenewalIsNoLossYet(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a", func(c *lease.Config) { c.Jitter = -1 })
		la := a.hold("job")
		lost := watchLosses(la)
		began := time.Now()
		count := a.denies(faultstore.Renew)
		time.Sleep(8 * time.Second)
		require.True(t, la.CheckAlive())
		require.LessOrEqual(t, count.Load(), int64(10), "a second apart at the most, half of it at least")
		require.Positive(t, count.Load())
		a.store.SetRule(nil)
		time.Sleep(5 * ttl)
		require.True(t, la.CheckAlive())
		require.Empty(t, lost.all())

		a.denies(faultstore.Renew)
		for la.CheckAlive() {
			time.Sleep(100 * time.Millisecond)
		}
		lost.one(t, lease.ErrExpired)
		require.Greater(t, time.Since(began), ttl)
	})
}

// However long a denial lasts, and for however many callers, the log has one line, and one when it
// is over.
func TestADenialIsOneLineAndOneWhenItIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, db, "a", logged)
		a.hold("held", lease.WithOwnSession())
		count := a.denies()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		for _, name := range []string{"x", "y"} {
			h := a.lease(name)
			go func() {
				done <- lease.Run(ctx, h, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return nil })
			}()
		}
		_, err := a.Watch("", func(store.Event) {})
		require.NoError(t, err)
		time.Sleep(10 * ttl)
		synctest.Wait()
		all := logs.TakeAll()
		require.Len(t, all, 1, "%v", all)
		require.Equal(t, "the store denies this node what leases need", all[0].Message)
		require.Less(t, count.Load(), int64(10*20), "nothing is asked for in haste")
		info := a.Info()
		require.ErrorIs(t, info.Failure, lease.ErrDenied)
		require.False(t, info.Since.IsZero())
		require.ErrorIs(t, a.Health(t.Context()), lease.ErrDenied)

		a.store.SetRule(nil)
		time.Sleep(2 * ttl)
		synctest.Wait()
		all = logs.TakeAll()
		require.Len(t, all, 1, "%v", all)
		require.Equal(t, "the store denies no more", all[0].Message)
		require.NoError(t, a.Info().Failure)
		require.Equal(t, 2, a.Info().Held)
		cancel()
		for range 2 {
			require.NoError(t, <-done)
		}
	})
}

// A Keeper whose watch is denied works on and learns late: its Health and log say so until the watch runs.
func TestADeniedWatchIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, db, "a", logged)
		a.hold("held")
		a.denies(faultstore.Watch)
		a.store.CutWatches()
		time.Sleep(10 * ttl)
		require.ErrorIs(t, a.Health(t.Context()), lease.ErrDenied)
		all := logs.FilterMessage("the store denies this node what leases need").TakeAll()
		require.Len(t, all, 1)
		require.Equal(t, "watches", all[0].ContextMap()["denied"])
		a.store.SetRule(nil)
		time.Sleep(10 * ttl)
		require.NoError(t, a.Health(t.Context()))

		// Another denial takes the place of that of watches, and is over by itself.
		a.denies(faultstore.Watch)
		a.store.CutWatches()
		time.Sleep(2 * ttl)
		a.denies(faultstore.Acquire)
		_, err := a.lease("free").Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrDenied)
		a.store.SetRule(nil)
		mustWin(t, a.lease("other"))
		require.NoError(t, a.Health(t.Context()))
		require.Equal(t, 2, a.Info().Held)
	})
}

// One name that is denied beside others that are not is told once, too.
func TestADenialOfOneNameAmongOthers(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, db, "a", logged)
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Acquire && c.Names[0] == "bad" {
				return faultstore.Fault{Kind: faultstore.Deny}
			}
			return faultstore.Fault{}
		})
		good, bad := a.lease("good"), a.lease("bad")
		for range 20 {
			mustWin(t, good)
			require.NoError(t, good.Release(t.Context()))
			_, err := bad.Acquire(t.Context())
			require.ErrorIs(t, err, lease.ErrDenied)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(logs.TakeAll()), 2)
	})
}

// So may an earlier attempt of a transfer land, also if the store denies one name alone.
func TestADenialOfOneNameSettlesNoTransfer(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, b := start(t, &denyingMoves{Store: db}, "a"), start(t, db, "b")
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		a.once(faultstore.Transfer, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: 5 * time.Second})
		err := la.Transfer(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrDenied)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NotErrorIs(t, err, lease.ErrTransferRefused)
		require.False(t, la.CheckAlive())
		time.Sleep(5 * time.Second)
		rec, _ := standing(t, db, "job")
		require.Equal(t, "b", rec.Owner.ID)
	})
}

// denyingMoves denies each move of the first call by itself.
type denyingMoves struct {
	*memory.Store
	denied bool
}

func (s *denyingMoves) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	if s.denied {
		return s.Store.Transfer(ctx, moves)
	}
	s.denied = true
	outs := make([]store.Outcome, len(moves))
	for i := range outs {
		outs[i].Err = lease.ErrDenied
	}
	return outs, nil
}

// meter reads what a Keeper counted: by instrument, and by outcome or reason.
type meter struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
}

func metered(t *testing.T, store store.Store, change ...func(*lease.Config)) (*node, *meter) {
	m := &meter{t, sdkmetric.NewManualReader()}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	change = append(change, func(c *lease.Config) { c.MeterProvider = provider })
	return start(t, store, "a", change...), m
}

func (m *meter) read() map[string]int64 {
	m.t.Helper()
	synctest.Wait() // what is measured is told by a goroutine of its own
	var all metricdata.ResourceMetrics
	require.NoError(m.t, m.reader.Collect(context.Background(), &all))
	got := map[string]int64{}
	key := func(name string, set attribute.Set) string {
		keeper, _ := set.Value("holdfast.keeper")
		store, _ := set.Value("holdfast.store")
		require.Equal(m.t, "a memory", keeper.AsString()+" "+store.AsString())
		for _, k := range []attribute.Key{"operation", "outcome", "reason", "holdfast.lease"} {
			if v, ok := set.Value(k); ok {
				name += " " + v.AsString()
			}
		}
		return name[len("holdfast.lease."):]
	}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			require.NotEmpty(m.t, metric.Description)
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if k := key(metric.Name, p.Attributes); p.Value != 0 { // each is 0 from the beginning
						got[k] = p.Value
					}
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					got[key(metric.Name, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				require.Equal(m.t, "s", metric.Unit)
				for _, p := range data.DataPoints {
					got[key(metric.Name, p.Attributes)] = int64(p.Count)
					low, ok := p.Min.Value()
					require.True(m.t, ok && low >= 0)
				}
			}
		}
	}
	return got
}

// A logger that stalls fills the queue of lines, not that of measurements: the number of held leases stays
// right.
func TestALoggerThatStallsDropsNoMeasurement(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		until := make(chan struct{})
		a, m := metered(t, store, func(c *lease.Config) { c.Logger = calling(func(string) { <-until }) })
		kept, l := a.hold("kept"), a.lease("x")
		for range 6000 { // two lines each, of which 10 000 may wait
			mustWin(t, l)
			require.NoError(t, l.Release(t.Context()))
		}
		close(until)
		require.True(t, kept.CheckAlive())
		require.EqualValues(t, 1, m.read()["held"])
	})
}

func TestMetricsCountWhatTheySay(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, m := metered(t, sessionless(db), func(c *lease.Config) { c.Jitter = -1 })
		b := start(t, db, "b")
		x, y := a.hold("x"), a.hold("y")
		lb := b.hold("taken")
		taken := a.lease("taken")
		mustNotWin(t, taken)
		require.Equal(t, map[string]int64{"acquisitions won": 2, "acquisitions held by another": 1, "held": 2,
			"store.duration open ok": 1, "store.duration acquire ok": 3, "store.duration list ok": 1}, m.read())

		mustWin(t, x) // ours already: nothing happened
		require.NoError(t, y.Release(t.Context()))
		require.EqualValues(t, 1, m.read()["held"])
		require.EqualValues(t, 2, m.read()["acquisitions won"])

		time.Sleep(ttl + ttl/10)
		require.EqualValues(t, 3, m.read()["renewals ok"])
		require.EqualValues(t, 3, m.read()["renewal.left"])
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Drop})
		time.Sleep(ttl)
		require.NotZero(t, m.read()["renewals error"])
		require.EqualValues(t, 1, m.read()["losses expired"])
		require.Zero(t, m.read()["held"])

		// A term that supersedes what an earlier operation left.
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		mustWin(t, x)
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		mustWin(t, y)
		require.EqualValues(t, 2, m.read()["settlements"])

		// Losses by reason.
		for name, how := range map[string]func(){
			"record gone": func() {
				rec, _ := standing(t, db, "x")
				remove(t, db, rec)
			},
			"taken over": func() {
				require.NoError(t, lb.Release(t.Context()))
				mustWin(t, taken)
				o := offerOf(t, lb)
				rec, _ := standing(t, db, "taken")
				outs, err := db.Transfer(t.Context(), []store.Transfer{{Held: rec.Held(), To: o}})
				require.NoError(t, err)
				require.True(t, outs[0].OK)
				won, err := lb.Adopt(t.Context(), o)
				require.NoError(t, err)
				require.True(t, won)
			},
		} {
			how()
			time.Sleep(4 * ttl) // one that was taken over is found by listing
			require.EqualValues(t, 1, m.read()["losses "+name], name)
		}

		// Given back, and an error.
		z := a.lease("z")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		_, err := z.Acquire(within(t, 500*time.Millisecond))
		require.ErrorIs(t, err, lease.ErrUnknown)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, m.read()["acquisitions given back"])
		a.store.Partition()
		_, err = z.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		time.Sleep(ttl)
		a.store.Heal()
		require.EqualValues(t, 1, m.read()["acquisitions error"])
		require.NotZero(t, m.read()["store.duration acquire timeout"])
		require.NotZero(t, m.read()["store.duration renew error"])
		require.NotZero(t, m.read()["store.duration renew ok"])
	})
}

// The gauge of a name is 0 from the beginning, so that its sum over nodes can be compared with 1, and
// goes with its handle. A watch that breaks off is counted.
func TestMetricsByName(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, m := metered(t, db, func(c *lease.Config) { c.MeterNames = true })
		x, b := a.lease("x"), start(t, db, "b")
		lb := b.hold("x")
		mustNotWin(t, x)
		held := func() (v int64, told bool) { v, told = m.read()["holding x"]; return v, told }
		v, told := held()
		require.True(t, told)
		require.Zero(t, v)
		require.NoError(t, lb.Release(t.Context()))
		mustWin(t, x)
		v, _ = held()
		require.EqualValues(t, 1, v)
		a.store.Partition() // no one has said that it is lost: the gauge reads the clock, as CheckAlive does
		time.Sleep(ttl)
		v, _ = held()
		require.Zero(t, v)
		a.store.Heal()
		time.Sleep(4 * ttl)
		require.NotZero(t, m.read()["watch.restarts"])
		require.NoError(t, x.Close(t.Context()))
		_, told = held()
		require.False(t, told)
	})
}

func TestMetricsOfReconcilingAndClosing(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, m := metered(t, blind(db))
		x := a.hold("x")
		rec, _ := standing(t, db, "x")
		_, err := db.Acquire(t.Context(), store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}, []store.Claim{{Name: "stray", Nonce: 7}})
		require.NoError(t, err)
		time.Sleep(4 * ttl)
		requireFree(t, db, "stray")
		require.EqualValues(t, 1, m.read()["reconciled"])

		require.NoError(t, db.CloseSession(t.Context(), store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}))
		time.Sleep(ttl)
		require.EqualValues(t, 1, m.read()["renewals gone"])
		require.EqualValues(t, 1, m.read()["losses record gone"])
		mustWin(t, x)
		a.Close(within(t, time.Second))
		require.EqualValues(t, 1, m.read()["losses closed"])
		require.Zero(t, m.read()["held"])
	})
}
