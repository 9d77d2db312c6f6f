package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// narrowed is a lease that is alive only while something else is, too, and may tell
// of its own loss.
type narrowed struct {
	lease.Lease
	refused atomic.Bool
	lost    atomic.Pointer[func(lease.Loss)]
}

func (n *narrowed) CheckAlive() bool    { return !n.refused.Load() && n.Lease.CheckAlive() }
func (n *narrowed) Unwrap() lease.Lease { return n.Lease }
func (n *narrowed) OnLost(f func(lease.Loss)) func() bool {
	n.lost.Store(&f)
	stop := n.Lease.OnLost(f)
	return func() bool { n.lost.Store(nil); return stop() }
}

// hasty is a lease that is lost just before who asks for that is registered.
type hasty struct{ *narrowed }

func (h hasty) OnLost(f func(lease.Loss)) func() bool {
	h.refused.Store(true)
	return h.narrowed.OnLost(f)
}

func TestALossBeforeTheRegistrationEndsTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		n := &narrowed{Lease: start(t, store, "a").lease("job")}
		mustWin(t, n)
		term, stop := lease.TermOf(hasty{n})
		defer stop()
		require.False(t, term.CheckAlive())
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
	})
}

func TestATermIsAsNarrowAsWhatWrapsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		n := &narrowed{Lease: a.lease("job")}
		l := wrapped{n}
		why := errors.New("the other thing ended")
		err := lease.Run(t.Context(), l, func(ctx context.Context, term lease.Term) error {
			require.True(t, term.CheckAlive())
			held, ok := lease.As[lease.Termed](l)
			require.True(t, ok)
			same, ok := held.Term()
			require.True(t, ok)
			require.Equal(t, term.Token(), same.Token())
			c, ok := term.(lease.Continuing)
			require.True(t, ok)
			require.Zero(t, c.Continues())

			n.refused.Store(true)
			require.False(t, term.CheckAlive())
			require.False(t, same.CheckAlive())
			_, ok = held.Term()
			require.False(t, ok)
			n.refused.Store(false)
			require.False(t, term.CheckAlive(), "a term that was seen dead stays so")

			require.NoError(t, ctx.Err())
			(*n.lost.Load())(lease.Loss{Name: "job", Reason: why})
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), why)
			return nil
		})
		require.ErrorIs(t, err, why)
		require.Nil(t, n.lost.Load(), "what was registered is taken back")
		requireFree(t, store, "job")

		mustWin(t, l)
		term, stop := lease.TermOf(l)
		defer stop()
		n.lost.Store(nil)
		lost := watchLosses(n.Lease)
		a.store.Partition()
		time.Sleep(ttl)
		synctest.Wait()
		lost.one(t, lease.ErrExpired)
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrExpired)
	})
}

// The term of a lease that has none of its own can be asked of itself, and tells nothing.
func TestATermThatIsMadeTellsNothing(t *testing.T) {
	p := &plain{}
	mustWin(t, p)
	term, stop := lease.TermOf(p)
	defer stop()
	require.Zero(t, term.(lease.Informed).Info())
}

// What TermOf registers is freed by stop: a lease that is held for long is asked for its term again and
// again.
func TestTermOfKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		l := &narrowed{Lease: start(t, store, "a").lease("job")}
		mustWin(t, l)
		term, stop := lease.TermOf(l)
		require.True(t, term.CheckAlive())
		stop()
		require.ErrorIs(t, context.Cause(term.Context()), lease.ErrReleased, "else it hangs on the context of the term within")
		require.True(t, l.CheckAlive())
	})
}
