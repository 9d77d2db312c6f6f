package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

func TestWhatNoParentMayBe(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b, elsewhere := start(t, store, "a"), start(t, store, "b"), start(t, memory.New(), "a")
		closed := a.lease("closed")
		require.NoError(t, closed.Close(t.Context()))
		for says, parent := range map[string]*lease.Handle{
			"lease.WithParent: invalid: nil, must be a lease of this keeper":              nil,
			"lease.WithParent: invalid: a lease made by nobody":                           {},
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
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
			to, err := b.lease("parent").Offer(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, parent.Transfer(t.Context(), to), lease.ErrChildHeld)
			return lease.ErrParentLost
		},
		"its record deleted": func(t *testing.T, a, _ *node, parent *lease.Handle) error {
			time.Sleep(time.Millisecond) // a look that begins at the moment of the win says nothing of it
			r, ok := standing(t, a.store, "parent")
			require.True(t, ok)
			_, err := a.store.Release(t.Context(), []lease.Held{r.Held()})
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
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
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

func TestAChildIsWonOnlyUnderItsParent(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		parent := a.lease("parent")
		child := a.lease("child", lease.WithParent(parent))
		won, err := child.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrParentLost)
		require.NotErrorIs(t, err, lease.ErrUnknown, "nothing was sent")
		require.Zero(t, store.Stats().Acquire)

		mustWin(t, parent)
		mustWin(t, child)
		releasedBefore(t, parent)
		r, ok := standing(t, store, "child")
		require.True(t, ok, "work may be running under it, so its record stays")
		mustNotWin(t, b.lease("child"))
		mustWin(t, parent)
		mustWin(t, child)
		again, ok := standing(t, store, "child")
		require.True(t, ok)
		require.Greater(t, again.Token, r.Token, "a new term, of the parent's new one")

		releasedBefore(t, parent)
		won, err = child.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrParentLost)
		time.Sleep(ttl + time.Second)
		_, ok = standing(t, store, "child")
		require.False(t, ok, "who asked anew has nothing running under what stood")
	})
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

// TestSettlingKeepsTheCondition: what settles an unknown outcome is sent under the same
// ownership of the parent as what went before, and the store decides.
func TestSettlingKeepsTheCondition(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		seen := &claims{Store: store}
		a := start(t, seen, "a")
		parent := a.hold("parent")
		want, _ := standing(t, store, "parent")
		child := a.lease("child", lease.WithParent(parent))
		failures := 3
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Acquire && failures > 0 {
				failures--
				return faultstore.Fault{Kind: faultstore.ApplyThenFail}
			}
			return faultstore.Fault{}
		})
		mustWin(t, child)
		n := 0
		for _, c := range seen.all {
			if c.Name == "child" {
				require.Equal(t, want.Held(), c.While)
				n++
			} else {
				require.Zero(t, c.While)
			}
		}
		require.GreaterOrEqual(t, n, 4)
	})
}

// claims is a store that notes what is claimed.
type claims struct {
	*memory.Store
	all []lease.Claim
}

func (c *claims) Acquire(ctx context.Context, s lease.Session, asked []lease.Claim) ([]lease.Outcome, error) {
	c.all = append(c.all, asked...)
	return c.Store.Acquire(ctx, s, asked)
}

// TestAChildIsTransferred: its record moves, and is adopted under the parent of who adopts.
func TestAChildIsTransferred(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b := start(t, store, "a"), start(t, store, "b")
		child := a.hold("child", lease.WithParent(a.hold("node/a")))
		under := b.hold("node/b")
		target := b.lease("child", lease.WithParent(under))
		offer, err := target.Offer(t.Context())
		require.NoError(t, err)
		require.NoError(t, child.Transfer(t.Context(), offer))
		won, err := target.Adopt(t.Context(), offer)
		require.NoError(t, err)
		require.True(t, won)
		term, ok := target.Term()
		require.True(t, ok)
		require.True(t, term.(lease.Continuing).Adopted(offer))
		releasedBefore(t, under)
		require.False(t, term.CheckAlive())

		// Who has no parent by then adopts nothing.
		require.NoError(t, target.Release(t.Context()))
		mustWin(t, child)
		offer, err = target.Offer(t.Context())
		require.NoError(t, err)
		require.NoError(t, child.Transfer(t.Context(), offer))
		won, err = target.Adopt(t.Context(), offer)
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrParentLost)
		time.Sleep(2*ttl + time.Second)
		_, ok = standing(t, store, "child")
		require.False(t, ok, "nor does it keep it")
	})
}

// TestManyChildren: a parent's end is told to each, and closed ones are forgotten.
func TestManyChildren(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		parent := a.hold("parent")
		var all []*losses
		for i := range 300 {
			h := a.hold(fmt.Sprintf("child/%d", i), lease.WithParent(parent))
			if i%3 == 0 {
				require.NoError(t, h.Close(t.Context()))
				continue
			}
			all = append(all, watchLosses(h))
		}
		releasedBefore(t, parent)
		for _, l := range all {
			l.one(t, lease.ErrParentLost)
		}
	})
}
