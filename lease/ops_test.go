package lease_test

import (
	"context"
	"iter"
	"runtime"
	"strings"
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
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
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
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
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

// A closed handle that still looks for what it may have left behind does not take
// what a later handle of the name has won.
func TestAClosedHandleLeavesItsSuccessorAlone(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
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

// stackStore notes on whose goroutine an acquisition came, and panics if told to.
type stackStore struct {
	*memory.Store
	prompt, panics bool
	stack          string
}

func (s *stackStore) Limits() store.Limits {
	return store.Limits{Name: "stack", Prompt: s.prompt}
}

func (s *stackStore) Acquire(ctx context.Context, sess store.Session, claims []store.Claim) ([]store.Outcome, error) {
	b := make([]byte, 1<<16)
	s.stack = string(b[:runtime.Stack(b, false)])
	if s.panics {
		panic("rude")
	}
	return s.Store.Acquire(ctx, sess, claims)
}

func TestAPromptStoreIsAskedByTheCallerItself(t *testing.T) {
	for _, prompt := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			s := &stackStore{Store: store, prompt: prompt}
			a := start(t, s, "a")
			a.hold("resident") // opens the session, which is not the caller's to wait for
			require.False(t, strings.Contains(s.stack, "(*Handle).Acquire("), "not before there is a session")
			a.hold("job")
			require.Equal(t, prompt, strings.Contains(s.stack, "(*Handle).Acquire("), s.stack)
		})
	}
}

func TestAPromptStoreThatPanicsHarmsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		s := &stackStore{Store: store, prompt: true}
		a := start(t, s, "a")
		a.hold("resident")
		s.panics = true
		won, err := a.lease("job").Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "panicked: rude")
	})
}

func TestWhatACallerThatLeftMayHaveWonIsLookedForAtOnce(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		a.hold("resident")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 2 * time.Second})
		job := a.lease("job")
		began := time.Now()
		_, err := job.Acquire(within(t, 300*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 300*time.Millisecond, time.Since(began), "the caller left when it wanted to")
		_, stands := standing(t, store, "job")
		require.True(t, stands, "the request had landed")
		time.Sleep(200 * time.Millisecond) // a pause before the next attempt, not a round of reconciliation
		_, stands = standing(t, store, "job")
		require.False(t, stands)
	})
}

func TestAReleaseThatEndedWithItsCallerIsRepeatedAtOnce(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		job := a.hold("job")
		a.once(faultstore.Release, 1, faultstore.Fault{Kind: faultstore.Delay, Delay: 2 * time.Second})
		require.ErrorIs(t, job.Release(within(t, 300*time.Millisecond)), lease.ErrUnknown)
		time.Sleep(200 * time.Millisecond)
		requireFree(t, store, "job")
	})
}

// A request that was sent may be applied, though its caller no longer waits for the answer. One
// that was not sent is not.
func TestWhatIsCutOffIsUnknownIfItWasSent(t *testing.T) {
	slow := faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 2 * time.Second}
	for what, op := range map[string]struct {
		op faultstore.Op
		do func(n *node, la *lease.Handle, o lease.Offer) error
	}{
		"transfer": {faultstore.Transfer, func(_ *node, la *lease.Handle, o lease.Offer) error {
			return la.Transfer(context.Background(), o)
		}},
		"release": {faultstore.Release, func(_ *node, la *lease.Handle, _ lease.Offer) error {
			return la.Release(context.Background())
		}},
		"acquire": {faultstore.Acquire, func(n *node, _ *lease.Handle, _ lease.Offer) error {
			_, err := n.lease("free").Acquire(context.Background())
			return err
		}},
		"adopt": {faultstore.Acquire, func(n *node, _ *lease.Handle, _ lease.Offer) error {
			h := n.lease("free")
			o, err := h.Offer(context.Background())
			if err == nil {
				_, err = h.Adopt(context.Background(), o)
			}
			return err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
				la := a.hold("job")
				o := offerOf(t, b.lease("job"))
				a.rule(op.op, slow)
				got, next := make(chan error, 1), make(chan error, 1)
				go func() { got <- op.do(a, la, o) }()
				synctest.Wait()
				go func() { next <- la.Transfer(context.Background(), o) }()
				synctest.Wait()
				_ = a.Close(within(t, time.Second))
				err := <-got
				require.ErrorIs(t, err, lease.ErrClosed)
				require.ErrorIs(t, err, lease.ErrUnknown)
				if what == "transfer" || what == "release" { // the other waited behind it
					err = <-next
					require.ErrorIs(t, err, lease.ErrClosed)
					require.NotErrorIs(t, err, lease.ErrUnknown, "nothing was sent of it")
				}
			})
		})
	}
}

// An acquisition that another goroutine's Release ends may have been applied, too.
func TestAnAcquireThatIsReleasedIsUnknown(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		a.hold("another")
		la := a.lease("job")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		got := meanwhile(func() error { _, err := la.Acquire(context.Background()); return err })
		synctest.Wait()
		require.NoError(t, la.Release(t.Context()))
		err := <-got
		require.ErrorIs(t, err, lease.ErrReleased)
		require.ErrorIs(t, err, lease.ErrUnknown)
		requireFree(t, store, "job")
	})
}

// slowToLook makes every look of the node last, and loses its acquisitions if it is told to.
func (n *node) slowToLook(acquiresLost bool) {
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		switch {
		case c.Op == faultstore.Get:
			return faultstore.Fault{Kind: faultstore.Delay, Delay: 500 * time.Millisecond}
		case c.Op == faultstore.Acquire && acquiresLost:
			return faultstore.Fault{Kind: faultstore.Drop}
		}
		return faultstore.Fault{}
	})
}

// An acquisition whose outcome is not known is looked for, and given back. What was
// transferred to an offer meanwhile is no acquisition.
func TestWhatWasTransferredIsNotGivenBack(t *testing.T) {
	each(t, map[string]func(t *testing.T, lb *lease.Handle){
		"its caller left": func(t *testing.T, lb *lease.Handle) {
			ctx := within(t, 300*time.Millisecond)
			_, err := lb.Acquire(ctx)
			require.ErrorIs(t, err, lease.ErrUnknown)
		},
		"it was released": func(t *testing.T, lb *lease.Handle) {
			_, err := lb.Acquire(t.Context())
			require.ErrorIs(t, err, lease.ErrUnknown)
			go lb.Release(context.Background())
		},
	}, func(t *testing.T, store *memory.Store, acquire func(t *testing.T, lb *lease.Handle)) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.hold("job"), b.lease("job")
		b.hold("another") // so that it has a session
		b.slowToLook(true)
		acquire(t, lb)
		b.slowToLook(false)
		synctest.Wait()
		time.Sleep(300 * time.Millisecond) // it looks
		o := offerOf(t, lb)
		require.NoError(t, la.Transfer(t.Context(), o))
		mustAdopt(t, lb, o)
		term, _ := lb.Term()
		require.True(t, term.(lease.Continuing).Adopted(o), "nobody could win in between")
	})
}

// What was transferred to an offer that its maker does not take up is released all the
// same, once the offer is over.
func TestWhatWasTransferredInVainIsReleased(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		la, lb := a.hold("job"), b.lease("job")
		o := offerOf(t, lb)
		b.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Drop})
		ctx := within(t, 300*time.Millisecond)
		_, err := lb.Acquire(ctx)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NoError(t, la.Transfer(t.Context(), o))
		require.NoError(t, lb.Release(t.Context()))
		rec, ok := standing(t, store, "job")
		require.True(t, ok)
		require.Equal(t, o.Nonce, rec.Nonce, "the offer stands")
		time.Sleep(o.Lifetime + ttl + time.Second)
		requireFree(t, store, "job")
	})
}

// A term that expired while the process stood still is lost, also if Release is the
// first to see it.
func TestAReleaseDoesNotHideALoss(t *testing.T) {
	each(t, map[string]func(*lease.Handle) error{
		"release": func(h *lease.Handle) error { return h.Release(context.Background()) },
		"close":   func(h *lease.Handle) error { return h.Close(context.Background()) },
	}, func(t *testing.T, store *memory.Store, end func(*lease.Handle) error) {
		a, m := metered(t, store)
		h := a.hold("job")
		lost := watchLosses(h)
		term, _ := h.Term()
		a.clock.Freeze()
		a.store.Partition()
		time.Sleep(3 * ttl)
		a.store.Heal()
		require.NoError(t, end(h)) // the first thing that runs
		a.clock.Thaw()
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
		lost.one(t, lease.ErrExpired)
		require.EqualValues(t, 1, m.read()["losses expired"])
		require.Zero(t, m.read()["held"])
	})
}

// What can't become a readable record is refused before any store gets it, and
// harms the holder nothing.
func TestAnOfferIsCheckedBeforeAnythingIsTransferred(t *testing.T) {
	spoiled := map[string]func(*lease.Offer){
		"Owner.ID":          func(o *lease.Offer) { o.Owner.ID = "" },
		"Owner.Incarnation": func(o *lease.Offer) { o.Owner.Incarnation = "" },
		"Session":           func(o *lease.Offer) { o.Session = -1 },
		"TTL":               func(o *lease.Offer) { o.TTL = 0 },
		"Offer.TTL":         func(o *lease.Offer) { o.TTL = 2 * 365 * 24 * time.Hour },
		"Name":              func(o *lease.Offer) { o.Name = "" },
	}
	for field, spoil := range spoiled {
		t.Run(field, func(t *testing.T) {
			onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
				la, lb := a.hold("job"), b.lease("job")
				lost := watchLosses(la)
				o := offerOf(t, lb)
				require.NoError(t, o.Validate())
				bad := o
				spoil(&bad)
				require.ErrorIs(t, bad.Validate(), lease.ErrInvalid)
				asked := a.noting(nil)
				err := la.Transfer(t.Context(), bad)
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.ErrorContains(t, err, field)
				require.Empty(t, asked.of(faultstore.Transfer))
				require.True(t, la.CheckAlive(), "nothing was done")
				require.Empty(t, lost.all())

				require.NoError(t, la.Transfer(t.Context(), o))
				mustAdopt(t, lb, o)
			})
		})
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCloseWaitsForOwnersToRelease(t *testing.T) {
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
		la, idle := a.hold("job"), a.lease("idle")
		lost := watchLosses(la)
		term, _ := la.Term()
		waits := make(chan error, 1)
		taken := a.lease("taken")
		start(t, db, "b").hold("taken")
		go func() { waits <- taken.Wait(context.Background()) }()
		synctest.Wait()
		closed := make(chan error, 2)
		go func() { closed <- a.Close(context.Background()) }()
		go func() { closed <- a.Close(context.Background()) }()
		synctest.Wait()
		require.False(t, la.CheckAlive(), "trust ends at once")
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrClosed)
		lost.one(t, lease.ErrClosed)
		require.Len(t, waits, 1, "nobody waits for what cannot come")
		require.ErrorIs(t, <-waits, lease.ErrClosed)

		// Work may still be running under it: the record is renewed.
		time.Sleep(5 * ttl)
		require.Empty(t, closed)
		requireHeld(t, db, "job")
		// Nothing new begins.
		_, err := la.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = idle.Offer(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = a.Lease("new")
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = a.Watch("", func(store.Event) {})
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorIs(t, idle.Wait(t.Context()), lease.ErrClosed)

		require.NoError(t, la.Release(t.Context()))
		require.NoError(t, <-closed)
		require.NoError(t, <-closed, "a second Close waits like the first")
		requireFree(t, db, "job")
		require.NotZero(t, db.Stats().CloseSession, "sessions are closed, not left to expire")
		require.NoError(t, a.Close(context.Background()), "and one that comes later has nothing to do")
		require.Len(t, lost.all(), 1)

		// After the end.
		require.NoError(t, la.Release(t.Context()), "nothing stands")
		require.NoError(t, la.Close(t.Context()))
		_, err = la.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorContains(t, err, `"job"`)
		_, _, err = la.Holder(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestCloseAbandonsWhatIsNotReleased(t *testing.T) {
	onTwo(t, func(t *testing.T, _ *memory.Store, a, b *node) {
		stuck, gone := a.hold("stuck"), a.hold("gone", lease.WithOwnSession())
		patient := meanwhile(func() error { return a.Close(context.Background()) })
		synctest.Wait()
		require.NoError(t, gone.Release(t.Context()))
		err := a.Close(within(t, time.Second))
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 leases not released")
		require.ErrorContains(t, err, "stuck")
		require.NotContains(t, err.Error(), "gone")
		require.Equal(t, err, <-patient, "it abandons for the other call, too")
		require.Equal(t, err, a.Close(context.Background()), "and a later call is told the same")
		require.ErrorIs(t, stuck.Release(t.Context()), lease.ErrClosed)

		lb := b.lease("stuck")
		mustNotWin(t, lb)
		time.Sleep(ttl)
		mustWin(t, lb) // left to expire, and not renewed
	})
}

func TestCloseOfALostTermWaitsForItsOwner(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		la := a.hold("job")
		a.store.Partition()
		time.Sleep(ttl)
		require.False(t, la.CheckAlive())
		a.store.Heal()
		err := a.Close(within(t, time.Second))
		require.ErrorContains(t, err, "job", "nobody said that the work is over")
	})
}

func TestCloseDuringOperations(t *testing.T) {
	each(t, map[string]faultstore.Fault{
		"the answer is late":     {Kind: faultstore.ReplyLate, Delay: 2 * time.Second},
		"the answer is lost":     {Kind: faultstore.ApplyThenFail, Hang: true},
		"the request is lost":    {Kind: faultstore.Drop},
		"the request lands late": {Kind: faultstore.LandLate, Delay: 2 * time.Second},
	}, func(t *testing.T, db *memory.Store, fault faultstore.Fault) {
		a := start(t, db, "a")
		a.hold("warm") // so that a session is open
		require.NoError(t, a.lease("other").Close(t.Context()))
		a.rule(faultstore.Acquire, fault)
		got := make(chan error, 2)
		for _, name := range []string{"job/1", "job/2"} {
			l := a.lease(name)
			go func() { _, err := l.Acquire(context.Background()); got <- err }()
		}
		synctest.Wait()
		err := a.Close(within(t, 4*time.Second))
		require.ErrorContains(t, err, "warm")
		require.NotContains(t, err.Error(), "job")
		for range 2 {
			require.ErrorIs(t, <-got, lease.ErrClosed)
		}
		a.store.Wait()
		time.Sleep(ttl)
		requireFree(t, db, "job/1")
	})
}

func TestCloseWithTheStoreAwayIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a", func(c *lease.Config) { c.NamesPerSession = 1 })
		for _, name := range []string{"u", "v", "w", "x", "y"} {
			h := a.hold(name)
			require.NoError(t, h.Release(t.Context()))
		}
		a.store.Partition()
		began := time.Now()
		require.NoError(t, a.Close(context.Background()))
		require.LessOrEqual(t, time.Since(began), ttl/4, "one attempt, not one for each session")
	})
}

func TestHandleCloseReleases(t *testing.T) {
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
		la := a.hold("job")
		lost := watchLosses(la)
		waits := make(chan error, 1)
		blocked := a.lease("blocked")
		mustWin(t, start(t, db, "b").lease("blocked"))
		go func() { waits <- blocked.Wait(context.Background()) }()
		synctest.Wait()
		require.NoError(t, la.Close(t.Context()))
		require.False(t, la.CheckAlive())
		requireFree(t, db, "job")
		require.Empty(t, lost.all(), "a release is no loss")
		require.NoError(t, la.Close(t.Context()), "twice is once")
		require.NoError(t, la.Release(t.Context()))

		require.NoError(t, blocked.Close(t.Context()))
		require.ErrorIs(t, <-waits, lease.ErrClosed, "nobody is left waiting")
	})
}

func TestHandleCloseDuringAcquire(t *testing.T) {
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
		la := a.lease("job")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		got := meanwhile(func() error { _, err := la.Acquire(context.Background()); return err })
		synctest.Wait()
		closed := meanwhile(func() error { return la.Close(context.Background()) })
		synctest.Wait()
		require.ErrorIs(t, <-got, lease.ErrClosed)
		_, err := la.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed, "nothing is won behind the release")
		require.NoError(t, <-closed)
		requireFree(t, db, "job")
		require.False(t, la.CheckAlive())
	})
}

// Close waits for the releases of handles that were closed before, and names those
// that it does not wait for any longer.
func TestCloseWaitsForHandlesThatWereClosed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		slow := func(n *node) {
			n.rule(faultstore.Release, faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		}
		a := start(t, store, "a")
		job := a.hold("job")
		slow(a)
		require.ErrorIs(t, job.Close(within(t, time.Millisecond)), lease.ErrUnknown)
		began := time.Now()
		require.NoError(t, a.Close(t.Context()))
		require.Less(t, time.Since(began), 2*time.Second)
		requireFree(t, store, "job")

		b := start(t, store, "b")
		job = b.hold("job")
		slow(b)
		require.ErrorIs(t, job.Close(within(t, time.Millisecond)), lease.ErrUnknown)
		err := b.Close(within(t, time.Millisecond))
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "1 leases not released, left to expire: job")
	})
}
