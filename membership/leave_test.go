package membership_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// The announcement is kept, and not forgotten by those who saw it, until the
// member is gone.
func TestLeaving(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.member("a"), w.member("b")
		a.announce()
		a.announce() // again
		late := w.node("c").join()
		require.Equal(t, "-a b c*", late.sees(), "who comes later knows it")
		time.Sleep(3 * ttl)
		require.Equal(t, "-a b* c", b.sees())
		var back []string
		b.members.hook = func(ch membership.MembersChanged) {
			if m, ok := ch.Now.Find("a"); ok && !m.Leaving {
				back = append(back, "a")
			}
		}
		a.leave()
		require.Empty(t, back)
		require.Equal(t, "b* c", b.sees())

		// The same Keeper may join again, and is not leaving then.
		a.join().stand()
		require.Equal(t, "a b* c", b.sees())
	})
}

// Leave takes its steps one after the other, however long the store takes.
func TestLeaveInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.member("a")
		inc := a.keeper.Owner().Incarnation
		delays := map[string]time.Duration{"leader/g": 2 * time.Second, "member/g/a/" + inc: 1500 * time.Millisecond, "leaving/g/a/" + inc: time.Second}
		a.store.SetRule(func(c faultstore.Call) (f faultstore.Fault) {
			if c.Op == faultstore.Release || c.Op == faultstore.Acquire {
				require.Len(t, c.Names, 1, "each on its own")
				f = faultstore.Fault{Kind: faultstore.Delay, Delay: delays[c.Names[0]]}
			}
			return f
		})
		history := w.watch()
		began := time.Now()
		a.leave()
		require.Equal(t, []string{"+leaving/g/a/" + inc, "-leader/g", "-member/g/a/" + inc, "-leaving/g/a/" + inc}, history())
		require.Equal(t, 5500*time.Millisecond, time.Since(began))
	})
}

// Leave is bounded, by its context and by the Keeper's bounds, whatever the store
// does; what it could not confirm it says.
func TestLeaveIsBounded(t *testing.T) {
	for name, limit := range map[string]time.Duration{"by its context": 3 * time.Second, "by the Keeper": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, b := w.member("a"), w.member("b")
				a.store.Partition()
				ctx := t.Context()
				if limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				began := time.Now()
				err := a.group.Leave(ctx)
				require.ErrorIs(t, err, lease.ErrUnknown)
				if limit > 0 {
					require.Equal(t, limit, time.Since(began))
				} else {
					require.LessOrEqual(t, time.Since(began), 6*ttl)
				}
				require.False(t, a.leads())
				_, ok := a.group.Self()
				require.False(t, ok)
				until(t, 2*ttl, "b leads", b.leads)
				require.Equal(t, "b*", b.sees())
				a.heal()
				time.Sleep(4 * ttl)
				require.Len(t, w.standing(), 2)
			})
		})
	}
}

// The end of the Keeper ends the membership: others are told, and nothing is
// tried again.
func TestKeeperClosed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.member("a"), w.member("b")
		require.NoError(t, a.keeper.Close(t.Context()), "the group gives up what it holds")
		synctest.Wait()
		require.Equal(t, "b*", b.sees())
		require.True(t, b.leads())
		require.False(t, a.leads())
		events := of[membership.Lost](a.stream.all())
		require.Len(t, events, 1)
		require.ErrorIs(t, events[0].Loss.Reason, lease.ErrClosed)
		require.ErrorIs(t, a.group.AnnounceLeaving(t.Context()), nil)
		require.NoError(t, a.group.Leave(t.Context()))
	})
}

// An announcement that fails is said, tried on, and leadership is given up anyway.
func TestAnnouncementFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.member("a"), w.member("b")
		a.store.SetRule(func(c faultstore.Call) (f faultstore.Fault) {
			if c.Op == faultstore.Acquire {
				f.Kind = faultstore.Drop
			}
			return f
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.group.AnnounceLeaving(ctx), context.DeadlineExceeded)
		synctest.Wait()
		require.True(t, b.leads())
		require.Equal(t, "a b*", b.sees())
		a.store.SetRule(nil)
		until(t, 2*time.Second, "announced", func() bool { return b.sees() == "-a b*" })
	})
}
