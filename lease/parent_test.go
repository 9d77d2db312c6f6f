package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func TestWhatNoParentMayBe(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, b, elsewhere := start(t, store, "a"), start(t, store, "b"), start(t, memory.New(), "a")
		closed := a.lease("closed")
		require.NoError(t, closed.Close(t.Context()))
		for says, parent := range map[string]*lease.Handle{
			"lease.WithParent: invalid: nil, must be a lease of this keeper":              nil,
			"lease.WithParent: invalid: the zero value of a lease, must come from":        new(lease.Handle),
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
	each(t, map[string]func(t *testing.T, a, b *node, parent *lease.Handle) (reason error){
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
	}, func(t *testing.T, store *memory.Store,
		end func(t *testing.T, a, b *node, parent *lease.Handle) (reason error)) {
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
}

// TestAnAcquisitionThatOutlastsItsParent is given back, whatever the store said.
func TestAnAcquisitionThatOutlastsItsParent(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.Delay, faultstore.ReplyLate, faultstore.ApplyThenFail} {
		t.Run(kind.String(), func(t *testing.T) {
			onOne(t, func(t *testing.T, store *memory.Store, a *node) {
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
				requireFree(t, store, "child") // its last record has run out
				mustWin(t, parent)
				mustWin(t, child)
			})
		})
	}
}

// TestAChildsTrustIsNeverLongerThanItsParents: by the clock alone, with no loop that runs.
func TestAChildsTrustIsNeverLongerThanItsParents(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
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

// ordered is a store that notes which records were given up, in which order.
type ordered struct {
	*memory.Store
	mu   sync.Mutex
	gone []string
}

func (s *ordered) note(outs []store.Outcome, name func(int) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range outs {
		if o.OK {
			s.gone = append(s.gone, name(i))
		}
	}
}

func (s *ordered) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	outs, err := s.Store.Release(ctx, held)
	s.note(outs, func(i int) string { return held[i].Name })
	return outs, err
}

func (s *ordered) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	outs, err := s.Store.Transfer(ctx, moves)
	s.note(outs, func(i int) string { return moves[i].Name })
	return outs, err
}

func (s *ordered) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gone)
}

// stopAfter is an owner of h whose work needs d to stop once the term has ended.
func stopAfter(t *testing.T, h *lease.Handle, d time.Duration) {
	h.OnLost(func(lease.Loss) {
		time.Sleep(d)
		if err := h.Release(context.Background()); err != nil {
			t.Errorf("release of %s: %v", h.Name(), err)
		}
	})
}

// TestAParentIsGivenUpAfterItsChildren: their terms end at once, each owner is given its time,
// and the records go from the leaves to the root.
func TestAParentIsGivenUpAfterItsChildren(t *testing.T) {
	each(t, map[string]func(t *testing.T, b *node, parent *lease.Handle) error{
		"released": func(t *testing.T, _ *node, parent *lease.Handle) error { return parent.Release(t.Context()) },
		"closed":   func(t *testing.T, _ *node, parent *lease.Handle) error { return parent.Close(t.Context()) },
		"transferred": func(t *testing.T, b *node, parent *lease.Handle) error {
			to := offerOf(t, b.lease("parent"))
			return parent.Transfer(t.Context(), to)
		},
	}, func(t *testing.T, inner *memory.Store,
		give func(t *testing.T, b *node, parent *lease.Handle) error) {
		store := &ordered{Store: inner}
		a, b := start(t, store, "a"), start(t, store, "b")
		parent := a.hold("parent")
		child := a.hold("child", lease.WithParent(parent), lease.WithTTL(time.Minute))
		grandchild := a.hold("grandchild", lease.WithParent(child), lease.WithTTL(ttl/2))
		quick := a.hold("quick", lease.WithParent(parent))
		lost := []*losses{watchLosses(child), watchLosses(grandchild), watchLosses(quick)}
		stopAfter(t, child, time.Millisecond) // and waits for the grandchild
		stopAfter(t, grandchild, 3*time.Second)
		stopAfter(t, quick, 0)
		term, _ := parent.Term()
		began := time.Now()
		require.NoError(t, give(t, b, parent))
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, []string{"quick", "grandchild", "child", "parent"}, store.all())
		for _, l := range lost {
			l.one(t, lease.ErrParentLost)
		}
		<-term.Context().Done()
	})
}

// TestWhatIsRunUnderAParentStopsFirst: Run in Run, side by side, without a word between them.
func TestWhatIsRunUnderAParentStopsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memory.Store) {
		store := &ordered{Store: inner}
		a := start(t, store, "a")
		parent := a.lease("parent")
		child := a.lease("child", lease.WithParent(parent))
		ctx, cancel := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		var childStopped, began time.Time
		var cause error
		runs.Go(func() { // begins before its parent
			err := lease.Run(ctx, child, func(ctx context.Context, _ lease.Term) error {
				began = time.Now()
				<-ctx.Done()
				cause = context.Cause(ctx)
				time.Sleep(2 * time.Second)
				childStopped = time.Now()
				return nil
			})
			require.ErrorIs(t, err, lease.ErrParentLost)
			cancel()
		})
		time.Sleep(time.Minute)
		held := time.Now()
		work := errors.New("done")
		err := lease.Run(t.Context(), parent, func(context.Context, lease.Term) error {
			time.Sleep(time.Second)
			return work
		})
		require.ErrorIs(t, err, work)
		require.NotErrorIs(t, err, lease.ErrUnknown)
		runs.Wait()
		require.Equal(t, held, began, "as soon as the parent's term began")
		require.ErrorIs(t, cause, lease.ErrParentLost)
		require.Equal(t, held.Add(3*time.Second), childStopped)
		require.Equal(t, time.Now(), childStopped, "the parent's Run returned then")
		require.Equal(t, []string{"child", "parent"}, store.all())
	})
}

// TestAChildThatIsNotReleased keeps its parent's record up: no call says otherwise.
func TestAChildThatIsNotReleased(t *testing.T) {
	onTwo(t, func(t *testing.T, store *memory.Store, a, b *node) {
		parent := a.hold("parent")
		child := a.hold("child", lease.WithParent(parent))
		began := time.Now()
		err := parent.Release(t.Context())
		require.Equal(t, ttl, time.Since(began), "OperationTimeout")
		require.ErrorIs(t, err, lease.ErrChildHeld)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "child")
		require.False(t, parent.CheckAlive())
		time.Sleep(10 * ttl)
		require.True(t, stands(t, store, "parent"), "it is renewed")
		require.True(t, stands(t, store, "child"))
		mustNotWin(t, b.lease("parent"))
		won, err := child.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrParentLost, "which says that nothing runs under it")
		time.Sleep(time.Second)
		require.False(t, stands(t, store, "parent"), "the release went on in the background")

		// A transfer that could not be made in time is not made later.
		mustWin(t, parent)
		mustWin(t, child)
		to := offerOf(t, b.lease("moved"))
		to.Name = "parent"
		err = parent.Transfer(t.Context(), to)
		require.ErrorIs(t, err, lease.ErrChildHeld)
		require.ErrorIs(t, err, lease.ErrTransferRefused)
		require.NotErrorIs(t, err, lease.ErrUnknown)
		require.NoError(t, child.Release(t.Context()))
		time.Sleep(ttl)
		r, ok := standing(t, store, "parent")
		require.True(t, ok)
		require.Equal(t, a.Owner().Incarnation, r.Owner.Incarnation)
		require.NoError(t, parent.Release(t.Context()))
		require.False(t, stands(t, store, "parent"))
	})
}

func stands(t *testing.T, s store.Store, name string) bool {
	t.Helper()
	_, ok := standing(t, s, name)
	return ok
}

// TestAParentIsAcquiredAnewBesideItsChild: a release that waits gives way, and says so.
func TestAParentIsAcquiredAnewBesideItsChild(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		parent := a.hold("parent")
		child := a.hold("child", lease.WithParent(parent))
		before, _ := child.Term()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := parent.Release(ctx)
		require.ErrorIs(t, err, lease.ErrChildHeld)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, lease.ErrUnknown)
		mustWin(t, parent)
		require.False(t, child.CheckAlive(), "its term was of the former one")
		mustWin(t, child)
		require.False(t, before.CheckAlive())
		time.Sleep(5 * ttl)
		require.True(t, parent.CheckAlive() && child.CheckAlive(), "nothing is left of the release")

		// Nor while its caller still waits: then the acquisition waits behind it.
		released := meanwhile(func() error { return parent.Release(context.Background()) })
		time.Sleep(time.Second)
		acquired := make(chan bool, 1)
		go func() { won, _ := parent.Acquire(context.Background()); acquired <- won }()
		time.Sleep(time.Second)
		require.NoError(t, child.Release(t.Context()))
		require.NoError(t, <-released)
		require.True(t, <-acquired)
	})
}

// TestAClosedParentIsKeptForItsChildren: no handle has its name any more, and it is not
// reconciled away.
func TestAClosedParentIsKeptForItsChildren(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memory.Store) {
		store := &ordered{Store: inner}
		a, b := start(t, store, "a"), start(t, store, "b")
		parent := a.hold("parent")
		child := a.hold("child", lease.WithParent(parent))
		below := a.hold("below", lease.WithParent(child))
		require.ErrorIs(t, parent.Close(t.Context()), lease.ErrChildHeld)
		time.Sleep(10 * ttl)
		mustNotWin(t, b.lease("parent"))
		require.ErrorIs(t, child.Close(t.Context()), lease.ErrChildHeld)
		time.Sleep(10 * ttl)
		require.Empty(t, store.all())
		require.NoError(t, below.Close(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"below", "child", "parent"}, store.all())

		// Its name may be used again, whatever stands.
		again := a.hold("parent")
		under := a.hold("under", lease.WithParent(again))
		require.ErrorIs(t, again.Close(t.Context()), lease.ErrChildHeld)
		third := a.hold("parent")
		time.Sleep(5 * ttl)
		require.True(t, third.CheckAlive())
		require.NoError(t, under.Close(t.Context()))
		time.Sleep(5 * ttl)
		require.True(t, third.CheckAlive())
	})
}

// TestAKeeperClosesFromTheLeaves: owners may release in any order.
func TestAKeeperClosesFromTheLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memory.Store) {
		store := &ordered{Store: inner}
		a := start(t, store, "a")
		parent := a.hold("parent")
		child := a.hold("child", lease.WithParent(parent))
		grandchild := a.hold("grandchild", lease.WithParent(child))
		stopAfter(t, parent, 0)
		stopAfter(t, child, time.Second)
		stopAfter(t, grandchild, 2*time.Second)
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, []string{"grandchild", "child", "parent"}, store.all())
	})
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		parent := a.hold("parent")
		a.hold("child", lease.WithParent(parent))
		stopAfterClose := make(chan error, 1)
		parent.OnLost(func(lease.Loss) { stopAfterClose <- parent.Release(context.Background()) })
		ctx := within(t, time.Second)
		err := a.Close(ctx)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "child, parent")
		err = <-stopAfterClose
		require.ErrorIs(t, err, lease.ErrClosed)
		require.NotErrorIs(t, err, lease.ErrUnknown, "nothing was sent")
		time.Sleep(ttl + time.Second)
		require.False(t, stands(t, store, "parent"), "the TTL has ended it")
	})
}

// TestCyclesAreRefused, and what could not be won any more.
func TestCyclesAreRefused(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		top := a.lease("top")
		middle := a.lease("middle", lease.WithParent(top))
		low := a.lease("low", lease.WithParent(middle))
		refused := func(name string, parent *lease.Handle, says string) {
			t.Helper()
			_, err := a.Lease(name, lease.WithParent(parent))
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, says)
		}
		refused("top", top, `a cycle: "top" hangs on "top" already, or is it`)
		refused("top", low, `a cycle: "low" hangs on "top" already`)
		require.NoError(t, top.Close(t.Context()))
		refused("top", low, `a cycle: "low" hangs on "top" already`)
		refused("other", low, `"top" was closed`)
		_, err := low.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrParentLost)
		require.ErrorContains(t, err, `"top", for good`)
		_, err = middle.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrParentLost)
		require.ErrorIs(t, err, lease.ErrClosed)
		err = lease.Run(t.Context(), middle, notCalled)
		require.ErrorIs(t, err, lease.ErrClosed, "it would wait for ever")
	})
}

// TestDeepChains: each of a hundred generations is trusted no longer than any above it, and all
// go from the leaf to the root.
func TestDeepChains(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memory.Store) {
		store := &ordered{Store: inner}
		a := start(t, store, "a")
		root := a.hold("g/0")
		chain := []*lease.Handle{root}
		var want []string
		for i := 1; i <= 100; i++ {
			h := a.hold(fmt.Sprintf("g/%d", i), lease.WithParent(chain[i-1]), lease.WithTTL(ttl+time.Duration(i%7)*time.Second))
			stopAfter(t, h, 0)
			chain = append(chain, h)
		}
		for i := 100; i >= 0; i-- {
			want = append(want, fmt.Sprintf("g/%d", i))
		}
		_, err := a.Lease("deeper", lease.WithParent(chain[100]))
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "101 leases above it, must be at most 100")
		time.Sleep(10 * ttl)
		for _, h := range chain {
			require.True(t, h.CheckAlive())
		}
		require.NoError(t, root.Release(t.Context()))
		require.Equal(t, want, store.all())
	})
}

// A pool's slots hang on a lease: who waits for one begins with it, as with Run, and stops with
// it. A slot that ended on time comes back, and keeps no parent up.
func TestAPoolUnderAParent(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memory.Store) {
		store := &ordered{Store: inner}
		a := start(t, store, "a")
		parent := a.lease("parent")
		p := a.pool("slot", 1, lease.WithParent(parent), lease.WithRenewal(lease.RenewNever()))
		run := func(stop time.Duration) (began <-chan time.Time, ended <-chan error) {
			at, err := make(chan time.Time, 1), make(chan error, 1)
			go func() {
				err <- p.Run(context.Background(), func(ctx context.Context, _ int, _ lease.Term) error {
					at <- time.Now()
					<-ctx.Done()
					time.Sleep(stop)
					return nil
				})
			}()
			return at, err
		}
		began, ended := run(2 * time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, began)
		mustWin(t, parent)
		held := time.Now()
		require.Equal(t, held, <-began)
		time.Sleep(time.Second)
		require.NoError(t, parent.Release(t.Context()))
		require.Equal(t, held.Add(3*time.Second), time.Now(), "when the work had stopped")
		require.ErrorIs(t, <-ended, lease.ErrParentLost)
		require.Equal(t, []string{"slot/0", "parent"}, store.all())

		mustWin(t, parent)
		began, ended = run(0)
		<-began
		require.ErrorIs(t, <-ended, lease.ErrLapsed)
		began, ended = run(0) // the slot is back
		<-began
		require.NoError(t, parent.Release(t.Context()))
		require.ErrorIs(t, <-ended, lease.ErrParentLost)

		_, ended = run(0)
		time.Sleep(time.Minute)
		require.NoError(t, parent.Close(t.Context()))
		err := <-ended
		require.True(t, errors.Is(err, lease.ErrClosed), "%v", err)
	})
}
