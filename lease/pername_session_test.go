package lease_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestPerNameSessionsGo(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		k.win("n")
		require.NoError(t, k.store.CloseSession(t.Context(), lease.Session{ID: 1, Owner: lease.Owner{Incarnation: "another"}}))
		require.True(t, k.standing("n"), "the session is another's")
		require.NoError(t, k.store.CloseSession(t.Context(), k.session))
		require.False(t, k.standing("n"))
		require.NoError(t, k.store.CloseSession(t.Context(), k.session), "twice is no error")
		_, err := k.claim(lease.Claim{Name: "n"})
		require.ErrorIs(t, err, lease.ErrSessionGone)
		require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone)
		require.False(t, k.standing("n"))
	})
	perName(t, func(t *testing.T, k *nameKit) {
		k.renewFor(2 * nameTTL)
		time.Sleep(nameTTL - nameTTL/3 - 1)
		require.NoError(t, k.renew().Err)
		k.win("n")
		time.Sleep(nameTTL)
		_, err := k.claim(lease.Claim{Name: "m"})
		require.ErrorIs(t, err, lease.ErrSessionGone)
		require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone)
		require.False(t, k.standing("m"))
		require.NoError(t, k.store.CloseSession(t.Context(), k.session))
		require.Zero(t, k.backend.renews["n"])
	})
	perName(t, func(t *testing.T, k *nameKit) { // it ends while a claim is under way
		k.backend.setFault(func(_ context.Context, _, _ string, apply func()) error {
			time.Sleep(nameTTL)
			apply()
			return nil
		})
		time.AfterFunc(nameTTL, func() { require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone) })
		time.Sleep(time.Second)
		_, err := k.claim(lease.Claim{Name: "n"})
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NotErrorIs(t, err, lease.ErrSessionGone, "something was applied")
	})
}

func TestPerNameOpeningAgainRenews(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		k.win("n")
		for range 5 {
			time.Sleep(nameTTL - 1)
			k.open(1, "a")
		}
		require.True(t, k.standing("n"))
		k.backend.failing("renew", "n")
		g, err := k.store.OpenSession(t.Context(), k.session)
		require.NoError(t, err)
		require.ErrorIs(t, g.Err, errDown)
		_, err = k.store.OpenSession(t.Context(), lease.Session{ID: 1, Owner: lease.Owner{Incarnation: "b"}, TTL: 1})
		require.ErrorIs(t, err, lease.ErrInvalid)
		time.Sleep(nameTTL)
		k.open(1, "b") // the ID of what has expired is free
	})
	perName(t, func(t *testing.T, k *nameKit) {
		for _, s := range []lease.Session{
			{ID: 0, Owner: k.session.Owner, TTL: 1}, {ID: 2, TTL: 1}, {ID: 2, Owner: k.session.Owner, TTL: 0},
		} {
			_, err := k.store.OpenSession(t.Context(), s)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
	})
}

func TestPerNameClosingWaitsForClaimsUnderWay(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		k.backend.setFault(func(_ context.Context, op, _ string, apply func()) error {
			if op == "acquire" {
				time.Sleep(time.Second)
			}
			apply()
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { k.win("n") }) // before the closing
		time.Sleep(time.Second / 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		require.ErrorIs(t, k.store.CloseSession(ctx, k.session), context.DeadlineExceeded)
		_, err := k.claim(lease.Claim{Name: "m"})
		require.ErrorIs(t, err, lease.ErrSessionGone)
		require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone)
		require.NoError(t, k.store.CloseSession(t.Context(), k.session))
		require.False(t, k.standing("n"))
		wg.Wait()
		require.False(t, k.standing("n"))
	})
	perName(t, func(t *testing.T, k *nameKit) {
		k.win("bad")
		k.win("good")
		k.backend.failing("release", "bad")
		require.ErrorIs(t, k.store.CloseSession(t.Context(), k.session), errDown)
		require.False(t, k.standing("good"))
		k.backend.setFault(nil)
		require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone)
		require.NoError(t, k.store.CloseSession(t.Context(), k.session))
		require.False(t, k.standing("bad"))
		k.open(1, "a")
		k.win("bad")
	})
}

func TestPerNameKnowsAnInconsistentBackend(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		k.store = lease.PerName(liar{k.backend})
		k.open(1, "a")
		_, err := k.claim(lease.Claim{Name: "n", Nonce: 4})
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.NoError(t, k.renew().Err)
		require.Zero(t, k.backend.renews["n"])
	})
}

// liar answers every claim with a success of another nonce.
type liar struct{ *nameMap }

func (l liar) Acquire(ctx context.Context, s lease.Session, c lease.Claim) (lease.Outcome, error) {
	c.Nonce++
	return l.nameMap.Acquire(ctx, s, c)
}

func TestPerNameCapabilitiesAreTheBackends(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		plain := lease.PerName(k.backend)
		_, watches := plain.(lease.Watcher)
		_, transfers := plain.(lease.Transferer)
		require.False(t, watches)
		require.False(t, transfers)
		require.Equal(t, lease.Limits{Name: "per-name store", NamesPerSession: 1}, plain.(lease.Limiter).Limits())
		n := 0
		for _, err := range plain.List(t.Context(), "") {
			require.ErrorIs(t, err, lease.ErrUnsupported)
			n++
		}
		require.Equal(t, 1, n)

		limits := lease.Limits{Name: "map", MinTTL: 2 * nameTTL, NamesPerSession: 7, Batch: 9}
		able := lease.PerName(ableNameMap{k.backend, limits})
		_, watches = able.(lease.Watcher)
		_, transfers = able.(lease.Transferer)
		require.False(t, watches)
		require.True(t, transfers)
		require.Equal(t, limits, able.(lease.Limiter).Limits())
		k.win("x/1")
		k.win("y/1")
		n = 0
		for r, err := range able.List(t.Context(), "x/") {
			require.NoError(t, err)
			require.Equal(t, "x/1", r.Name)
			n++
		}
		require.Equal(t, 1, n)
		g, err := able.OpenSession(t.Context(), k.session)
		require.NoError(t, err)
		require.Equal(t, 2*nameTTL, g.TTL, "what the store can honour")
		outs, err := able.Acquire(t.Context(), k.session, []lease.Claim{{Name: "z"}})
		require.NoError(t, err)
		require.Equal(t, 2*nameTTL, outs[0].Record.TTL)
	})
}

func TestPerNameRefusesDoneContextsAndNoBackend(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		h := k.win("n")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		for want, store := range map[error]lease.Store{context.Canceled: k.store, lease.ErrInvalid: lease.PerName(nil)} {
			_, open := store.OpenSession(done, k.session)
			_, acquire := store.Acquire(done, k.session, []lease.Claim{{Name: "m"}})
			_, renew := store.Renew(done, []lease.Session{k.session})
			_, release := store.Release(done, []lease.Held{h})
			_, get := store.Get(done, "n")
			errs := []error{open, store.CloseSession(done, k.session), acquire, renew, release, get}
			for _, err := range store.List(done, "") {
				errs = append(errs, err)
			}
			require.Len(t, errs, 7)
			for i, err := range errs {
				require.ErrorIs(t, err, want, "call %d", i)
			}
		}
		_, err := k.store.(lease.Transferer).Transfer(done, []lease.Move{{Held: h}})
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, k.standing("m"))
		k.renewFor(2 * nameTTL)
		require.True(t, k.standing("n"))
		_, err = k.store.Get(t.Context())
		require.NoError(t, err)
		k.backend.failing("get", "n")
		_, err = k.store.Get(t.Context(), "m", "n")
		require.ErrorIs(t, err, errDown)
	})
}

func TestPerNameForgetsSessionsThatNobodyCloses(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		const n = 20_000
		for i := range n {
			k.open(lease.SessionID(i+2), "a")
			time.Sleep(nameTTL / 10)
		}
		require.Less(t, int64(heap())-int64(before), int64(n*100), "a session takes more than 100 bytes")
		runtime.KeepAlive(k.store)
	})
}
