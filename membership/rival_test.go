package membership_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func at(address string) func(*lease.Config) {
	return func(c *lease.Config) { c.Address = address }
}

// A node whose ID another has that lives does not join, and disturbs the other not for
// long.
func TestAnIDThatIsInUseIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.node("a", at("one:1")), w.node("a", at("two:1"))
		g := must(membership.Join(t.Context(), one.keeper, "g"))(t)
		require.NoError(t, g.Health(t.Context()))
		began := time.Now()
		_, err := membership.Join(t.Context(), two.keeper, "g")
		require.ErrorIs(t, err, membership.ErrIDInUse)
		require.ErrorContains(t, err, `"one:1"`)
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(time.Second)
		require.NoError(t, g.Health(t.Context()))
		self, ok := g.Self()
		require.True(t, ok)
		require.Equal(t, "one:1", self.Address)
		require.NoError(t, g.Leave(t.Context()))
		require.ErrorIs(t, g.Health(t.Context()), lease.ErrClosed)

		recs := must(w.store.Get(t.Context(), "objection/g/a/"+two.keeper.Owner().Incarnation))(t)
		require.Empty(t, recs, "the objection is taken back")
		began = time.Now()
		g, err = membership.Join(t.Context(), two.keeper, "g")
		require.NoError(t, err, "it has left")
		require.Zero(t, time.Since(began))
		require.NoError(t, g.Leave(t.Context()))
	})
}

// One that died, or does not answer, is replaced after a moment; when it is back it
// says that it is superseded.
func TestALifeThatDoesNotAnswerIsSuperseded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.node("a", at("one:1")), w.node("a", at("two:1"))
		g := must(membership.Join(t.Context(), one.keeper, "g"))(t)
		one.store.Partition()
		began := time.Now()
		h := must(membership.Join(t.Context(), two.keeper, "g"))(t)
		require.LessOrEqual(t, time.Since(began), time.Second+20*time.Millisecond)
		one.store.Heal()
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, g.Health(t.Context()), membership.ErrIDInUse)
		require.ErrorIs(t, g.Superseded(), membership.ErrIDInUse)
		require.ErrorContains(t, g.Health(t.Context()), `"two:1"`)
		require.NoError(t, h.Health(t.Context()))
		require.NoError(t, h.Leave(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, g.Health(t.Context()), "it is listed again")
		require.NoError(t, g.Superseded())

		one.store.Partition()
		time.Sleep(2 * ttl)
		require.Error(t, g.Health(t.Context()), "it is no member")
		one.store.Heal()
		require.NoError(t, g.Leave(context.Background()))
	})
}

// A node that leaves takes its objection back before Leave returns, however slow the store
// is.
func TestLeavingWaitsForTheObjectionToBeTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.node("a", at("one:1")), w.node("a", at("two:1"))
		g := must(membership.Join(t.Context(), one.keeper, "g"))(t)
		one.store.Partition()
		h := must(membership.Join(t.Context(), two.keeper, "g"))(t)
		one.store.Heal()
		time.Sleep(3 * time.Second)
		objection := "objection/g/a/" + two.keeper.Owner().Incarnation
		require.Contains(t, w.standing(), objection)
		one.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Release && slices.Contains(c.Names, objection) {
				return faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second}
			}
			return faultstore.Fault{}
		})
		began := time.Now()
		require.NoError(t, g.Leave(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
		require.NotContains(t, w.standing(), objection)
		require.NoError(t, h.Leave(t.Context()))
	})
}
