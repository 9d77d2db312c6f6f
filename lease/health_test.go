package lease_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
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

		b, err := lease.NewKeeper(&answering{Store: store, err: refused}, lease.Config{ID: "b"})
		require.NoError(t, err)
		defer func() { require.NoError(t, b.Close(t.Context())) }()
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
		k, err := lease.NewKeeper(&answering{store, fmt.Errorf("holdfast/health: %w", lease.ErrBadRecord)}, lease.Config{ID: "a"})
		require.NoError(t, err)
		require.NoError(t, k.Health(t.Context()))
		require.NoError(t, k.Close(t.Context()))
	})
}

func TestHealthTellsOfRenewalsThatFailAndHowMuchTrustIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
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
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
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
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
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
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
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

func TestHealthLeavesOutWhatIsBeingReleased(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		h := a.hold("job")
		a.rule(faultstore.Release, faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		released := meanwhile(func() error { return h.Release(t.Context()) })
		synctest.Wait()
		require.False(t, h.CheckAlive())
		require.NoError(t, a.Health(t.Context()))
		require.NoError(t, <-released)
	})
}

func TestHealthAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
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
