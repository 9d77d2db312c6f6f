package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// stranger is a record of one who knows nothing of before.
func (b *setbackBed) stranger(token lease.Token, nonce uint64) lease.Record {
	return lease.Record{Name: "job", Session: 7, Token: token, Nonce: nonce, TTL: time.Hour, Owner: lease.Owner{ID: "x", Incarnation: "x"}}
}

// follow has a Keeper follow the name that has no lease of it.
func (b *setbackBed) follow() (*lease.Keeper, *told) {
	k, err := lease.NewKeeper(b.sw, lease.Config{ID: "w", TTL: 3 * time.Second})
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, k.Close(context.Background())) })
	var s told
	stop, err := k.Watch("job", s.add)
	require.NoError(b.t, err)
	b.t.Cleanup(stop)
	synctest.Wait()
	return k, &s
}

// What a follower knew of a name outlives the record: the history that stands is seen to
// be another when the name comes again, in a watch that was begun in between.
func TestAFollowerRemembersWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		watcher, heard := b.follow()
		_, h := b.keeper("a", nil)
		for range 9 {
			acquired(t, h)
			require.NoError(t, h.Release(t.Context()))
		}
		synctest.Wait()
		b.wipe(0)
		time.Sleep(3 * time.Second)
		require.NoError(t, watcher.Setback(), "nothing stands")
		heard.take()
		require.NoError(t, faultstore.Restore(t.Context(), b.inner, []lease.Record{b.stranger(2, 9)}, 0))
		synctest.Wait()
		require.ErrorIs(t, watcher.Setback(), lease.ErrSetback)
		require.Empty(t, heard.take())
		time.Sleep(time.Minute)
		require.ErrorIs(t, watcher.Setback(), lease.ErrSetback, "time alone decides nothing")
		require.NoError(t, watcher.AcceptHistory(t.Context()))
		time.Sleep(2 * time.Second)
		require.NoError(t, watcher.Setback())
		require.Contains(t, heard.take(), "+job")
	})
}

// Two ownerships under one token are of two histories.
func TestAnotherOwnershipUnderTheSameTokenIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		watcher, _ := b.follow()
		_, h := b.keeper("a", nil)
		token := acquired(t, h)
		synctest.Wait()
		b.inner = memory.New()
		require.NoError(t, faultstore.Restore(t.Context(), b.inner, []lease.Record{b.stranger(token, 9)}, 0))
		b.sw.To(b.inner)
		time.Sleep(3 * time.Second)
		_ = h.Release(t.Context())
		require.ErrorIs(t, watcher.Setback(), lease.ErrSetback)
	})
}

// A setback that a follower found is for the operator to decide, too.
func TestWhatAFollowerFoundIsNotTheStoresToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		watcher, _ := b.follow()
		_, h := b.keeper("a", nil)
		for range 9 {
			acquired(t, h)
			require.NoError(t, h.Release(t.Context()))
		}
		acquired(t, h)
		synctest.Wait()
		b.inner = memory.New()
		require.NoError(t, faultstore.Restore(t.Context(), b.inner, []lease.Record{b.stranger(2, 9)}, 0))
		b.sw.To(b.inner)
		time.Sleep(4 * time.Second)
		_ = h.Release(t.Context())
		for range 200 {
			require.ErrorIs(t, watcher.Setback(), lease.ErrSetback)
			time.Sleep(100 * time.Millisecond)
		}
	})
}
