package lease_test

import (
	"context"
	"iter"
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

// OperationTimeout counts from the call, also for those that queue behind others.
func TestOperationTimeoutBoundsEveryCall(t *testing.T) {
	for name, cut := range map[string]func(*node){
		"store away":           func(n *node) { n.store.Partition() },
		"no session opens":     func(n *node) { n.rule(faultstore.OpenSession, faultstore.Fault{Kind: faultstore.Drop, Hang: true}) },
		"requests are dropped": func(n *node) { n.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Drop}) },
		"answers are lost": func(n *node) {
			n.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ApplyThenFail, Hang: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				const bound = 7 * time.Second
				a := start(t, store, "a", func(c *lease.Config) { c.OperationTimeout = bound })
				la, other := a.lease("job"), a.lease("other", lease.WithTTL(ttl/2))
				cut(a)
				began := time.Now()
				var wg sync.WaitGroup
				for range 20 {
					for _, l := range []lease.Lease{la, other} {
						wg.Go(func() {
							won, err := l.Acquire(context.Background())
							require.False(t, won)
							require.ErrorIs(t, err, lease.ErrUnknown)
							require.LessOrEqual(t, time.Since(began), bound)
						})
					}
				}
				wg.Wait()
				began = time.Now()
				a.store.Partition()
				for _, l := range []lease.Lease{la, other} {
					wg.Go(func() {
						err := l.Release(context.Background())
						require.LessOrEqual(t, time.Since(began), bound)
						if name == "store away" || name == "no session opens" {
							require.NoError(t, err, "no claim was ever sent: nothing of it stands")
						} else {
							require.ErrorIs(t, err, lease.ErrUnknown)
						}
					})
				}
				wg.Wait()
				a.store.Heal()
				a.store.SetRule(nil)
				time.Sleep(2 * ttl)
				mustWin(t, la)
				mustWin(t, other)
			})
		})
	}
}

func TestAContextThatIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.lease("job"), b.lease("job")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		before := store.Stats()
		_, err := la.Acquire(done)
		require.ErrorIs(t, err, context.Canceled)
		_, err = la.Offer(done)
		require.ErrorIs(t, err, context.Canceled)
		_, _, err = la.Holder(done)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, la.Release(done), "nothing was ever asked for")
		after := store.Stats()
		after.Watch = before.Watch // the Keeper's own
		require.Equal(t, before, after, "nothing is sent for one who is gone")

		mustWin(t, la)
		o := offerOf(t, lb)
		require.ErrorIs(t, la.Transfer(done, o), context.Canceled)
		require.True(t, la.CheckAlive(), "nothing was begun")
		err = la.Release(done)
		require.False(t, la.CheckAlive(), "what is to be released is given up, also while a caller waits")
		if err != nil {
			require.ErrorIs(t, err, lease.ErrUnknown)
		}
		synctest.Wait()
		requireFree(t, store, "job")
	})
}

func TestOperationsOfOneHandleGoOneAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		la := a.hold("job")
		var mu sync.Mutex
		inFlight, most := 0, 0
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Acquire || c.Op == faultstore.Release {
				mu.Lock()
				defer mu.Unlock()
				inFlight++
				most = max(most, inFlight)
				time.AfterFunc(50*time.Millisecond, func() { mu.Lock(); inFlight--; mu.Unlock() })
				return faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 50*time.Millisecond + 1}
			}
			return faultstore.Fault{}
		})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { la.Acquire(context.Background()) })
			wg.Go(func() { la.Release(context.Background()) })
		}
		wg.Wait()
		require.Equal(t, 1, most)
	})
}

// A store that answers for part of a batch when it is told to end is heard.
func TestAPartialAnswerAtTheTimeoutCounts(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		slow := &slowSession{Store: store}
		a := start(t, slow, "a", func(c *lease.Config) { c.NamesPerSession, c.Jitter = 1, -1 })
		bad, good := a.hold("bad"), a.hold("good") // renewed in one call
		slow.hang(t, "bad")
		time.Sleep(5 * ttl)
		require.False(t, bad.CheckAlive())
		require.True(t, good.CheckAlive(), "one session that hangs takes no other along")
	})
}

// slowSession renews every session but one, for which it waits till the end.
type slowSession struct {
	*memory.Store
	mu   sync.Mutex
	hung store.SessionID
}

func (s *slowSession) hang(t *testing.T, name string) {
	rec, ok := standing(t, s.Store, name)
	require.True(t, ok)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = rec.Session
}

func (s *slowSession) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	grants := make([]store.Grant, len(sessions))
	for i := range sessions {
		s.mu.Lock()
		hung := sessions[i].ID == s.hung
		s.mu.Unlock()
		if hung {
			defer func() { grants[i].Err = ctx.Err() }()
			continue
		}
		g, err := s.Store.Renew(ctx, sessions[i:i+1])
		if err != nil {
			return nil, err
		}
		grants[i] = g[0]
	}
	for i := range sessions {
		if grants[i].TTL == 0 && grants[i].Err == nil {
			<-ctx.Done()
		}
	}
	return grants, nil
}

// listless is a store that can neither watch nor list.
type listless struct{ store.Store }

func (s listless) Limits() store.Limits {
	l := s.Store.Limits()
	l.BySession = false
	return l
}

func (listless) List(context.Context, store.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, lease.ErrUnsupported) }
}

// Where nothing can be listed, the names whose outcome is unknown are looked at.
func TestSuspectsAreLookedAtWithoutListing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, listless{store}, "a")
		a.hold("another") // keeps the session alive
		la := a.lease("job")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: ttl + ttl/2, Hang: true})
		began := time.Now()
		_, err := la.Acquire(within(t, time.Second))
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NoError(t, la.Close(t.Context()))
		time.Sleep(time.Until(began.Add(ttl + ttl/2 + 1)))
		_, ok := standing(t, store, "job")
		require.True(t, ok, "it landed when nobody wanted it any more")
		time.Sleep(ttl + time.Second)
		requireFree(t, store, "job")
	})
}

// A closed handle that still looks for what it may have left behind does not take
// what a later handle of the name has won.
func TestAClosedHandleLeavesItsSuccessorAlone(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		old := a.lease("job")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.Drop, Hang: true})
		_, err := old.Acquire(within(t, time.Second))
		require.ErrorIs(t, err, lease.ErrUnknown)
		time.Sleep(ttl / 4)
		a.rule(faultstore.Get, faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		require.ErrorIs(t, old.Close(within(t, time.Millisecond)), lease.ErrUnknown)
		la := a.hold("job")
		lost := watchLosses(la)
		time.Sleep(ttl)
		require.Empty(t, lost.all())
		require.True(t, la.CheckAlive())
		rec, _ := standing(t, store, "job")
		require.Equal(t, token(t, la), rec.Token)
	})
}

// A win whose answer comes after its session is over is owned anew, by a newer
// token under another session.
func TestAWinUnderASessionThatIsOverIsNotTrusted(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.AttemptTimeout, c.OperationTimeout = 5*ttl, 5*ttl })
		a.hold("another")
		first := store.Stats().Acquire
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			switch {
			case c.Op == faultstore.Renew:
				return faultstore.Fault{Kind: faultstore.Drop}
			case c.Op == faultstore.Acquire && store.Stats().Acquire == first:
				return faultstore.Fault{Kind: faultstore.ReplyLate, Delay: trusted + time.Second/2}
			}
			return faultstore.Fault{}
		})
		la := a.lease("job")
		mustWin(t, la)
		rec, ok := standing(t, store, "job")
		require.True(t, ok)
		require.Equal(t, rec.Token, token(t, la))
		require.Equal(t, first+2, store.Stats().Acquire)
	})
}
