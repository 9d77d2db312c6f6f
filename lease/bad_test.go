package lease_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

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
	for name, less := range map[string]func(spoilt) store.Store{
		"everything is listed": func(s spoilt) store.Store { return sessionless(s) },
		"sessions are listed":  func(s spoilt) store.Store { return s },
		"nothing is told":      func(s spoilt) store.Store { return blind(s) },
		"nor listed":           func(s spoilt) store.Store { return listless{s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) { f(t, spoilt{store}, less(spoilt{store})) })
		})
	}
}

// What is no record, or of a newer format, holds its name: who waits for it goes
// on waiting, until it is gone.
func TestABadRecordIsHeld(t *testing.T) {
	spoiltStores(t, func(t *testing.T, s spoilt, store store.Store) {
		mend := s.spoil(t, "bad")
		a := start(t, store, "a")
		h := a.lease("bad")
		_, err := h.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrBadRecord)
		_, _, err = h.Holder(t.Context())
		require.ErrorIs(t, err, lease.ErrBadRecord)
		require.ErrorContains(t, err, `"bad"`)
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
