package settler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// The settler itself, over a store that is right, behind a link that is not.

// lasting is a TTL long enough to need no renewal.
const lasting = 10 * time.Minute

const (
	disturbedTTL = 5 * time.Second
	// stall is generous for a call that meets a silence, and longest the longest silence.
	stall   = 5 * time.Second
	longest = 2500 * time.Millisecond
)

// hasty is the patience of settlers among silences.
var hasty = Patience{Attempt: 400 * time.Millisecond, Pause: 20 * time.Millisecond, All: 25 * time.Second}

// ids gives every session and nonce its own number.
var ids atomic.Int64

// session opens one for direct use of a store, with no renewals.
func session(t *testing.T, s store.Store, owner string) store.Session {
	t.Helper()
	sess := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting,
		Owner: store.Owner{ID: owner, Incarnation: fmt.Sprintf("%s-%d", owner, ids.Add(1))}}
	g, err := s.OpenSession(t.Context(), sess)
	require.NoError(t, err)
	require.NoError(t, g.Err)
	sess.TTL = g.TTL
	return sess
}

// win acquires one name, which must be free.
func win(t *testing.T, s store.Store, sess store.Session, name string) store.Record {
	t.Helper()
	outs, err := s.Acquire(t.Context(), sess, []store.Claim{{Name: name, Nonce: uint64(ids.Add(1))}})
	require.NoError(t, err)
	require.True(t, outs[0].OK, "%+v", outs[0])
	return outs[0].Record
}

func settlerOn(f *faultstore.Store, known *Ledger) *Store {
	return &Store{inner: f, ledger: known,
		patience: Patience{Attempt: time.Second, Pause: 2 * time.Millisecond, All: 25 * time.Second}}
}

// beyondSettling: nothing can make up for a watch that broke off, nor tell the token
// under which a record was moved that is gone, nor which of two requests ended one ownership:
// to release it, or to supersede it.
func beyondSettling(tb storetest.TB, c faultstore.Call) bool {
	return c.Op == faultstore.Watch || c.Op == faultstore.Release && strings.HasSuffix(tb.Name(), "while/superseding") ||
		strings.HasSuffix(tb.Name(), "transfer/against-close") || strings.Contains(tb.Name(), "/hands/")
}

// TestSettlerPassesTheKit: of all requests one in fifteen gets no answer, and half
// of these land after their caller has turned to something else.
func TestSettlerPassesTheKit(t *testing.T) {
	var counts Tally
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		f, known := faultstore.Wrap(memory.New()), NewLedger(&counts)
		f.SetRule(func(c faultstore.Call) faultstore.Fault {
			kinds := []faultstore.Kind{faultstore.Drop, faultstore.LandLate, faultstore.LandLate, faultstore.ApplyThenFail}
			if beyondSettling(tb, c) {
				kinds = kinds[:1]
			}
			if rand.IntN(15) > 0 {
				return faultstore.Fault{}
			}
			return faultstore.Fault{Kind: kinds[rand.IntN(len(kinds))], Delay: time.Duration(rand.IntN(20_000)) * time.Microsecond}
		})
		return func() store.Store { return settlerOn(f, known) }
	}, storetest.FakeTime(), storetest.ExpirySlack(time.Second))
	t.Log(&counts)
	require.Greater(t, counts.Settled.Load(), int64(500))
	require.Positive(t, counts.Evident.Load())
	require.Positive(t, counts.Eliminated.Load())
	require.Positive(t, counts.Late.Load())
}

// TestSettlerPassesTheKitAmongSilences: now and then nothing is answered for some
// seconds, and of what was asked then much lands: at once, or when its caller has
// turned to something else.
func TestSettlerPassesTheKitAmongSilences(t *testing.T) {
	var counts Tally
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		f, known := faultstore.Wrap(memory.New()), NewLedger(&counts)
		var mu sync.Mutex
		var end time.Time
		left := time.Minute              // sessions that are to outlast a case outlast this
		often := 1 << (4 + rand.IntN(6)) // one call in so many begins a silence
		f.SetRule(func(c faultstore.Call) faultstore.Fault {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			if end.Before(now) {
				if left <= 0 || now.Sub(end) < time.Second || rand.IntN(often) > 0 {
					return faultstore.Fault{}
				}
				long := time.Duration(rand.Int64N(int64(longest)))
				left, end = left-long, now.Add(long)
			}
			kinds := []faultstore.Kind{faultstore.Drop, faultstore.LandLate, faultstore.ApplyThenFail, faultstore.Delay}
			if beyondSettling(tb, c) {
				kinds = kinds[:1]
			}
			return faultstore.Fault{Kind: kinds[rand.IntN(len(kinds))], Hang: c.Op != faultstore.Watch,
				Delay: end.Sub(now) + time.Duration(rand.Int64N(int64(time.Second/2)))}
		})
		return func() store.Store {
			return New(f, known, hasty)
		}
	}, storetest.FakeTime(), storetest.TTL(disturbedTTL), storetest.ExpirySlack(disturbedTTL+2*time.Second), storetest.Disturbed(stall))
	t.Log(&counts)
	require.Greater(t, counts.Settled.Load(), int64(50))
	require.Positive(t, counts.Evident.Load())
}

// bench is a settler, its link, and what passes by both.
type bench struct {
	*Store
	t      *testing.T
	direct *memory.Store
	faults *faultstore.Store
}

// onBench runs f on fake time.
func onBench(t *testing.T, f func(t *testing.T, b bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := bench{t: t, direct: memory.New()}
		b.faults = faultstore.Wrap(b.direct)
		b.Store = settlerOn(b.faults, NewLedger(new(Tally)))
		f(t, b)
	})
}

// next lets the next requests meet these faults, one each, and later ones none.
func (b bench) next(op faultstore.Op, faults ...faultstore.Fault) {
	var mu sync.Mutex
	b.faults.SetRule(func(c faultstore.Call) (next faultstore.Fault) {
		mu.Lock()
		defer mu.Unlock()
		if c.Op == op && len(faults) > 0 {
			next, faults = faults[0], faults[1:]
		}
		return next
	})
}

func (b bench) release(r store.Record) (bool, error) {
	outs, err := b.Release(b.t.Context(), []store.Held{r.Held()})
	if err != nil {
		return false, err
	}
	return outs[0].OK, nil
}

var (
	dropped = faultstore.Fault{Kind: faultstore.Drop}
	unsaid  = faultstore.Fault{Kind: faultstore.ApplyThenFail}
	tardy   = faultstore.Fault{Kind: faultstore.LandLate, Delay: time.Second}
)

func TestSettlerKnowsItsClaim(t *testing.T) {
	onBench(t, func(t *testing.T, b bench) {
		sess := session(t, b, "a")
		b.next(faultstore.Acquire, unsaid, dropped)
		r := win(t, b, sess, "job")
		recs, err := b.direct.Get(t.Context(), "job")
		require.NoError(t, err)
		require.Equal(t, r.Held(), recs[0].Held())
		require.EqualValues(t, 1, b.ledger.tally.Evident.Load())

		// The same nonce again is another claim, and refused.
		b.next(faultstore.Acquire, dropped)
		outs, err := b.Acquire(t.Context(), sess, []store.Claim{{Name: "job", Nonce: r.Nonce}})
		require.NoError(t, err)
		require.False(t, outs[0].OK)
	})
}

func TestSettlerKnowsItsRelease(t *testing.T) {
	onBench(t, func(t *testing.T, b bench) {
		sess := session(t, b, "a")
		first := win(t, b, sess, "job")
		b.next(faultstore.Release, unsaid)
		ok, err := b.release(first)
		require.NoError(t, err)
		require.True(t, ok, "nothing else can have removed it")

		b.next(faultstore.Release, dropped)
		ok, err = b.release(first)
		require.NoError(t, err)
		require.False(t, ok, "it was over before")
	})
}

func TestSettlerOfSeveralReleasesOneCounts(t *testing.T) {
	for _, faults := range [][]faultstore.Fault{{unsaid, dropped}, {dropped, unsaid}, {dropped, dropped}, {tardy, unsaid, dropped}} {
		onBench(t, func(t *testing.T, b bench) {
			r := win(t, b, session(t, b, "a"), "job")
			b.next(faultstore.Release, faults...)
			var all sync.WaitGroup
			oks := make(chan bool, 3)
			for range cap(oks) {
				all.Go(func() {
					ok, err := b.release(r)
					require.NoError(t, err)
					oks <- ok
				})
			}
			all.Wait()
			close(oks)
			count := 0
			for ok := range oks {
				if ok {
					count++
				}
			}
			require.Equal(t, 1, count)
			b.faults.Wait()
		})
	}
}

// TestSettlerSaysNoMoreThanItKnows: where something else may have ended it, or
// another's request may, nothing is known.
func TestSettlerSaysNoMoreThanItKnows(t *testing.T) {
	for name, before := range map[string]func(b bench, sess store.Session, r store.Record){
		"its session was closed": func(b bench, sess store.Session, _ store.Record) {
			require.NoError(b.t, b.CloseSession(b.t.Context(), sess))
		},
		"its session may have expired": func(bench, store.Session, store.Record) { time.Sleep(lasting) },
		"another release had no time for an answer": func(b bench, _ store.Session, r store.Record) {
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Millisecond)
			defer cancel()
			b.next(faultstore.Release, faultstore.Fault{Kind: faultstore.ApplyThenFail, Hang: true})
			_, err := b.Release(ctx, []store.Held{r.Held()})
			require.Error(b.t, err)
		},
		"a claim to supersede it had no time for an answer": func(b bench, sess store.Session, r store.Record) {
			ctx, cancel := context.WithTimeout(b.t.Context(), time.Millisecond)
			defer cancel()
			b.next(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ApplyThenFail, Hang: true})
			_, err := b.Acquire(ctx, sess, []store.Claim{{Name: "job", Nonce: 7, Supersedes: r.Token}})
			require.Error(b.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(t *testing.T, b bench) {
				sess := session(t, b, "a")
				r := win(t, b, sess, "job")
				before(b, sess, r)
				b.next(faultstore.Release, dropped)
				_, err := b.release(r)
				require.ErrorIs(t, err, ErrUnsettled)
			})
		})
	}
}

// comesBack is a store in which a session stands right after it was closed, so many
// times: openings of it have landed.
type comesBack struct {
	Whole
	times int
	moved func() // if any, runs after a move, before its answer
}

func (c *comesBack) CloseSession(ctx context.Context, sess store.Session) error {
	if c.times--; c.times >= 0 {
		return nil
	}
	return c.Whole.CloseSession(ctx, sess)
}

func (c *comesBack) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	outs, err := c.Whole.Transfer(ctx, moves)
	if c.moved != nil {
		c.moved()
	}
	return outs, err
}

// TestSettlerKnowsOfSessionsThatComeBack: a session was closed, and a late opening brought it back. The
// settler calls a move to it unsettled. A move that began before the session was closed succeeds, and the
// record goes with the session.
func TestSettlerKnowsOfSessionsThatComeBack(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		onBench(t, func(t *testing.T, b bench) {
			r, to := win(t, b, session(t, b, "a"), "job"), store.Session{ID: 1 << 40, TTL: lasting, Owner: store.Owner{ID: "b", Incarnation: "b"}}
			inner := &comesBack{Whole: b.faults, times: 2} // for the owner, and once more
			b.inner = inner
			b.next(faultstore.OpenSession, unsaid)
			g, err := b.OpenSession(t.Context(), to)
			require.NoError(t, err)
			require.NoError(t, g.Err)
			shut := func() { require.NoError(t, b.CloseSession(t.Context(), to)) }
			if meanwhile {
				inner.times, inner.moved = 1, shut
			} else {
				shut()
			}

			outs, err := b.Transfer(t.Context(), []store.Transfer{{Held: r.Held(), To: store.Offer{
				Name: "job", Owner: to.Owner, Session: to.ID, TTL: to.TTL, Nonce: 9}}})
			if meanwhile {
				require.NoError(t, err)
				require.True(t, outs[0].OK, "%+v", outs[0])
			} else {
				require.ErrorIs(t, err, ErrUnsettled, "%+v", outs)
			}
			left, err := b.direct.Get(t.Context(), "job")
			require.NoError(t, err)
			require.Empty(t, left, "its session has come back for good")
		})
	}
}

// TestSettlerHidesWhatNobodyWaitsFor: a claim that lands when its caller has long
// won by another request, and given up what it won, is in nobody's way. But no
// more of them are taken for such than there were requests without an answer.
func TestSettlerHidesWhatNobodyWaitsFor(t *testing.T) {
	onBench(t, func(t *testing.T, b bench) {
		ctx, sess := t.Context(), session(t, b, "a")
		b.next(faultstore.Acquire, tardy)
		r := win(t, b, sess, "job")
		ok, err := b.release(r)
		require.NoError(t, err)
		require.True(t, ok)
		b.faults.Wait()

		landed, err := b.direct.Get(ctx, "job")
		require.NoError(t, err)
		require.Equal(t, r.Nonce, landed[0].Nonce)
		seen, err := b.Get(ctx, "job")
		require.NoError(t, err)
		require.Empty(t, seen)
		for rec, err := range b.List(ctx, store.Query{}) {
			t.Fatalf("listed: %+v, %v", rec, err)
		}
		for ev, err := range b.Watch(ctx, store.Scope{}) {
			require.NoError(t, err)
			require.Equal(t, store.EventSynced, ev.Kind)
			break
		}
		next := win(t, b, session(t, b, "b"), "job")
		require.Greater(t, next.Token, landed[0].Token)
		require.EqualValues(t, 1, b.ledger.tally.Late.Load())

		ok, err = b.release(next)
		require.NoError(t, err)
		require.True(t, ok)
		_, err = b.direct.Acquire(ctx, sess, []store.Claim{{Name: "job", Nonce: r.Nonce}})
		require.NoError(t, err)
		seen, err = b.Get(ctx, "job")
		require.NoError(t, err)
		require.Len(t, seen, 1, "one request was lost, and has landed")
	})
}
