package pername_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestSessionsGo(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
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
	withKit(t, func(t *testing.T, k *kit) {
		k.renewFor(2 * ttl)
		time.Sleep(ttl - ttl/3 - 1)
		require.NoError(t, k.renew().Err)
		k.win("n")
		time.Sleep(ttl)
		_, err := k.claim(lease.Claim{Name: "m"})
		require.ErrorIs(t, err, lease.ErrSessionGone)
		require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone)
		require.False(t, k.standing("m"))
		require.NoError(t, k.store.CloseSession(t.Context(), k.session))
		require.Zero(t, k.backend.renews["n"])
	})
	withKit(t, func(t *testing.T, k *kit) { // it ends while a claim is under way
		k.backend.setFault(func(_ context.Context, _, _ string, apply func()) error {
			time.Sleep(ttl)
			apply()
			return nil
		})
		time.AfterFunc(ttl, func() { require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone) })
		time.Sleep(time.Second)
		_, err := k.claim(lease.Claim{Name: "n"})
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.NotErrorIs(t, err, lease.ErrSessionGone, "something was applied")
	})
}

func TestOpeningAgainRenews(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		k.win("n")
		for range 5 {
			time.Sleep(ttl - 1)
			k.open(1, "a")
		}
		require.True(t, k.standing("n"))
		k.backend.failing("renew", "n")
		g, err := k.store.OpenSession(t.Context(), k.session)
		require.NoError(t, err)
		require.ErrorIs(t, g.Err, errDown)
		_, err = k.store.OpenSession(t.Context(), lease.Session{ID: 1, Owner: lease.Owner{Incarnation: "b"}, TTL: 1})
		require.ErrorIs(t, err, lease.ErrInvalid)
		time.Sleep(ttl)
		k.open(1, "b") // the ID of what has expired is free
	})
	withKit(t, func(t *testing.T, k *kit) {
		for _, s := range []lease.Session{
			{ID: 0, Owner: k.session.Owner, TTL: 1}, {ID: 2, TTL: 1}, {ID: 2, Owner: k.session.Owner, TTL: 0},
		} {
			_, err := k.store.OpenSession(t.Context(), s)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
	})
}

func TestClosingWaitsForClaimsUnderWay(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
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
	withKit(t, func(t *testing.T, k *kit) {
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

func TestKnowsAnInconsistentBackend(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		k.store = must(t, liar{k.backend})
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

func TestCapabilitiesAreTheBackends(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		plain := must(t, k.backend)
		_, watches := plain.(lease.Watcher)
		_, transfers := plain.(lease.TransferStore)
		require.False(t, watches)
		require.False(t, transfers)
		require.Equal(t, lease.StoreLimits{Name: "per-name store", NamesPerSession: 1, LocalSessions: true}, plain.(lease.Limiter).Limits())
		n := 0
		for _, err := range plain.List(t.Context(), "") {
			require.ErrorIs(t, err, lease.ErrUnsupported)
			n++
		}
		require.Equal(t, 1, n)

		limits := lease.StoreLimits{Name: "map", MinTTL: 2 * ttl, NamesPerSession: 7, Batch: 9, LocalSessions: true}
		able := must(t, ableNameMap{k.backend, limits})
		_, watches = able.(lease.Watcher)
		_, transfers = able.(lease.TransferStore)
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
		require.Equal(t, 2*ttl, g.TTL, "what the store can honour")
		outs, err := able.Acquire(t.Context(), k.session, []lease.Claim{{Name: "z"}})
		require.NoError(t, err)
		require.Equal(t, 2*ttl, outs[0].Record.TTL)
	})
}

func TestRefusesDoneContexts(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		h := k.win("n")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, open := k.store.OpenSession(done, k.session)
		_, acquire := k.store.Acquire(done, k.session, []lease.Claim{{Name: "m"}})
		_, renew := k.store.Renew(done, []lease.Session{k.session})
		_, release := k.store.Release(done, []lease.Held{h})
		_, get := k.store.Get(done, "n")
		errs := []error{open, k.store.CloseSession(done, k.session), acquire, renew, release, get}
		for _, err := range k.store.List(done, "") {
			errs = append(errs, err)
		}
		require.Len(t, errs, 7)
		for i, err := range errs {
			require.ErrorIs(t, err, context.Canceled, "call %d", i)
		}
		_, err := k.store.(lease.TransferStore).Transfer(done, []lease.Transfer{{Held: h}})
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, k.standing("m"))
		k.renewFor(2 * ttl)
		require.True(t, k.standing("n"))
		_, err = k.store.Get(t.Context())
		require.NoError(t, err)
		k.backend.failing("get", "n")
		_, err = k.store.Get(t.Context(), "m", "n")
		require.ErrorIs(t, err, errDown)
	})
}

func TestForgetsSessionsThatNobodyCloses(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
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
			time.Sleep(ttl / 10)
		}
		require.Less(t, int64(heap())-int64(before), int64(n*100), "a session takes more than 100 bytes")
		runtime.KeepAlive(k.store)
	})
}

// It takes a backend's word for it that what stands is no record.
func TestTellsOfBadRecords(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		k.win("good")
		k.backend.setFault(func(_ context.Context, op, name string, apply func()) error {
			if name == "bad" {
				return lease.ErrBadRecord
			}
			apply()
			return nil
		})
		recs, err := k.store.Get(t.Context(), "bad", "good", "free")
		require.NoError(t, err)
		require.Len(t, recs, 2)
		i := slices.IndexFunc(recs, func(r lease.Record) bool { return r.Name == "bad" })
		require.Equal(t, lease.Record{Name: "bad"}, recs[i])
		require.NotZero(t, recs[1-i].Token)
	})
}
