package membership_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// TestLeadershipEndsWithMembership: whoever learns of the one finds the other ended.
func TestLeadershipEndsWithMembership(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.member("a")
		until(t, time.Second, "a leads", a.leads)
		member, ok := a.group.Term()
		require.True(t, ok)
		lead, ok := a.election.Term()
		require.True(t, ok)
		was := make(chan bool, 1)
		context.AfterFunc(member.Context(), func() { was <- lead.CheckAlive() })
		time.Sleep(time.Millisecond)
		recs := must(w.store.Get(t.Context(), member.Name()))(t)
		must(w.store.Release(t.Context(), []store.Held{recs[0].Held()}))(t)
		require.False(t, <-was)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(lead.Context()), lease.ErrParentLost)
		until(t, 2*time.Second, "a leads again", a.leads)
	})
}

// TestWhatHangsOnAMembership: a lease of the user's ends with it, and Leave says if it is not
// released. A membership that was lost begins anew all the same.
func TestWhatHangsOnAMembership(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.member("a")
		job := must(a.keeper.Lease("job", a.group.AsParent()))(t)
		won := must(job.Acquire(t.Context()))(t)
		require.True(t, won)
		lost := make(chan error, 2)
		job.OnLost(func(l lease.Loss) { lost <- l.Reason })

		a.store.Partition()
		time.Sleep(ttl)
		require.ErrorIs(t, <-lost, lease.ErrExpired, "the same session")
		a.heal()
		until(t, 3*time.Second, "a is back, though nobody released the job", func() bool { _, ok := a.group.Self(); return ok })

		won = must(job.Acquire(t.Context()))(t)
		require.True(t, won)
		began := time.Now()
		err := a.group.Leave(context.Background())
		require.ErrorIs(t, err, lease.ErrChildHeld)
		require.ErrorIs(t, <-lost, lease.ErrParentLost)
		require.LessOrEqual(t, time.Since(began), 4*ttl)
		require.NoError(t, job.Release(t.Context()))
		synctest.Wait()
		for rec, err := range w.store.List(t.Context(), store.Query{}) {
			require.NoError(t, err)
			require.Fail(t, "it stands", "%+v", rec)
		}
		_, err = a.keeper.Lease("late", a.group.AsParent())
		require.True(t, errors.Is(err, lease.ErrInvalid) && errors.Is(err, lease.ErrClosed), "%v", err)
	})
}
