package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var errDown = errors.New("backend down")

// setbackBed is a store whose history goes back under two Keepers.
type setbackBed struct {
	t     *testing.T
	inner *memory.Store
	sw    *faultstore.Switch
	log   *observer.ObservedLogs
	core  zapcore.Core
}

func newSetbackBed(t *testing.T) *setbackBed {
	b := &setbackBed{t: t, inner: memory.New()}
	b.sw = faultstore.NewSwitch(b.inner)
	b.core, b.log = observer.New(zapcore.ErrorLevel)
	return b
}

func (b *setbackBed) keeper(cfg lease.Config) (*lease.Keeper, *lease.Handle) {
	cfg.Logger = zap.New(b.core)
	return keeperOf(b.t, b.sw, cfg)
}

// keeperOf makes a Keeper, which is closed with the test, and a lease of it.
func keeperOf(t *testing.T, db store.Store, cfg lease.Config) (*lease.Keeper, *lease.Handle) {
	cfg.TTL = 3 * time.Second
	k := keeper(t, db, cfg)
	h, err := k.Lease("job")
	require.NoError(t, err)
	return k, h
}

// wipe puts a store in place that has these records alone; tokens to come are above beyond.
func (b *setbackBed) wipe(beyond lease.Token, recs ...lease.Record) {
	b.inner = memory.New()
	require.NoError(b.t, faultstore.Restore(b.t.Context(), b.inner, recs, beyond))
	b.sw.To(b.inner)
}

// used acquires and releases n times, so that tokens are well above those of an empty store.
func used(t *testing.T, h *lease.Handle, n int) {
	t.Helper()
	for range n {
		acquired(t, h)
		require.NoError(t, h.Release(t.Context()))
	}
}

func acquired(t *testing.T, h *lease.Handle) lease.Token {
	t.Helper()
	mustWin(t, h)
	return token(t, h)
}

func TestSetbackIsForTheOperatorToDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		k, h := b.keeper(lease.Config{ID: "a"})
		other, err := k.Lease("other")
		require.NoError(t, err)
		used(t, h, 10)
		first := acquired(t, h)
		require.NoError(t, k.Health(t.Context()))
		lost := make(chan lease.Loss, 9)
		h.OnLost(func(l lease.Loss) { lost <- l })
		b.wipe(0)
		<-lost // the session is gone
		require.NoError(t, h.Release(t.Context()))

		won, err := h.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrSetback)
		require.ErrorIs(t, k.Health(t.Context()), lease.ErrSetback)
		require.ErrorContains(t, k.Health(t.Context()), "Keeper.AcceptHistory")
		require.ErrorIs(t, k.Setback(), lease.ErrSetback)
		_, err = other.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrSetback, "no name is acquired")
		time.Sleep(time.Minute)
		_, err = h.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrSetback, "time alone decides nothing")
		recs, err := b.inner.Get(t.Context(), "job", "other")
		require.NoError(t, err)
		require.Empty(t, recs, "what was won before it was noticed is given back")

		require.NoError(t, k.AcceptHistory(t.Context()))
		require.NoError(t, k.Health(t.Context()))
		require.NoError(t, k.Setback())
		require.Less(t, acquired(t, h), first)
		require.Equal(t, 1, b.log.Len(), "it is said once: %v", b.log.All())
		require.NoError(t, k.AcceptHistory(t.Context()), "nothing is to be accepted")
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestASetbackIsAcceptedATTLAfterItWasNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		_, h := b.keeper(lease.Config{ID: "a", AcceptSetbacks: true})
		used(t, h, 10)
		b.wipe(0)
		_, err := h.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrSetback)
		noticed := time.Now()
		for {
			won, err := h.Acquire(t.Context())
			if won {
				break
			}
			require.ErrorIs(t, err, lease.ErrSetback)
			time.Sleep(10 * time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(noticed), 3*time.Second, "others may believe for a TTL")
		require.LessOrEqual(t, time.Since(noticed), 3100*time.Millisecond)
		require.NoError(t, h.Release(t.Context()))
	})
}

func TestATokenBumpedBeyondAllIsNoSetback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		k, h := b.keeper(lease.Config{ID: "a"})
		first := acquired(t, h)
		b.wipe(1000)
		time.Sleep(3 * time.Second)
		require.NoError(t, h.Release(t.Context()))
		require.Greater(t, acquired(t, h), first)
		require.NoError(t, k.Health(t.Context()))
		require.NoError(t, h.Release(t.Context()))
	})
}

// Who only follows records notices, too, and is told to forget what it heard.
func TestFollowersForgetWhatWasBeforeASetback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		watcher, _ := b.keeper(lease.Config{ID: "w"})
		var events []store.Event
		stop, err := watcher.Watch("job", func(ev store.Event) { events = append(events, ev) })
		require.NoError(t, err)
		defer stop()
		_, h := b.keeper(lease.Config{ID: "a"})
		used(t, h, 10)
		acquired(t, h)
		synctest.Wait()

		// Another, who knows nothing of before, holds it in what was put in place.
		b.wipe(0, b.stranger(2, 9))
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, watcher.Setback(), lease.ErrSetback)
		synctest.Wait()
		events = nil
		require.NoError(t, watcher.AcceptHistory(t.Context()))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, events, 2)
		require.Equal(t, store.EventReset, events[0].Kind)
		require.Equal(t, store.EventPut, events[1].Kind)
		require.Equal(t, lease.Token(2), events[1].Record.Token)
		require.ErrorIs(t, h.Release(t.Context()), lease.ErrUnknown, "it has noticed, too: what stands is looked at when that is over")
	})
}

// noticing is a store that says by itself that its history went back. It can't list by session, so
// that an idle Keeper asks it, too.
type noticing struct {
	*faultstore.Switch
	lost     atomic.Bool
	away     atomic.Bool
	accepted atomic.Int64
}

func (n *noticing) Limits() store.Limits {
	l := n.Switch.Limits()
	l.BySession = false
	return l
}

func (n *noticing) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	if n.away.Load() {
		return nil, errDown
	}
	if n.lost.Load() {
		return nil, fmt.Errorf("revision 1 after 9: %w", lease.ErrSetback)
	}
	return n.Switch.Get(ctx, names...)
}

func (n *noticing) AcceptHistory(context.Context) error {
	if n.lost.CompareAndSwap(true, false) {
		n.accepted.Add(1)
	}
	return nil
}

func (n *noticing) Accepted() int { return int(n.accepted.Load()) }

// hoarse is a Historian whose Accepted panics.
type hoarse struct{ *noticing }

func (hoarse) Accepted() int { panic("boom") }

func TestAPanicOfAcceptedIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, h := keeperOf(t, hoarse{&noticing{Switch: faultstore.NewSwitch(memory.New())}}, lease.Config{ID: "a"})
		acquired(t, h)
		require.NoError(t, k.Health(t.Context()))
		require.NoError(t, h.Close(t.Context()))
	})
}

// Two Keepers of one Store: what one accepts holds for the other, too, which has to
// forget as well.
func TestAHistoryIsAcceptedForAllKeepersOfAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &noticing{Switch: faultstore.NewSwitch(memory.New())}
		a, _ := keeperOf(t, db, lease.Config{ID: "a"})
		b, h := keeperOf(t, db, lease.Config{ID: "b"})
		resets := 0
		stop, err := b.Watch("job", func(ev store.Event) {
			if ev.Kind == store.EventReset {
				resets++
			}
		})
		require.NoError(t, err)
		defer stop()
		used(t, h, 10)
		db.lost.Store(true)
		require.ErrorIs(t, a.Health(t.Context()), lease.ErrSetback)
		db.Switch.To(memory.New())
		require.NoError(t, a.AcceptHistory(t.Context()))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, resets)
		require.NoError(t, b.Setback())
		require.Less(t, acquired(t, h), lease.Token(10))
		require.NoError(t, h.Release(t.Context()))
	})
}

// A decision on a node that has made no request since is one all the same.
func TestAHistoryIsAcceptedBeforeItWasNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &noticing{Switch: faultstore.NewSwitch(memory.New())}
		k, h := keeperOf(t, db, lease.Config{ID: "a", Logger: zap.NewNop()})
		used(t, h, 10)
		db.Switch.To(memory.New())
		db.lost.Store(true)
		began := time.Now()
		require.NoError(t, k.AcceptHistory(t.Context()))
		require.Equal(t, 3*time.Second, time.Since(began), "it has taken effect")
		require.Equal(t, 1, db.Accepted())
		require.NoError(t, k.Setback())
		require.Less(t, acquired(t, h), lease.Token(10))
		require.NoError(t, h.Release(t.Context()))

		db.away.Store(true)
		require.ErrorIs(t, k.AcceptHistory(t.Context()), errDown, "what it says can't be known")
		db.away.Store(false)
		require.NoError(t, k.AcceptHistory(t.Context()), "nothing is to be accepted")
		require.Equal(t, 1, db.Accepted())
	})
}

// An acquisition that is on its way when the history is accepted is judged by nothing older.
func TestAHistoryIsAcceptedWhileAnAcquisitionIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		db := faultstore.Wrap(b.sw)
		k, h := keeperOf(t, db, lease.Config{ID: "a", Logger: zap.NewNop()})
		used(t, h, 10)
		b.wipe(0)
		db.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second / 2}, faultstore.Acquire))
		ended := meanwhile(func() error { _, err := h.Acquire(t.Context()); return err })
		time.Sleep(3 * time.Second / 4) // it was told that its session is gone, and asks in another
		require.NoError(t, k.AcceptHistory(t.Context()))
		require.NoError(t, <-ended)
		require.NoError(t, k.Setback())
		require.True(t, h.CheckAlive())
		require.NoError(t, h.Release(t.Context()))
	})
}

// Keepers of one Store that accept by setting do so once, not each in answer to the
// other's; also if it goes back again before all have heard.
func TestKeepersOfAStoreDoNotAcceptInTurns(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db := &noticing{Switch: faultstore.NewSwitch(memory.New())}
			var hs []*lease.Handle
			for i := range 3 {
				k, err := lease.NewKeeper(db, lease.Config{ID: fmt.Sprint(i), TTL: 3 * time.Second, AcceptSetbacks: true, Logger: zap.NewNop()})
				require.NoError(t, err)
				defer func() {
					ctx := within(t, time.Second)
					_ = k.Close(ctx)
				}()
				h, err := k.Lease(fmt.Sprint("job/", i))
				require.NoError(t, err)
				hs = append(hs, h)
				acquired(t, h)
			}
			back := func() {
				db.Switch.To(memory.New())
				db.lost.Store(true)
			}
			back()
			for i, h := range hs { // each notices at a time of its own
				_, _, err := h.Holder(t.Context())
				require.ErrorIs(t, err, lease.ErrSetback)
				if i < len(hs)-1 {
					time.Sleep(700 * time.Millisecond)
				}
			}
			if again {
				time.Sleep(1700 * time.Millisecond) // the first has accepted, the others not
				back()
			}
			time.Sleep(12 * time.Second)
			accepted := db.Accepted()
			require.LessOrEqual(t, accepted, 2)
			for _, h := range hs { // one that was idle hears of the decision with its next call
				_, _, _ = h.Holder(t.Context())
			}
			time.Sleep(12 * time.Second)
			for _, h := range hs {
				require.NoError(t, h.Release(t.Context()))
				acquired(t, h)
			}
			time.Sleep(time.Minute)
			require.Equal(t, accepted, db.Accepted())
			for _, h := range hs {
				require.True(t, h.CheckAlive(), "what was won after it was accepted is held")
				require.NoError(t, h.Release(t.Context()))
			}
		})
	}
}
