package leaderelection_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/leaderelection"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// candidate is an elector with a store of its own way, and what its callbacks told.
type candidate struct {
	*leaderelection.LeaderElector
	store *faultstore.Store
	end   context.CancelFunc
	ended chan error
	work  func(context.Context) // of OnStartedLeading; nil: until its context is done

	mu      sync.Mutex
	told    []string // "started", "stopped", "returned" and "new x"
	term    lease.Term
	stopped time.Time
}

func (c *candidate) tell(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, what)
}

func (c *candidate) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.told...)
}

// run starts a candidate with 15 s, 10 s and 2 s.
func run(t *testing.T, s store.Store, id string, set func(*candidate, *leaderelection.LeaderElectionConfig)) *candidate {
	c := &candidate{store: faultstore.Wrap(s), ended: make(chan error, 1)}
	cfg := leaderelection.LeaderElectionConfig{Lock: leaderelection.Lock{Store: c.store, Name: "leader", Identity: id}, ReleaseOnCancel: true}
	cfg.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			term, ok := leaderelection.TermOf(ctx)
			require.True(t, ok)
			c.mu.Lock()
			c.term = term
			c.mu.Unlock()
			c.tell("started")
			if c.work != nil {
				c.work(ctx)
			} else {
				<-ctx.Done()
			}
			c.tell("returned")
		},
		OnStoppedLeading: func() {
			c.mu.Lock()
			c.stopped = time.Now()
			c.mu.Unlock()
			c.tell("stopped")
		},
	}
	if set != nil {
		set(c, &cfg)
	}
	var err error
	c.LeaderElector, err = leaderelection.NewLeaderElector(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c.end = cancel
	go func() { c.ended <- c.Run(ctx) }()
	synctest.Wait()
	return c
}

func bubble(t *testing.T, f func(t *testing.T, s store.Store)) {
	synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
}

func TestAPlannedEndHandsOverAtOnceAndAfterTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store) {
		a := run(t, s, "a", func(c *candidate, _ *leaderelection.LeaderElectionConfig) {
			c.work = func(ctx context.Context) { <-ctx.Done(); time.Sleep(time.Second) }
		})
		b := run(t, s, "b", func(c *candidate, cfg *leaderelection.LeaderElectionConfig) {
			cfg.Callbacks.OnNewLeader = func(id string) { c.tell("new " + id) }
		})
		time.Sleep(time.Minute)
		require.True(t, a.IsLeader())
		require.False(t, b.IsLeader())
		require.Equal(t, "a", b.GetLeader())
		a.end()
		time.Sleep(time.Second - 1)
		require.Equal(t, []string{"started"}, a.heard(), "the work goes on, under the lease")
		require.True(t, a.term.CheckAlive())
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, <-a.ended)
		require.Equal(t, []string{"started", "returned", "stopped"}, a.heard())
		time.Sleep(3 * time.Second)
		require.True(t, b.IsLeader())
		require.Equal(t, []string{"new a", "new b"}, slices.DeleteFunc(b.heard(), func(what string) bool { return what == "started" }))
		require.Greater(t, b.term.Token(), a.term.Token())
		b.end()
		require.NoError(t, <-b.ended)
	})
}

func TestALeaderThatLosesItsStoreStopsBeforeAnotherLeads(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store) {
		dog := leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
		require.NoError(t, dog.Check(nil))
		stuck := make(chan struct{})
		a := run(t, s, "a", func(c *candidate, cfg *leaderelection.LeaderElectionConfig) {
			cfg.WatchDog = dog
			c.work = func(ctx context.Context) { <-ctx.Done(); <-stuck }
		})
		b := run(t, s, "b", nil)
		a.store.Partition()
		cut := time.Now()
		for !b.IsLeader() {
			time.Sleep(10 * time.Millisecond)
			require.False(t, a.IsLeader() && b.IsLeader())
		}
		require.LessOrEqual(t, time.Since(cut), 18*time.Second)
		require.Equal(t, []string{"started", "stopped"}, a.heard(), "told though its work goes on")
		require.LessOrEqual(t, a.stopped.Sub(cut), 10*time.Second+10*time.Millisecond)
		require.False(t, a.term.CheckAlive())
		require.NoError(t, dog.Check(nil))
		time.Sleep(20 * time.Second)
		require.ErrorContains(t, dog.Check(nil), "has not returned")
		require.Equal(t, "leaderElection", dog.Name())
		a.store.Heal()
		close(stuck)
		require.ErrorIs(t, <-a.ended, lease.ErrExpired)
		require.Equal(t, []string{"started", "stopped", "returned"}, a.heard())
		require.NoError(t, dog.Check(nil))
		b.end()
		require.NoError(t, <-b.ended)
	})
}

func TestWithoutReleaseTheLeaseRunsOut(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store) {
		a := run(t, s, "a", func(c *candidate, cfg *leaderelection.LeaderElectionConfig) {
			cfg.ReleaseOnCancel = false
			c.work = func(context.Context) {} // what it began goes on without it
		})
		b := run(t, s, "b", nil)
		time.Sleep(time.Minute)
		require.True(t, a.IsLeader(), "it leads on after OnStartedLeading has returned")
		a.end()
		require.NoError(t, <-a.ended)
		end := time.Now()
		for !b.IsLeader() {
			time.Sleep(10 * time.Millisecond)
		}
		require.Greater(t, time.Since(end), 12*time.Second, "it had been renewed within the last 2 s")
		b.end()
		require.NoError(t, <-b.ended)
	})
}

func TestACandidateThatNeverLeadsIsToldThatItStopped(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store) {
		a := run(t, s, "a", nil)
		b := run(t, s, "b", nil)
		b.end()
		require.ErrorIs(t, <-b.ended, context.Canceled)
		require.Equal(t, []string{"stopped"}, b.heard())
		a.end()
		require.NoError(t, <-a.ended)
		go func() { a.ended <- a.Run(t.Context()) }() // once more
		synctest.Wait()
		require.True(t, a.IsLeader())
		require.Equal(t, "a", a.GetLeader())
	})
}

func TestAPanicOfACallbackComesFromRunAfterTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s store.Store) {
		for _, where := range []string{"OnStartedLeading", "OnStoppedLeading"} {
			f := faultstore.Wrap(s)
			cfg := leaderelection.LeaderElectionConfig{Lock: leaderelection.Lock{Store: f, Name: "leader", Identity: "a"}, ReleaseOnCancel: true}
			cfg.Callbacks.OnStartedLeading = func(ctx context.Context) {
				if where == "OnStartedLeading" {
					panic(where)
				}
				f.Partition()
				<-ctx.Done()
				f.Heal()
			}
			cfg.Callbacks.OnStoppedLeading = func() {
				if where == "OnStoppedLeading" {
					panic(where)
				}
			}
			le, err := leaderelection.NewLeaderElector(cfg)
			require.NoError(t, err)
			require.PanicsWithValue(t, where, func() { _ = le.Run(t.Context()) })
			left, err := s.Get(t.Context(), "leader")
			require.NoError(t, err)
			require.Empty(t, left)
		}
	})
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct {
		says string
		set  func(*leaderelection.LeaderElectionConfig)
	}{
		{"Callbacks.OnStartedLeading", func(c *leaderelection.LeaderElectionConfig) { c.Callbacks.OnStartedLeading = nil }},
		{"Callbacks.OnStoppedLeading", func(c *leaderelection.LeaderElectionConfig) { c.Callbacks.OnStoppedLeading = nil }},
		{"Lock.Identity", func(c *leaderelection.LeaderElectionConfig) { c.Lock.Identity = "" }},
		{"store", func(c *leaderelection.LeaderElectionConfig) { c.Lock.Store = nil }},
		{"lease name", func(c *leaderelection.LeaderElectionConfig) { c.Lock.Name = "" }},
		{"LeaseDuration: invalid: 100ms, must be at least 300ms", func(c *leaderelection.LeaderElectionConfig) { c.LeaseDuration = 100 * time.Millisecond }},
		{"RenewDeadline: invalid: 15s, must be below LeaseDuration, 15s", func(c *leaderelection.LeaderElectionConfig) { c.RenewDeadline = 15 * time.Second }},
		{"must be above 1.2 times RetryPeriod, 9s", func(c *leaderelection.LeaderElectionConfig) { c.RetryPeriod = 9 * time.Second }},
		{"RetryPeriod: invalid: -1s", func(c *leaderelection.LeaderElectionConfig) { c.RetryPeriod = -time.Second }},
	} {
		cfg := leaderelection.LeaderElectionConfig{
			Lock:      leaderelection.Lock{Store: memory.New(), Name: "leader", Identity: "a"},
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		}
		_, err := leaderelection.NewLeaderElector(cfg)
		require.NoError(t, err)
		c.set(&cfg)
		_, err = leaderelection.NewLeaderElector(cfg)
		require.ErrorIs(t, err, lease.ErrInvalid, c.says)
		require.ErrorContains(t, err, c.says)
	}
	require.ErrorIs(t, new(leaderelection.LeaderElector).Run(t.Context()), lease.ErrInvalid)
	_, ok := leaderelection.TermOf(t.Context())
	require.False(t, ok)
}
