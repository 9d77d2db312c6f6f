package lease_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestPerNameRenewsEveryNameOfASession(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		for i := range 20 {
			k.win(fmt.Sprint("n", i))
		}
		k.renewFor(10 * nameTTL)
		rs, err := k.store.Get(t.Context(), "n0", "free", "n19")
		require.NoError(t, err)
		require.Len(t, rs, 2)
		require.Equal(t, "n0", rs[0].Name)
		require.Equal(t, "n19", rs[1].Name)
		time.Sleep(nameTTL)
		require.False(t, k.standing("n0"))
	})
}

func TestPerNameBoundsItsRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, opts := range map[int][]lease.PerNameOption{
			16: {lease.WithPerNameConcurrency(0), lease.WithPerNameClock(nil)}, 3: {lease.WithPerNameConcurrency(3)},
		} {
			m := newNameMap()
			k := &nameKit{t: t, backend: m, store: lease.PerName(m, opts...)}
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

func TestPerNameTellsALossAgainAndAgainForTwoTTLs(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		lost := k.win("lost")
		k.win("kept")
		k.backend.remove("lost")
		for range 6 { // a reply may not arrive, so the next one tells it too
			require.Equal(t, lease.Grant{TTL: nameTTL, Lost: []lease.Held{lost}}, k.renew())
			time.Sleep(nameTTL/3 - 1)
		}
		require.Equal(t, 1, k.backend.renews["lost"], "but what is lost is not renewed")
		time.Sleep(nameTTL / 3)
		k.renewFor(nameTTL)
		require.True(t, k.standing("kept"))
	})
}

func TestPerNameSaysForItsSessionThatARenewalIsUnknown(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		lost := k.win("lost")
		k.win("bad")
		k.win("good")
		other := k.open(2, "a")
		k.backend.remove("lost")
		k.backend.failing("renew", "bad")
		time.Sleep(nameTTL / 2)
		grants, err := k.store.Renew(t.Context(), []lease.Session{k.session, other})
		require.NoError(t, err)
		require.ErrorIs(t, grants[0].Err, errDown)
		require.NotErrorIs(t, grants[0].Err, lease.ErrSessionGone)
		require.Equal(t, []lease.Held{lost}, grants[0].Lost, "what is definite is told all the same")
		require.Equal(t, lease.Grant{TTL: nameTTL}, grants[1])
		time.Sleep(nameTTL / 2)
		require.False(t, k.standing("bad"))
		require.True(t, k.standing("good"))
		require.ErrorIs(t, k.renew().Err, lease.ErrSessionGone, "no renewal of all of it within the TTL")
	})
}

func TestPerNameDoesNotTakeTheBackendsWordForASession(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		k.win("n")
		k.backend.setFault(func(context.Context, string, string, func()) error { return lease.ErrSessionGone })
		require.NotErrorIs(t, k.renew().Err, lease.ErrSessionGone)
		require.ErrorIs(t, k.renew().Err, lease.ErrUnknown)
		_, err := k.claim(lease.Claim{Name: "m"})
		require.NotErrorIs(t, err, lease.ErrSessionGone)
		require.ErrorIs(t, err, lease.ErrUnknown)
	})
}

func TestPerNameDoesNotRenewWhatWasWonByAnUnknownOutcome(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		k.backend.setFault(func(_ context.Context, op, name string, apply func()) error {
			if op != "acquire" || name != "late" {
				apply()
				return nil
			}
			time.AfterFunc(nameTTL, apply)
			return errDown
		})
		outs, err := k.store.Acquire(t.Context(), k.session, []lease.Claim{{Name: "together"}, {Name: "late"}})
		require.ErrorIs(t, err, errDown)
		require.ErrorContains(t, err, "late")
		require.Nil(t, outs)
		require.True(t, k.standing("together"), "it was won, but its caller can't know")
		k.renewFor(nameTTL + time.Second)
		require.False(t, k.standing("together"))
		require.True(t, k.standing("late"))
		k.renewFor(nameTTL)
		require.False(t, k.standing("late"), "it landed late, and stood for one TTL")
		require.Zero(t, k.backend.renews["together"]+k.backend.renews["late"])
	})
}

// A claim is applied at once, but its reply takes long: the session is renewed
// meanwhile, without the name. The name must not end before the session.
func TestPerNameCatchesUpOnRenewalsThatAClaimMissed(t *testing.T) {
	late := func(k *nameKit) {
		k.backend.setFault(func(_ context.Context, op, name string, apply func()) error {
			apply()
			if op == "acquire" {
				time.Sleep(nameTTL / 2)
			}
			return nil
		})
	}
	claim := func(k *nameKit) (out lease.Outcome, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			out, err = k.claim(lease.Claim{Name: "n", Nonce: 1})
		}()
		time.Sleep(nameTTL / 4)
		require.Equal(k.t, lease.Grant{TTL: nameTTL}, k.renew())
		<-done
		return out, err
	}
	perName(t, func(t *testing.T, k *nameKit) {
		late(k)
		out, err := claim(k) // at TTL/2; the session was renewed at TTL/4
		require.NoError(t, err)
		require.True(t, out.OK)
		time.Sleep(3*nameTTL/4 - 1)
		require.True(t, k.standing("n"), "the session stands")
		require.Equal(t, 1, k.backend.renews["n"])
	})
	perName(t, func(t *testing.T, k *nameKit) { // no renewal was missed: nothing to catch up on
		late(k)
		k.win("n")
		require.Zero(t, k.backend.renews["n"])
	})
	perName(t, func(t *testing.T, k *nameKit) {
		late(k)
		time.AfterFunc(3*nameTTL/8, func() { k.backend.remove("n") })
		_, err := claim(k)
		require.ErrorIs(t, err, lease.ErrUnknown)
	})
	perName(t, func(t *testing.T, k *nameKit) {
		late(k)
		time.AfterFunc(3*nameTTL/8, func() { k.backend.failing("renew", "n") })
		_, err := claim(k)
		require.ErrorIs(t, err, errDown)
		k.backend.setFault(nil)
		k.renewFor(nameTTL)
		require.Zero(t, k.backend.renews["n"], "its caller does not know it for won")
	})
}

func TestPerNameRenewsNothingThatWasSuperseded(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		old := k.win("n")
		out, err := k.claim(lease.Claim{Name: "n", Nonce: 2, Supersedes: old.Token})
		require.NoError(t, err)
		require.True(t, out.OK)
		k.renewFor(2 * nameTTL) // the old ownership is no loss
		require.True(t, k.standing("n"))

		k.backend.failing("acquire", "n")
		_, err = k.claim(lease.Claim{Name: "n", Nonce: 3, Supersedes: out.Record.Token})
		require.ErrorIs(t, err, errDown)
		k.renewFor(nameTTL)
		require.False(t, k.standing("n"), "its claimant trusts in it no more")
	})
	perName(t, func(t *testing.T, k *nameKit) { // what a claim was surely refused, it does not harm
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
		k.renewFor(2 * nameTTL)
		require.True(t, k.standing("n"))
	})
}

func TestPerNameRenewsNothingThatWasGivenUp(t *testing.T) {
	perName(t, func(t *testing.T, k *nameKit) {
		h := k.win("n")
		stale := h
		stale.Nonce++
		outs, err := k.store.Release(t.Context(), []lease.Held{stale, h, h})
		require.NoError(t, err)
		require.False(t, outs[0].OK)
		require.NotEqual(t, outs[1].OK, outs[2].OK, "once")
		k.renewFor(nameTTL)
		require.Zero(t, k.backend.renews["n"])
	})
	perName(t, func(t *testing.T, k *nameKit) {
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
		k.renewFor(nameTTL)
		require.False(t, k.standing("bad"))
	})
	perName(t, func(t *testing.T, k *nameKit) { // a renewal meets a release under way
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

func TestPerNameTransfers(t *testing.T) {
	transfer := func(k *nameKit, h lease.Held, to lease.SessionID) (lease.Outcome, error) {
		offer := lease.Offer{Name: h.Name, Owner: lease.Owner{ID: "b", Incarnation: "b"}, Session: to, TTL: nameTTL, Nonce: 9}
		outs, err := k.store.(lease.Transferer).Transfer(k.t.Context(), []lease.Move{{Held: h, To: offer}})
		if err != nil {
			return lease.Outcome{}, err
		}
		return outs[0], nil
	}
	perName(t, func(t *testing.T, k *nameKit) {
		out, err := transfer(k, k.win("n"), 2)
		require.NoError(t, err)
		require.True(t, out.OK)
		k.renewFor(nameTTL)
		require.Zero(t, k.backend.renews["n"], "it is the target's")

		// The target's own Store renews it once it has been adopted.
		k2 := &nameKit{t: t, backend: k.backend, store: lease.PerName(k.backend)}
		k2.session = k2.open(2, "b")
		out, err = transfer(k, k.win("m"), 2)
		require.NoError(t, err)
		out, err = k2.claim(lease.Claim{Name: "m", Nonce: 5, Supersedes: out.Record.Token})
		require.NoError(t, err)
		require.True(t, out.OK)
		k2.renewFor(2 * nameTTL)
		require.True(t, k.standing("m"))
	})
	perName(t, func(t *testing.T, k *nameKit) {
		h := k.win("n")
		for to, want := range map[lease.SessionID]error{goneSession: lease.ErrSessionGone, 0: lease.ErrInvalid} {
			out, err := transfer(k, h, to)
			require.NoError(t, err)
			require.False(t, out.OK)
			require.ErrorIs(t, out.Err, want)
		}
		k.renewFor(2 * nameTTL)
		require.True(t, k.standing("n"), "nothing was applied, so it is the mover's as before")
		k.backend.remove("n")
		require.Len(t, k.renew().Lost, 1, "and its loss is a loss")

		h = k.win("m")
		k.backend.failing("transfer", "m")
		_, err := transfer(k, h, 2)
		require.ErrorIs(t, err, errDown)
		time.Sleep(2*nameTTL/3 + 1)
		k.renew()
		time.Sleep(nameTTL / 3)
		require.False(t, k.standing("m"))
	})
}
