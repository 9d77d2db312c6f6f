package pername_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/pername"
)

func TestRenewsEveryNameOfASession(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		for i := range 20 {
			k.win(fmt.Sprint("n", i))
		}
		k.renewFor(10 * ttl)
		rs, err := k.store.Get(t.Context(), "n0", "free", "n19")
		require.NoError(t, err)
		require.Len(t, rs, 2)
		require.Equal(t, "n0", rs[0].Name)
		require.Equal(t, "n19", rs[1].Name)
		time.Sleep(ttl)
		require.False(t, k.standing("n0"))
	})
}

func TestBoundsItsRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, opts := range map[int][]pername.Option{
			16: nil, 3: {pername.WithConcurrency(3)},
		} {
			m := newNameMap()
			k := &kit{t: t, backend: m, store: must(t, m, opts...)}
			k.session = k.open(1, "a")
			claims := make([]lease.Claim, 50)
			for i := range claims {
				claims[i].Name = fmt.Sprint("n", i)
			}
			m.setFault(func(_ context.Context, _, _ string, apply func()) error {
				time.Sleep(time.Millisecond)
				apply()
				return nil
			})
			outs, err := k.store.Acquire(t.Context(), k.session, claims)
			require.NoError(t, err)
			for i, out := range outs {
				require.Equal(t, claims[i].Name, out.Record.Name, "in the order of the arguments")
			}
			require.Equal(t, want, m.busiest)
			m.busiest = 0
			require.NoError(t, k.renew().Err)
			require.Equal(t, want, m.busiest)
		}
	})
}

func TestTellsALossAgainAndAgainForTwoTTLs(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		lost := k.win("lost")
		k.win("kept")
		k.backend.remove("lost")
		for range 6 { // a reply may not arrive, so the next one tells it too
			require.Equal(t, lease.Grant{TTL: ttl, Lost: []lease.Held{lost}}, k.renew())
			time.Sleep(ttl/3 - 1)
		}
		require.Equal(t, 1, k.backend.renews["lost"], "but what is lost is not renewed")
		time.Sleep(ttl / 3)
		k.renewFor(ttl)
		require.True(t, k.standing("kept"))
	})
}

func TestSaysForItsSessionThatARenewalIsUnknown(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		lost := k.win("lost")
		k.win("bad")
		k.win("good")
		other := k.open(2, "a")
		k.backend.remove("lost")
		k.backend.failing("renew", "bad")
		time.Sleep(ttl / 2)
		grants, err := k.store.Renew(t.Context(), []lease.Session{k.session, other})
		require.NoError(t, err)
		require.ErrorIs(t, grants[0].Err, errDown)
		require.NotErrorIs(t, grants[0].Err, lease.ErrSessionGone)
		require.Equal(t, []lease.Held{lost}, grants[0].Lost, "what is definite is told all the same")
		require.Equal(t, lease.Grant{TTL: ttl}, grants[1])
		time.Sleep(ttl / 2)
		require.False(t, k.standing("bad"))
		require.True(t, k.standing("good"))
		require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone, "no renewal of all of it within the TTL")
	})
}

func TestDoesNotTakeTheBackendsWordForASession(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		k.win("n")
		k.backend.setFault(func(context.Context, string, string, func()) error { return lease.ErrSessionGone })
		require.NotErrorIs(t, k.renew().Err, lease.ErrSessionGone)
		require.ErrorIs(t, k.renew().Err, lease.ErrUnknown)
		_, err := k.claim(lease.Claim{Name: "m"})
		require.NotErrorIs(t, err, lease.ErrSessionGone)
		require.ErrorIs(t, err, lease.ErrUnknown)
	})
}

func TestDoesNotRenewWhatWasWonByAnUnknownOutcome(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		k.backend.setFault(func(_ context.Context, op, name string, apply func()) error {
			if op != "acquire" || name != "late" {
				apply()
				return nil
			}
			time.AfterFunc(ttl, apply)
			return errDown
		})
		outs, err := k.store.Acquire(t.Context(), k.session, []lease.Claim{{Name: "together"}, {Name: "late"}})
		require.ErrorIs(t, err, errDown)
		require.ErrorContains(t, err, "late")
		require.Nil(t, outs)
		require.True(t, k.standing("together"), "it was won, but its caller can't know")
		k.renewFor(ttl + time.Second)
		require.False(t, k.standing("together"))
		require.True(t, k.standing("late"))
		k.renewFor(ttl)
		require.False(t, k.standing("late"), "it landed late, and stood for one TTL")
		require.Zero(t, k.backend.renews["together"]+k.backend.renews["late"])
	})
}

// A claim is applied at once, but its reply takes long: the session is renewed
// meanwhile, without the name. The name must not end before the session.
func TestCatchesUpOnRenewalsThatAClaimMissed(t *testing.T) {
	late := func(k *kit) {
		k.backend.setFault(func(_ context.Context, op, name string, apply func()) error {
			apply()
			if op == "acquire" {
				time.Sleep(ttl / 2)
			}
			return nil
		})
	}
	claim := func(k *kit) (out lease.Outcome, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			out, err = k.claim(lease.Claim{Name: "n", Nonce: 1})
		}()
		time.Sleep(ttl / 4)
		require.Equal(k.t, lease.Grant{TTL: ttl}, k.renew())
		<-done
		return out, err
	}
	withKit(t, func(t *testing.T, k *kit) {
		late(k)
		out, err := claim(k) // at TTL/2; the session was renewed at TTL/4
		require.NoError(t, err)
		require.True(t, out.OK)
		time.Sleep(3*ttl/4 - 1)
		require.True(t, k.standing("n"), "the session stands")
		require.Equal(t, 1, k.backend.renews["n"])
	})
	withKit(t, func(t *testing.T, k *kit) { // no renewal was missed: nothing to catch up on
		late(k)
		k.win("n")
		require.Zero(t, k.backend.renews["n"])
	})
	withKit(t, func(t *testing.T, k *kit) {
		late(k)
		time.AfterFunc(3*ttl/8, func() { k.backend.remove("n") })
		_, err := claim(k)
		require.ErrorIs(t, err, lease.ErrUnknown)
	})
	withKit(t, func(t *testing.T, k *kit) {
		late(k)
		time.AfterFunc(3*ttl/8, func() { k.backend.failing("renew", "n") })
		_, err := claim(k)
		require.ErrorIs(t, err, errDown)
		k.backend.setFault(nil)
		k.renewFor(ttl)
		require.Zero(t, k.backend.renews["n"], "its caller does not know it for won")
	})
}

func TestRenewsNothingThatWasSuperseded(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		old := k.win("n")
		out, err := k.claim(lease.Claim{Name: "n", Nonce: 2, Supersedes: old.Token})
		require.NoError(t, err)
		require.True(t, out.OK)
		k.renewFor(2 * ttl) // the old ownership is no loss
		require.True(t, k.standing("n"))

		k.backend.failing("acquire", "n")
		_, err = k.claim(lease.Claim{Name: "n", Nonce: 3, Supersedes: out.Record.Token})
		require.ErrorIs(t, err, errDown)
		k.renewFor(ttl)
		require.False(t, k.standing("n"), "its claimant trusts in it no more")
	})
	withKit(t, func(t *testing.T, k *kit) { // what a claim was surely refused, it does not harm
		mine := k.win("n")
		mate := k.open(2, "another")
		for _, c := range []lease.Claim{{Name: "n", Nonce: 2}, {Name: "n", Supersedes: mine.Token + 1}} {
			out, err := k.claim(c)
			require.NoError(t, err)
			require.False(t, out.OK)
			require.Equal(t, mine, out.Record.Held())
		}
		out, err := k.store.Acquire(t.Context(), mate, []lease.Claim{{Name: "n", Supersedes: mine.Token}})
		require.NoError(t, err)
		require.False(t, out[0].OK)
		k.backend.failing("acquire", "n")
		_, err = k.store.Acquire(t.Context(), mate, []lease.Claim{{Name: "n", Supersedes: mine.Token}})
		require.ErrorIs(t, err, errDown)
		_, err = k.claim(lease.Claim{Name: "n", Nonce: 2})
		require.ErrorIs(t, err, errDown)
		k.renewFor(2 * ttl)
		require.True(t, k.standing("n"))
	})
}

func TestRenewsNothingThatWasGivenUp(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		h := k.win("n")
		stale := h
		stale.Nonce++
		outs, err := k.store.Release(t.Context(), []lease.Held{stale, h, h})
		require.NoError(t, err)
		require.False(t, outs[0].OK)
		require.NotEqual(t, outs[1].OK, outs[2].OK, "once")
		k.renewFor(ttl)
		require.Zero(t, k.backend.renews["n"])
	})
	withKit(t, func(t *testing.T, k *kit) {
		bad, good := k.win("bad"), k.win("good")
		stale := good
		stale.Nonce++
		_, err := k.store.Release(t.Context(), []lease.Held{stale})
		require.NoError(t, err)
		k.renewFor(1)
		require.Equal(t, 1, k.backend.renews["good"], "a stale release gives up nothing")
		k.backend.failing("release", "bad")
		outs, err := k.store.Release(t.Context(), []lease.Held{bad, good})
		require.ErrorIs(t, err, errDown)
		require.Nil(t, outs)
		require.False(t, k.standing("good"), "the others are asked for all the same")
		k.renewFor(ttl)
		require.False(t, k.standing("bad"))
	})
	withKit(t, func(t *testing.T, k *kit) { // a renewal meets a release under way
		h := k.win("n")
		k.backend.setFault(func(_ context.Context, op, _ string, apply func()) error {
			apply()
			if op == "release" {
				time.Sleep(time.Second)
			}
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			outs, err := k.store.Release(t.Context(), []lease.Held{h})
			require.NoError(t, err)
			require.True(t, outs[0].OK)
		})
		time.Sleep(time.Second / 2)
		require.Empty(t, k.renew().Lost, "what is released is not lost")
		wg.Wait()
		require.Empty(t, k.renew().Lost)
	})
}

func TestTransfers(t *testing.T) {
	transfer := func(k *kit, h lease.Held, to lease.SessionID) (lease.Outcome, error) {
		offer := lease.Offer{Name: h.Name, Owner: lease.Owner{ID: "b", Incarnation: "b"}, Session: to, TTL: ttl, Nonce: 9}
		outs, err := k.store.(lease.TransferStore).Transfer(k.t.Context(), []lease.Transfer{{Held: h, To: offer}})
		if err != nil {
			return lease.Outcome{}, err
		}
		return outs[0], nil
	}
	withKit(t, func(t *testing.T, k *kit) {
		out, err := transfer(k, k.win("n"), 2)
		require.NoError(t, err)
		require.True(t, out.OK)
		k.renewFor(ttl)
		require.Zero(t, k.backend.renews["n"], "it is the target's")

		// The target's own Store renews it once it has been adopted.
		k2 := &kit{t: t, backend: k.backend, store: must(t, k.backend)}
		k2.session = k2.open(2, "b")
		out, err = transfer(k, k.win("m"), 2)
		require.NoError(t, err)
		out, err = k2.claim(lease.Claim{Name: "m", Nonce: 5, Supersedes: out.Record.Token})
		require.NoError(t, err)
		require.True(t, out.OK)
		k2.renewFor(2 * ttl)
		require.True(t, k.standing("m"))
	})
	withKit(t, func(t *testing.T, k *kit) {
		h := k.win("n")
		for to, want := range map[lease.SessionID]error{goneSession: lease.ErrSessionGone, 0: lease.ErrInvalid} {
			out, err := transfer(k, h, to)
			require.NoError(t, err)
			require.False(t, out.OK)
			require.ErrorIs(t, out.Err, want)
		}
		k.renewFor(2 * ttl)
		require.True(t, k.standing("n"), "nothing was applied, so it is the mover's as before")
		k.backend.remove("n")
		require.Len(t, k.renew().Lost, 1, "and its loss is a loss")

		h = k.win("m")
		k.backend.failing("transfer", "m")
		_, err := transfer(k, h, 2)
		require.ErrorIs(t, err, errDown)
		time.Sleep(2*ttl/3 + 1)
		k.renew()
		time.Sleep(ttl / 3)
		require.False(t, k.standing("m"))
	})
}
