package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// observed makes a Keeper's log readable.
func observed(level zapcore.Level) (func(*lease.Config), *observer.ObservedLogs) {
	core, logs := observer.New(level)
	return func(c *lease.Config) { c.Logger = zap.New(core) }, logs
}

func TestAnOutageIsOneLineAndOneWhenItIsOver(t *testing.T) {
	for what, fault := range map[string]faultstore.Fault{
		"refused": {Kind: faultstore.Drop}, "silent": {Kind: faultstore.Drop, Hang: true},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				logged, logs := observed(zapcore.WarnLevel)
				kept := &located{Store: faultstore.Wrap(store), where: []string{"one:2379", "two:2379"}}
				k, err := lease.NewKeeper(kept, lease.Config{ID: "a", TTL: ttl, Jitter: -1, Logger: func() *zap.Logger {
					var c lease.Config
					logged(&c)
					return c.Logger
				}()})
				require.NoError(t, err)
				defer func() { k.Close(within(t, time.Second)) }()
				for _, name := range []string{"x", "y"} {
					h, err := k.Lease(name, lease.WithOwnSession())
					require.NoError(t, err)
					mustWin(t, h)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 2)
				began := time.Now()
				kept.SetRule(func(faultstore.Call) faultstore.Fault { return fault })
				for _, name := range []string{"w", "z"} {
					h, err := k.Lease(name)
					require.NoError(t, err)
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
				info := k.Info()
				require.WithinDuration(t, fields["since"].(time.Time), info.Since, 0)
				require.ErrorIs(t, info.Failure, faultstore.ErrInjected)
				require.Equal(t, []string{"one:2379", "two:2379"}, info.Endpoints)
				require.Equal(t, [2]int{0, 4}, [2]int{info.Held, info.Handles})

				kept.SetRule(nil)
				time.Sleep(ttl)
				all = logs.TakeAll()
				require.Len(t, all, 1, "%v", all)
				require.Equal(t, "store reachable again", all[0].Message)
				require.EqualValues(t, 2, all[0].ContextMap()["lost"])
				info = k.Info()
				require.True(t, info.Since.IsZero())
				require.NoError(t, info.Failure)
				require.Equal(t, 2, info.Held)
				cancel()
				for range 2 {
					require.ErrorIs(t, <-done, context.Canceled)
				}
			})
		})
	}
}

// located is a faultstore that says where it is.
type located struct {
	*faultstore.Store
	where []string
}

func (l *located) Limits() store.Limits {
	limits := l.Store.Limits()
	limits.Endpoints = l.where
	return limits
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

// Without a logger the warning goes where the program's go.
func TestRunIsNotSilentByDefault(t *testing.T) {
	l := defaultLines(t)
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.Logger = nil })
		a.store.Partition()
		err := lease.Run(within(t, 3*ttl), a.lease("job"), func(context.Context, lease.Term) error { return nil })
		require.ErrorIs(t, err, lease.ErrUnknown)
		synctest.Wait()
	})
	require.Contains(t, l.read(), "WARN store unreachable")
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
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
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
