package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestWhatNoParentMayBe(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b, elsewhere := start(t, store, "a"), start(t, store, "b"), start(t, memory.New(), "a")
		closed := a.lease("closed")
		require.NoError(t, closed.Close(t.Context()))
		for says, parent := range map[string]*lease.Handle{
			"lease.WithParent: invalid: nil, must be a lease of this keeper":              nil,
			"lease.WithParent: invalid: the zero value of a lease":                        {},
			`lease.WithParent: invalid: "p" is a lease of keeper b (incarnation`:          b.lease("p"),
			`lease.WithParent: invalid: "e" is a lease of keeper a (incarnation`:          elsewhere.lease("e"),
			`store memory), must be of this keeper (incarnation ` + a.Owner().Incarnation: elsewhere.lease("e2"),
			`lease.WithParent: invalid: "closed" was closed`:                              closed,
		} {
			_, err := a.Lease("child", lease.WithParent(parent))
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, says)
		}
		require.NoError(t, a.lease("child").Close(t.Context()), "the name stays free")

	})
}

// releasedBefore releases a parent whose children are not: their terms end, and its record stays.
func releasedBefore(t *testing.T, parent *lease.Handle) {
	t.Helper()
	ctx := within(t, time.Second)
	require.ErrorIs(t, parent.Release(ctx), lease.ErrChildHeld)
}

// TestAChildEndsWithItsParent: in whatever way, at the same moment, and with its children.
func TestAChildEndsWithItsParent(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, a, b *node, parent *lease.Handle) (reason error){
		"released": func(t *testing.T, _, _ *node, parent *lease.Handle) error {
			releasedBefore(t, parent)
			return lease.ErrParentLost
		},
		"closed": func(t *testing.T, _, _ *node, parent *lease.Handle) error {
			require.ErrorIs(t, parent.Close(t.Context()), lease.ErrChildHeld)
			return lease.ErrParentLost
		},
		"transferred": func(t *testing.T, _, b *node, parent *lease.Handle) error {
			to := offerOf(t, b.lease("parent"))
			require.ErrorIs(t, parent.Transfer(t.Context(), to), lease.ErrChildHeld)
			return lease.ErrParentLost
		},
		"its record deleted": func(t *testing.T, a, _ *node, parent *lease.Handle) error {
			time.Sleep(time.Millisecond) // a look that begins at the moment of the win says nothing of it
			r, ok := standing(t, a.store, "parent")
			require.True(t, ok)
			_, err := a.store.Release(t.Context(), []store.Held{r.Held()})
			require.NoError(t, err)
			time.Sleep(ttl + time.Second) // it is told, or looked for
			return lease.ErrParentLost
		},
		"expired": func(t *testing.T, a, _ *node, _ *lease.Handle) error {
			a.store.Partition()
			time.Sleep(ttl)
			return lease.ErrExpired
		},
		"the Keeper closed": func(t *testing.T, a, _ *node, _ *lease.Handle) error {
			ctx := within(t, time.Millisecond)
			require.Error(t, a.Close(ctx))
			return lease.ErrClosed
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				parent := a.hold("parent")
				beside := a.hold("beside")
				child := a.hold("child", lease.WithParent(parent))
				grandchild := a.hold("grandchild", lease.WithParent(child))
				terms := []lease.Term{}
				var lost []*losses
				for _, h := range []*lease.Handle{child, grandchild} {
					term, ok := h.Term()
					require.True(t, ok)
					terms, lost = append(terms, term), append(lost, watchLosses(h))
				}
				reason := end(t, a, b, parent)
				require.False(t, parent.CheckAlive())
				for i, term := range terms {
					require.False(t, term.CheckAlive(), i)
					<-term.Context().Done()
					require.ErrorIs(t, context.Cause(term.Context()), reason)
					lost[i].one(t, reason)
				}
				require.False(t, child.CheckAlive())
				require.Equal(t, errors.Is(reason, lease.ErrParentLost), beside.CheckAlive(), "no other ends with it")
			})
		})
	}
}

// TestAnAcquisitionThatOutlastsItsParent is given back, whatever the store said.
func TestAnAcquisitionThatOutlastsItsParent(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.Delay, faultstore.ReplyLate, faultstore.ApplyThenFail} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a := start(t, store, "a")
				parent := a.hold("parent")
				child := a.lease("child", lease.WithParent(parent))
				a.rule(faultstore.Acquire, faultstore.Fault{Kind: kind, Delay: time.Second})
				type answer struct {
					won bool
					err error
				}
				answers := make(chan answer, 1)
				go func() {
					won, err := child.Acquire(context.WithoutCancel(t.Context()))
					answers <- answer{won, err}
				}()
				time.Sleep(500 * time.Millisecond)
				require.NoError(t, parent.Release(t.Context()))
				got := <-answers
				require.False(t, got.won)
				if kind == faultstore.ApplyThenFail { // no answer ever came
					require.ErrorIs(t, got.err, lease.ErrUnknown)
				} else {
					require.ErrorIs(t, got.err, lease.ErrParentLost)
				}
				require.False(t, child.CheckAlive())
				a.store.SetRule(nil)
				time.Sleep(ttl + 2*time.Second)
				_, ok := standing(t, store, "child")
				require.False(t, ok, "nobody has it, and nobody renews it")
				mustWin(t, parent)
				mustWin(t, child)
			})
		})
	}
}

// TestAChildsTrustIsNeverLongerThanItsParents: by the clock alone, with no loop that runs.
func TestAChildsTrustIsNeverLongerThanItsParents(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		parent := a.hold("parent", lease.WithTTL(2*time.Second))
		child := a.hold("child", lease.WithParent(parent), lease.WithTTL(time.Minute))
		a.clock.Freeze() // the process stands still, and its timers
		a.store.Partition()
		time.Sleep(3 * time.Second)
		a.clock.Thaw()
		require.False(t, child.CheckAlive(), "its own session has a minute")
		require.False(t, parent.CheckAlive())
	})
}
