package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestAcquireTermTellsTheTermOrTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
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

// The holder is told however many attempts it took, and a win whose answer was lost is a term.
func TestAcquireTermAfterLostAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		la, lb := a.lease("job"), b.lease("job")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		term, err := la.AcquireTerm(t.Context())
		require.NoError(t, err)
		require.Equal(t, token(t, la), term.Token())
		b.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.Drop})
		_, err = lb.AcquireTerm(t.Context())
		var held *lease.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, term.Token(), held.Record.Token)
		b.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Drop})
		_, err = lb.AcquireTerm(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NotErrorIs(t, err, lease.ErrHeld)
	})
}

// Who asks while another call is under way gets the term that this one wins.
func TestAcquireTermBehindAnother(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		l := a.lease("job")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		terms := make(chan lease.Term, 2)
		for range 2 {
			go func() {
				term, err := l.AcquireTerm(t.Context())
				assert.NoError(t, err)
				terms <- term
			}()
		}
		first, second := <-terms, <-terms
		require.Equal(t, token(t, l), first.Token())
		require.Equal(t, first, second)
	})
}

func TestKeeperGet(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		a.hold("job")
		want, _ := standing(t, store, "job")
		for _, n := range []*node{a, b} {
			rec, err := n.Get(t.Context(), "job")
			require.NoError(t, err)
			require.Equal(t, want, rec)
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

// What is no record is so for its own name alone.
func TestKeeperGetOfWhatIsNoRecord(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		s := spoilt{store}
		mend := s.spoil(t, "bad")
		a := start(t, s, "a")
		a.hold("good")
		_, err := a.Get(t.Context(), "bad")
		require.ErrorIs(t, err, lease.ErrBadRecord)
		_, ok, err := a.lease("bad").Holder(t.Context())
		require.ErrorIs(t, err, lease.ErrBadRecord)
		require.False(t, ok)
		_, err = a.Get(t.Context(), "good")
		require.NoError(t, err)
		mend()
		_, err = a.Get(t.Context(), "bad")
		require.ErrorIs(t, err, lease.ErrNotHeld)
	})
}

func TestGetAndAcquireTermOfNothing(t *testing.T) {
	var k lease.Keeper
	_, err := k.Get(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrInvalid)
	var h lease.Handle
	_, err = h.AcquireTerm(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid)
}
