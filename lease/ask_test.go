package lease_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestAcquireTermTellsTheTermOrTheHolder(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		la, lb := a.lease("job", lease.WithMetadata(map[string]string{"k": "v"})), b.lease("job")
		term, err := la.AcquireTerm(t.Context())
		require.NoError(t, err)
		require.True(t, term.CheckAlive())
		require.Equal(t, token(t, la), term.Token())
		again, err := la.AcquireTerm(t.Context())
		require.NoError(t, err)
		require.Same(t, term, again, "it is ours already")

		gets := store.Stats().Get
		none, err := lb.AcquireTerm(t.Context())
		require.Nil(t, none)
		require.ErrorIs(t, err, lease.ErrHeld)
		require.NotErrorIs(t, err, lease.ErrNotHeld)
		var held *lease.HeldError
		require.ErrorAs(t, err, &held)
		want, _ := standing(t, store, "job")
		require.Equal(t, want, held.Record)
		require.ErrorContains(t, err, `"job"`)
		require.ErrorContains(t, err, "held by a at a:1")
		require.Equal(t, gets+1, store.Stats().Get, "the test's own: the answer had it")
		mustNotWin(t, lb)

		require.NoError(t, la.Release(t.Context()))
		require.False(t, term.CheckAlive())
		later, err := lb.AcquireTerm(t.Context())
		require.NoError(t, err)
		require.Greater(t, later.Token(), term.Token())
	})
}

func TestKeeperGet(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		a.hold("job")
		want, _ := standing(t, store, "job")
		for _, n := range []*node{a, b} {
			rec, err := n.Get(t.Context(), "job")
			require.NoError(t, err)
			require.Equal(t, want, rec)
			all, err := n.List(t.Context(), "j")
			require.NoError(t, err)
			require.Equal(t, []lease.Record{want}, all)
			require.NotNil(t, n.Logger())
			require.NotNil(t, n.Clock())
			_, err = n.Get(t.Context(), "none")
			require.ErrorIs(t, err, lease.ErrNotHeld)
			require.ErrorContains(t, err, `"none"`)
			_, err = n.Get(t.Context(), "a//b")
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		b.rule(faultstore.Get, faultstore.Fault{Kind: faultstore.Drop})
		_, err := b.Get(t.Context(), "none")
		require.ErrorIs(t, err, faultstore.ErrInjected)
		require.NotErrorIs(t, err, lease.ErrNotHeld)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Get(ctx, "job")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, b.Close(t.Context()))
		_, err = b.Get(t.Context(), "job")
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

// deaf is a lease that panics when it is asked whether it is alive.
type deaf struct {
	lease.Lease
	bad   atomic.Bool
	asked atomic.Int32
}

func (d *deaf) CheckAlive() bool {
	d.asked.Add(1)
	if d.bad.Load() {
		panic("a user's bug")
	}
	return d.Lease.CheckAlive()
}

// deafWrapper is one whose terms are found within.
type deafWrapper struct{ *deaf }

func (d deafWrapper) Unwrap() lease.Lease { return d.Lease }

// deafTermed is one that has a term of its own, which fails.
type deafTermed struct{ *deaf }

func (d deafTermed) Term() (lease.Term, bool) {
	t, ok := d.Lease.(lease.Termed).Term()
	return &deafTerm{t, d.deaf}, ok
}

type deafTerm struct {
	lease.Term
	d *deaf
}

func (t *deafTerm) Check() (time.Duration, bool) { return 0, t.d.CheckAlive() }

func TestATermWhoseLeaseCantBeAskedHasEnded(t *testing.T) {
	for kind, of := range map[string]func(*deaf) lease.Lease{
		"bare":     func(d *deaf) lease.Lease { return opaque{d} },
		"wrapping": func(d *deaf) lease.Lease { return deafWrapper{d} },
		"termed":   func(d *deaf) lease.Lease { return deafTermed{d} },
	} {
		each(t, map[string]bool{kind + "/later": false, kind + "/at once": true},
			func(t *testing.T, store *memory.Store, atOnce bool) {
				d := &deaf{Lease: start(t, store, "a").lease("job")}
				mustWin(t, d)
				l := of(d)
				d.bad.Store(atOnce && kind != "termed")
				term, stop := lease.TermOf(l)
				defer stop()
				if !d.bad.Load() {
					require.True(t, term.CheckAlive())
					require.NoError(t, term.Context().Err())
					d.bad.Store(true)
					require.False(t, term.CheckAlive())
				}
				asked := d.asked.Load()
				require.False(t, term.CheckAlive())
				_, alive := term.Check()
				require.False(t, alive)
				d.bad.Store(false)
				require.False(t, term.CheckAlive(), "it has ended")
				require.Equal(t, asked, d.asked.Load(), "it is not asked again")
				require.ErrorIs(t, context.Cause(term.Context()), lease.ErrInconsistent)
				require.ErrorContains(t, context.Cause(term.Context()), "CheckAlive")
			})
	}
}

// Run under such a lease says why it ended.
func TestRunUnderALeaseThatCantBeAsked(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h := start(t, store, "a").lease("job")
		d := &deaf{Lease: opaque{h}}
		d.bad.Store(true)
		err := lease.Run(t.Context(), d, func(context.Context, lease.Term) error { return errors.New("it ran") })
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.ErrorContains(t, err, "a user's bug")
		require.NotContains(t, err.Error(), "it ran")
		requireFree(t, store, "job")
	})
}

// To be contained costs a question no allocation.
func TestATermIsAskedWithoutAllocations(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		h := start(t, store, "a").lease("job")
		mustWin(t, h)
		for what, l := range map[string]lease.Lease{"made": opaque{h}, "narrow": wrapped{h}, "own": h,
			"termed": deafTermed{&deaf{Lease: h}}} {
			term, stop := lease.TermOf(l)
			require.Zero(t, testing.AllocsPerRun(100, func() { require.True(t, term.CheckAlive()) }), what)
			stop()
		}
	})
}

// What a holder says of itself is in the records it acquires, beside what the lease was
// made with, from the next on.
func TestAHolderDescribesItself(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		h := a.lease("job", lease.WithMetadata(map[string]string{"k": "v"}))
		said := map[string]string{"version": "1"}
		require.NoError(t, h.Describe(said))
		said["version"] = "changed"
		mustWin(t, h)
		has := func(want map[string]string) {
			t.Helper()
			rec, ok := standing(t, store, "job")
			require.True(t, ok)
			require.Equal(t, want, rec.Metadata)
		}
		has(map[string]string{"k": "v", "version": "1"})
		require.NoError(t, h.Describe(map[string]string{"settings": "2"}))
		has(map[string]string{"k": "v", "version": "1"})
		again := func() {
			require.NoError(t, h.Release(context.Background()))
			mustWin(t, h)
		}
		again()
		has(map[string]string{"k": "v", "settings": "2"})
		for _, bad := range []map[string]string{{"k": "v"}, {"k": "other", "x": "y"}, {"x": "\xff"}, {"\xff": "x"}} {
			err := h.Describe(bad)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "metadata")
		}
		again()
		has(map[string]string{"k": "v", "settings": "2"})
		require.NoError(t, h.Describe(nil))
		again()
		has(map[string]string{"k": "v"})
	})
}

// It is of that holder: a transfer leaves it behind, and keeps what the lease was made
// with until the next has taken it up.
func TestADescriptionIsNotHandedOver(t *testing.T) {
	rows := map[string]bool{"described": true, "plain": false}
	each(t, rows, func(t *testing.T, store *memory.Store, described bool) {
		a, b := start(t, store, "a"), start(t, store, "b")
		from := a.lease("job", lease.WithMetadata(map[string]string{"k": "a"}))
		to := b.lease("job", lease.WithMetadata(map[string]string{"k": "b"}))
		if described {
			require.NoError(t, from.Describe(map[string]string{"version": "1"}))
			require.NoError(t, to.Describe(map[string]string{"version": "2"}))
		}
		mustWin(t, from)
		o := offerOf(t, to)
		if described {
			require.NoError(t, from.Describe(nil)) // what stands was written before
		}
		require.NoError(t, from.Transfer(t.Context(), o))
		rec, _ := standing(t, store, "job")
		require.Equal(t, map[string]string{"k": "a"}, rec.Metadata)
		require.Equal(t, "b", rec.Owner.ID)
		mustAdopt(t, to, o)
		rec, _ = standing(t, store, "job")
		want := map[string]string{"k": "b"}
		if described {
			want["version"] = "2"
		}
		require.Equal(t, want, rec.Metadata)
	})
}

type traceKey struct{}

// traced is a context with a value.
func traced(t *testing.T, id string) context.Context {
	return context.WithValue(t.Context(), traceKey{}, id)
}

// tracing notes the value that each call's context bears, by method.
type tracing struct {
	*memory.Store
	mu    sync.Mutex
	noted map[string][]any
	why   error // the cause with which the last held-up call's context ended
	hold  bool  // Acquire waits for its context's end
}

func (s *tracing) note(ctx context.Context, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noted == nil {
		s.noted = map[string][]any{}
	}
	s.noted[what] = append(s.noted[what], ctx.Value(traceKey{}))
}

// take returns what was noted of a method, and forgets all.
func (s *tracing) take(what string) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.noted[what]
	s.noted = nil
	return of
}

func (s *tracing) OpenSession(ctx context.Context, x store.Session) (store.Grant, error) {
	s.note(ctx, "open")
	return s.Store.OpenSession(ctx, x)
}

func (s *tracing) CloseSession(ctx context.Context, x store.Session) error {
	s.note(ctx, "close")
	return s.Store.CloseSession(ctx, x)
}

func (s *tracing) Acquire(ctx context.Context, x store.Session, cs []store.Claim) ([]store.Outcome, error) {
	s.note(ctx, "acquire")
	if s.hold {
		<-ctx.Done()
		s.mu.Lock()
		s.why = context.Cause(ctx)
		s.mu.Unlock()
		return nil, ctx.Err()
	}
	return s.Store.Acquire(ctx, x, cs)
}

func (s *tracing) Renew(ctx context.Context, xs []store.Session) ([]store.Grant, error) {
	s.note(ctx, "renew")
	return s.Store.Renew(ctx, xs)
}

func (s *tracing) Release(ctx context.Context, hs []store.Held) ([]store.Outcome, error) {
	s.note(ctx, "release")
	return s.Store.Release(ctx, hs)
}

func (s *tracing) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	s.note(ctx, "get")
	return s.Store.Get(ctx, names...)
}

func (s *tracing) Transfer(ctx context.Context, ms []store.Transfer) ([]store.Outcome, error) {
	s.note(ctx, "transfer")
	return s.Store.Transfer(ctx, ms)
}

// impromptu hides that a store is prompt, so that all its calls run on the Keeper's goroutines.
type impromptu struct{ *tracing }

func (s impromptu) Limits() store.Limits { return store.Limits{Name: "impromptu"} }

func TestTheValuesOfACallerReachTheStore(t *testing.T) {
	each(t, map[string]func(*tracing) store.Store{
		"prompt":    func(s *tracing) store.Store { return s },
		"impromptu": func(s *tracing) store.Store { return impromptu{s} },
	}, func(t *testing.T, store *memory.Store, of func(*tracing) store.Store) {
		s := &tracing{Store: store}
		a, b := start(t, of(s), "a"), start(t, store, "b")
		la := a.lease("job")
		_, err := la.Acquire(traced(t, "first"))
		require.NoError(t, err)
		require.Equal(t, []any{"first"}, s.noted["open"])
		require.Equal(t, []any{"first"}, s.take("acquire"))
		time.Sleep(3 * ttl)
		renewals := s.take("renew")
		require.NotEmpty(t, renewals)
		for _, v := range renewals {
			require.Nil(t, v, "a renewal is for nobody")
		}

		_, err = a.Get(traced(t, "look"), "job")
		require.NoError(t, err)
		require.Equal(t, []any{"look"}, s.take("get"))
		_, _, err = la.Holder(traced(t, "holder"))
		require.NoError(t, err)
		require.Equal(t, []any{"holder"}, s.take("get"))

		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		_, err = a.lease("again").Acquire(traced(t, "again"))
		require.NoError(t, err)
		got := s.take("acquire")
		require.Greater(t, len(got), 1)
		for _, v := range got {
			require.Equal(t, "again", v, "every attempt bears it")
		}

		lb := b.lease("job")
		o := offerOf(t, lb)
		require.NoError(t, la.Transfer(traced(t, "give"), o))
		require.Equal(t, []any{"give"}, s.take("transfer"))

		held := a.hold("other")
		require.NoError(t, held.Release(traced(t, "release")))
		require.Equal(t, []any{"release"}, s.take("release"))
	})
}

// A request for several callers bears the values of the first.
func TestABatchBearsTheValuesOfItsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		s := &tracing{Store: store}
		a := start(t, impromptu{s}, "a")
		a.hold("warm")
		s.take("")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		var wg sync.WaitGroup
		for _, id := range []string{"1", "2", "3", "4", "5", "6", "7"} {
			h := a.lease("job/" + id)
			wg.Go(func() { _, _ = h.Acquire(traced(t, id)) })
			synctest.Wait() // in this order
		}
		wg.Wait()
		require.ElementsMatch(t, []any{"1", "2", "3", "4", "5"}, s.take("acquire"), "four at once, and then the rest together")
	})
}

// When a request ends is the Keeper's, and so is why, though the values are another's.
func TestTheEndOfARequestIsTheKeepers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		s := &tracing{Store: store, hold: true}
		a := start(t, impromptu{s}, "a")
		errWhy := errors.New("the caller's own")
		ctx, cancel := context.WithTimeoutCause(traced(t, "x"), time.Second, errWhy)
		defer cancel()
		began := time.Now()
		_, err := a.lease("job").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		time.Sleep(ttl)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.ErrorContains(t, s.why, "no answer within 2.5s")
	})
}

// With a watch that runs, and nothing in doubt, every third TTL lists. The clock of this
// test is below zero.
func TestEveryThirdRoundLists(t *testing.T) {
	type row struct {
		less   func(*memory.Store) store.Store
		listed func(memory.Stats) uint64
	}
	each(t, map[string]row{
		"by session": {func(s *memory.Store) store.Store { return s }, func(s memory.Stats) uint64 { return s.ListSession }},
		"everything": {func(s *memory.Store) store.Store { return sessionless(s) }, func(s memory.Stats) uint64 { return s.List }},
	}, func(t *testing.T, store *memory.Store, c row) {
		a := start(t, c.less(store), "a")
		a.hold("job")
		time.Sleep(10 * ttl)
		before := c.listed(store.Stats())
		time.Sleep(30 * ttl)
		require.InDelta(t, 10, c.listed(store.Stats())-before, 1)
	})
}

// Where the store lists by session nothing else is listed, whatever happens.
func TestNoKeeperListsWhatIsNotItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		patient := func(c *lease.Config) { c.PollMin, c.PollMax = time.Hour, time.Hour }
		a, b := start(t, store, "a", patient), start(t, store, "b", patient)
		b.hold("theirs")
		waiting := a.lease("theirs")
		mustNotWin(t, waiting)
		a.hold("mine")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.LandLate, Delay: 12 * ttl})
		late := a.lease("late")
		mustWin(t, late)
		require.NoError(t, late.Close(t.Context()))
		waiting.OnFree(func() {})
		synctest.Wait()
		before := store.Stats()
		a.store.CutWatches()
		time.Sleep(20 * ttl)
		requireFree(t, store, "late")
		require.Zero(t, store.Stats().List)
		require.Greater(t, store.Stats().ListSession, before.ListSession)
		require.Less(t, store.Stats().Get-before.Get, uint64(5), "what is not missed is not asked for: once after a watch began")
	})
}

// A session that this Keeper has given up may stand in the store for a while, and something
// may land under it: it is looked at until the store says that it is gone.
func TestWhatLandsUnderAnEndedSessionIsFound(t *testing.T) {
	onOne(t, func(t *testing.T, db *memory.Store, a *node) {
		a.hold("mine")
		rec, _ := standing(t, db, "mine")
		of := store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.ApplyThenFail}) // it lives on, there
		time.Sleep(ttl)
		a.store.SetRule(nil)
		outs, err := db.Acquire(t.Context(), of, []store.Claim{{Name: "late", Nonce: 1}})
		require.NoError(t, err)
		require.True(t, outs[0].OK)
		for range 5 { // somebody keeps it alive there
			time.Sleep(ttl / 2)
			_, err = db.Renew(t.Context(), []store.Session{of})
			require.NoError(t, err)
		}
		requireFree(t, db, "late")
		requireHeld(t, db, "mine") // work may be running under it
		time.Sleep(4 * ttl)
		before := db.Stats().ListSession
		time.Sleep(30 * ttl)
		require.Zero(t, db.Stats().ListSession-before, "nothing is left to look at")
	})
}

// What another took, against the rules, is told as such.
func TestWhatIsNotUnderItsSessionIsAskedFor(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		gone, taken := a.hold("gone"), a.hold("taken")
		lostGone, lostTaken := watchLosses(gone), watchLosses(taken)
		time.Sleep(time.Second)
		a.rule(faultstore.Watch, faultstore.Fault{Kind: faultstore.Drop})
		a.store.CutWatches()
		for _, name := range []string{"gone", "taken"} {
			rec, _ := standing(t, store, name)
			remove(t, store, rec)
		}
		start(t, store, "b").hold("taken")
		time.Sleep(ttl + time.Second)
		lostGone.one(t, lease.ErrRecordGone)
		lostTaken.one(t, lease.ErrTakenOver)
	})
}

// A session that can't be listed is not asked about for ever, and hides no other then.
func TestASessionThatCantBeListedIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		db := &unlisted{Store: s}
		a := start(t, db, "a")
		h := a.hold("own", lease.WithOwnSession())
		rec, _ := standing(t, s, "own")
		a.hold("other")
		other, _ := standing(t, s, "other")
		db.id, db.err = rec.Session, errors.New("broken")
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault { // it ends, and is not seen to end
			if c.Op == faultstore.Renew && c.Session == rec.Session || c.Op == faultstore.CloseSession {
				return faultstore.Fault{Kind: faultstore.Drop}
			}
			return faultstore.Fault{}
		})
		time.Sleep(2 * ttl)
		require.False(t, h.CheckAlive())
		require.NoError(t, h.Close(t.Context()))
		land := func(name string) {
			of := store.Session{ID: other.Session, Owner: other.Owner, TTL: other.TTL}
			outs, err := s.Acquire(t.Context(), of, []store.Claim{{Name: name, Nonce: 1}})
			require.NoError(t, err)
			require.True(t, outs[0].OK)
		}
		time.Sleep(70 * ttl)
		land("later")
		time.Sleep(4 * ttl)
		requireFree(t, s, "later")
		asked := db.asked
		time.Sleep(10 * ttl)
		require.Equal(t, asked, db.asked, "it is not asked about any more")
	})
}

// unlisted answers the listing of one session with an error.
type unlisted struct {
	*memory.Store
	id    store.SessionID
	err   error
	asked int
}

func (s *unlisted) List(ctx context.Context, q store.Query) iter.Seq2[lease.Record, error] {
	if q.Session != s.id || s.err == nil {
		return s.Store.List(ctx, q)
	}
	s.asked++
	return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, s.err) }
}

// A listing that was broken off is none, also if the store does not say so.
func TestAListingThatWasBrokenOffIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, &silent{s}, "a", logged)
		a.hold("mine")
		time.Sleep(10 * ttl)
		require.Equal(t, 1, logs.FilterMessageSnippet("listing for reconciliation fails").Len())
	})
}

// silent lists sessions until it is told to end, and says nothing then.
type silent struct{ *memory.Store }

func (s *silent) List(ctx context.Context, _ store.Query) iter.Seq2[lease.Record, error] {
	return func(func(lease.Record, error) bool) { <-ctx.Done() }
}

// newer is the incarnation of a writer of what this version can't read.
const newer = "of a newer format"

// spoilt is a store in which the records of one incarnation can't be read: it
// tells of them as of what is no record.
type spoilt struct{ *memory.Store }

func unread(r lease.Record) lease.Record {
	if r.Owner.Incarnation == newer {
		return lease.Record{Name: r.Name}
	}
	return r
}

func (s spoilt) Acquire(ctx context.Context, x store.Session, claims []store.Claim) ([]store.Outcome, error) {
	outs, err := s.Store.Acquire(ctx, x, claims)
	for i := range outs {
		if outs[i].Record.Owner.Incarnation == newer {
			outs[i] = store.Outcome{Err: lease.ErrBadRecord}
		}
	}
	return outs, err
}

func (s spoilt) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	recs, err := s.Store.Get(ctx, names...)
	for i := range recs {
		recs[i] = unread(recs[i])
	}
	return recs, err
}

func (s spoilt) List(ctx context.Context, q store.Query) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for r, err := range s.Store.List(ctx, q) {
			if r = unread(r); err == nil && r.Token == 0 {
				err = lease.ErrBadRecord
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (s spoilt) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for ev, err := range s.Store.Watch(ctx, of) {
			if ev.Kind == store.EventPut && ev.Record.Owner.Incarnation == newer {
				ev = store.Event{Kind: store.EventBad, Record: unread(ev.Record)}
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// spoil puts something under the names that this version can't read; mend takes it
// away.
func (s spoilt) spoil(t testing.TB, names ...string) (mend func()) {
	x := store.Session{ID: 77, Owner: lease.Owner{ID: "newer", Incarnation: newer}, TTL: 24 * time.Hour}
	_, err := s.OpenSession(context.Background(), x)
	require.NoError(t, err)
	for _, name := range names {
		outs, err := s.Store.Acquire(context.Background(), x, []store.Claim{{Name: name, Nonce: 1}})
		require.NoError(t, err)
		require.True(t, outs[0].OK)
	}
	return func() { require.NoError(t, s.CloseSession(context.Background(), x)) }
}

// spoiltStores are such a store, more and less able.
func spoiltStores(t *testing.T, f func(t *testing.T, s spoilt, store store.Store)) {
	each(t, map[string]func(spoilt) store.Store{
		"everything is listed": func(s spoilt) store.Store { return sessionless(s) },
		"sessions are listed":  func(s spoilt) store.Store { return s },
		"nothing is told":      func(s spoilt) store.Store { return blind(s) },
		"nor listed":           func(s spoilt) store.Store { return listless{s} },
	}, func(t *testing.T, store *memory.Store, less func(spoilt) store.Store) {
		f(t, spoilt{store}, less(spoilt{store}))
	})
}

// What is no record, or of a newer format, holds its name, and no other: who waits for it goes
// on waiting, until it is gone.
func TestABadRecordIsHeld(t *testing.T) {
	spoiltStores(t, func(t *testing.T, s spoilt, store store.Store) {
		mend := s.spoil(t, "bad")
		a := start(t, store, "a")
		h := a.lease("bad")
		_, err := h.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrBadRecord)
		_, ok, err := h.Holder(t.Context())
		require.False(t, ok)
		require.ErrorIs(t, err, lease.ErrBadRecord)
		require.ErrorContains(t, err, `"bad"`)
		_, err = a.Get(t.Context(), "bad")
		require.ErrorIs(t, err, lease.ErrBadRecord)
		a.hold("good")
		_, err = a.Get(t.Context(), "good")
		require.NoError(t, err)
		free := make(chan time.Time, 1)
		h.OnFree(func() { free <- time.Now() })
		require.ErrorIs(t, h.Wait(within(t, 20*ttl)), context.DeadlineExceeded)
		require.Empty(t, free, "it never was")
		mended := time.Now()
		mend()
		require.LessOrEqual(t, (<-free).Sub(mended), 10*time.Second)
		mustWin(t, h)
	})
}

// A watch that is begun anew does not take for gone what can't be read any more.
func TestAFollowedRecordThatIsNoneAnyMoreIsNotGone(t *testing.T) {
	spoiltStores(t, func(t *testing.T, s spoilt, store store.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		h := a.hold("team/x")
		var seen told
		stop, err := b.Watch("team/", seen.add)
		if _, ok := store.(listless); ok {
			require.ErrorIs(t, err, lease.ErrUnsupported)
			return
		}
		require.NoError(t, err)
		defer stop()
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"+team/x", "synced"}, seen.take())
		b.store.Partition()
		require.NoError(t, h.Release(t.Context()))
		mend := s.spoil(t, "team/x")
		time.Sleep(time.Second)
		b.store.Heal()
		time.Sleep(5 * ttl)
		require.Equal(t, []string{"bad team/x"}, seen.take(), "told once, and not as a deletion")
		mend()
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"-team/x"}, seen.take())
	})
}

// A value of another program in the place of a record ends that term, and no other:
// it has no token, which is no token that went back.
func TestWhatIsNoRecordIsNoSetback(t *testing.T) {
	spoiltStores(t, func(t *testing.T, s spoilt, db store.Store) {
		a := start(t, db, "a")
		bad, good := a.lease("bad"), a.lease("good")
		mustWin(t, bad)
		mustWin(t, good)
		rec, ok, err := bad.Holder(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		_, err = s.Release(t.Context(), []store.Held{rec.Held()})
		require.NoError(t, err)
		mend := s.spoil(t, "bad")
		time.Sleep(5 * ttl)
		require.False(t, bad.CheckAlive())
		require.True(t, good.CheckAlive())
		require.NoError(t, a.Setback())
		mend()
	})
}
