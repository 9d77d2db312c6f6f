package memory_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

func TestAFreeNameIsWonAndTheLoserIsToldByWhom(t *testing.T) {
	s := memory.New()
	a, b := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("b"), time.Minute)
	out := claim(t, s, a, lease.Claim{Name: "n", Nonce: 7, Metadata: map[string]string{"k": "v"}})
	require.True(t, out.OK)
	r := out.Record
	require.Equal(t, lease.Record{
		Name: "n", Owner: a.Owner, Session: 1, Token: r.Token, Nonce: 7, TTL: time.Minute, Left: r.Left, Granted: r.Granted,
		Metadata: map[string]string{"k": "v"},
	}, r)
	require.NotZero(t, r.Token)
	require.Greater(t, r.Left, time.Duration(0))
	require.LessOrEqual(t, r.Left, time.Minute)

	lost := claim(t, s, b, lease.Claim{Name: "n", Nonce: 8})
	require.False(t, lost.OK)
	require.NoError(t, lost.Err)
	require.Equal(t, r.Held(), lost.Record.Held())
	require.Equal(t, a.Owner, lost.Record.Owner)
}

func TestAClaimSupersedesOnlyItsOwnIncarnationsExactToken(t *testing.T) {
	s := memory.New()
	a, sibling := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("a"), time.Minute)
	b := open(t, s, 3, owner("b"), time.Minute)
	r := win(t, s, a, "n")
	for _, c := range []struct {
		sess  lease.Session
		token lease.Token
	}{{b, r.Token}, {a, 0}, {a, r.Token + 1}, {a, r.Token - 1}} {
		out := claim(t, s, c.sess, lease.Claim{Name: "n", Nonce: 8, Supersedes: c.token})
		require.False(t, out.OK, "%+v", c)
		require.Equal(t, r.Held(), out.Record.Held())
	}
	out := claim(t, s, sibling, lease.Claim{Name: "n", Nonce: 9, Supersedes: r.Token})
	require.True(t, out.OK)
	require.Greater(t, out.Record.Token, r.Token)
	require.Equal(t, sibling.ID, out.Record.Session)

	require.NoError(t, s.CloseSession(context.Background(), a))
	require.Len(t, get(t, s, "n"), 1, "it belongs to the sibling now")
	require.True(t, claim(t, s, b, lease.Claim{Name: "free", Supersedes: 99}).OK, "what is free may be claimed by any token")
}

func TestTokensNeverRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		var last lease.Token
		next := func(r lease.Record, how string) lease.Record {
			require.Greater(t, r.Token, last, how)
			last = r.Token
			return r
		}
		a, b := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("b"), time.Minute)
		r := next(win(t, s, a, "n"), "first")
		out, err := s.Release(context.Background(), []lease.Held{r.Held()})
		require.NoError(t, err)
		require.Equal(t, []lease.Outcome{{OK: true}}, out)
		r = next(win(t, s, a, "n"), "after a release")
		next(win(t, s, b, "other"), "of another name")
		out, err = s.Transfer(context.Background(), []lease.Transfer{{Held: r.Held(), To: offer(b, "n")}})
		require.NoError(t, err)
		next(out[0].Record, "by transfer")
		require.NoError(t, s.CloseSession(context.Background(), b))
		next(win(t, s, a, "n"), "after closing")
		time.Sleep(time.Minute)
		c := open(t, s, 3, owner("c"), time.Minute)
		next(win(t, s, c, "n"), "after expiry")
	})
}

func offer(to lease.Session, name string) lease.Offer {
	return lease.Offer{Name: name, Owner: to.Owner, Session: to.ID, TTL: to.TTL, Nonce: 70}
}

func TestReleaseRemovesOnlyThatVeryOwnership(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	r := win(t, s, a, "n")
	wrong := []lease.Held{
		{Name: "n", Token: r.Token + 1, Nonce: r.Nonce}, {Name: "n", Token: r.Token, Nonce: r.Nonce + 1},
		{Name: "m", Token: r.Token, Nonce: r.Nonce},
	}
	out, err := s.Release(context.Background(), append(wrong, r.Held(), r.Held()))
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, true, false}, oks(out))
	require.Equal(t, r.Held(), out[0].Record.Held())
	require.Empty(t, get(t, s, "n"))
}

func oks(out []lease.Outcome) (ok []bool) {
	for _, o := range out {
		ok = append(ok, o.OK)
	}
	return ok
}

func TestTransferMovesToAnOpenSessionOfTheOffersOwner(t *testing.T) {
	s := memory.New()
	a, b := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("b"), time.Hour)
	r := claim(t, s, a, lease.Claim{Name: "n", Nonce: 7, Metadata: map[string]string{"k": "v"}}).Record
	gone, foreign, misnamed := offer(b, "n"), offer(b, "n"), offer(b, "m")
	gone.Session = 99
	foreign.Owner = owner("c")
	stale := r.Held()
	stale.Nonce++
	out, err := s.Transfer(context.Background(), []lease.Transfer{
		{Held: r.Held(), To: gone}, {Held: r.Held(), To: foreign}, {Held: r.Held(), To: misnamed},
		{Held: stale, To: offer(b, "n")}, {Held: lease.Held{Name: "m"}, To: offer(b, "m")},
		{Held: r.Held(), To: offer(b, "n")}, {Held: r.Held(), To: offer(b, "n")},
	})
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, false, false, true, false}, oks(out))
	require.ErrorIs(t, out[0].Err, lease.ErrSessionGone)
	require.ErrorIs(t, out[1].Err, lease.ErrSessionGone)
	require.ErrorIs(t, out[2].Err, lease.ErrInvalid)
	require.NoError(t, out[3].Err)
	require.Equal(t, r.Held(), out[3].Record.Held())
	require.NoError(t, out[4].Err)
	moved := out[5].Record
	require.Greater(t, moved.Token, r.Token)
	require.Equal(t, lease.Record{
		Name: "n", Owner: b.Owner, Session: 2, Token: moved.Token, Nonce: 70, TTL: time.Hour, Left: moved.Left, Granted: moved.Granted,
		Metadata: map[string]string{"k": "v"},
	}, moved)
	require.Equal(t, moved.Held(), out[6].Record.Held())

	out, err = s.Transfer(context.Background(), []lease.Transfer{{Held: moved.Held(), To: offer(a, "n"), Metadata: map[string]string{"x": "y"}}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x": "y"}, out[0].Record.Metadata)
	require.NoError(t, s.CloseSession(context.Background(), b))
	require.Len(t, get(t, s, "n"), 1)
	out, err = s.Transfer(context.Background(), []lease.Transfer{{Held: out[0].Record.Held(), To: offer(a, "n"), Metadata: map[string]string{}}})
	require.NoError(t, err)
	require.Empty(t, out[0].Record.Metadata, "an empty map is none, not the old one")
}

func TestNothingIsDoneUnderASessionThatIsGone(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, a, "n")
	impostor := lease.Session{ID: 1, Owner: owner("b"), TTL: time.Minute}
	require.NoError(t, s.CloseSession(context.Background(), impostor))
	require.Len(t, get(t, s, "n"), 1, "the session is another's")
	require.NoError(t, s.CloseSession(context.Background(), a))
	require.Empty(t, get(t, s, "n"))
	require.NoError(t, s.CloseSession(context.Background(), a), "twice is no error")

	live := open(t, s, 2, owner("a"), time.Minute)
	for _, gone := range []lease.Session{a, {ID: 2, Owner: owner("b")}, {ID: 3, Owner: owner("a")}} {
		out, err := s.Acquire(context.Background(), gone, []lease.Claim{{Name: "n"}})
		require.ErrorIs(t, err, lease.ErrSessionGone)
		require.Nil(t, out)
		grants, err := s.Renew(context.Background(), []lease.Session{gone, live})
		require.NoError(t, err)
		require.ErrorIs(t, grants[0].Err, lease.ErrSessionGone)
		require.Equal(t, lease.Grant{TTL: time.Minute}, grants[1])
	}
	require.Empty(t, get(t, s, "n"))
}

func TestBadInputIsRefusedWithItsName(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	for want, sess := range map[string]lease.Session{
		"ID":          {ID: 0, Owner: owner("a"), TTL: time.Second},
		"TTL":         {ID: 5, Owner: owner("a")},
		"incarnation": {ID: 5, TTL: time.Second},
		"session is":  {ID: 1, Owner: owner("b"), TTL: time.Second},
	} {
		_, err := s.OpenSession(context.Background(), sess)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	out, err := s.Acquire(context.Background(), a, []lease.Claim{{Name: "a//b"}, {Name: strings.Repeat("x", lease.MaxName+1)}, {Name: "fine"}})
	require.NoError(t, err)
	require.ErrorIs(t, out[0].Err, lease.ErrInvalid)
	require.ErrorIs(t, out[1].Err, lease.ErrInvalid)
	require.True(t, out[2].OK)

	odd := memory.New(memory.WithClock(nil), memory.WithMinTTL(-1))
	require.Equal(t, lease.StoreLimits{Name: "memory", While: true, Prompt: true}, odd.Limits())
	require.Equal(t, time.Nanosecond, open(t, odd, 1, owner("a"), 1).TTL)
}

func TestMinTTLRaisesWhatIsGranted(t *testing.T) {
	s := memory.New(memory.WithMinTTL(2 * time.Second))
	require.Equal(t, 2*time.Second, s.Limits().MinTTL)
	a := open(t, s, 1, owner("a"), time.Second)
	require.Equal(t, 2*time.Second, a.TTL)
	require.Equal(t, 2*time.Second, win(t, s, a, "n").TTL)
	grants, err := s.Renew(context.Background(), []lease.Session{a})
	require.NoError(t, err)
	require.Equal(t, []lease.Grant{{TTL: 2 * time.Second}}, grants)
	require.Equal(t, 3*time.Second, open(t, s, 2, owner("a"), 3*time.Second).TTL)
}

func TestADoneContextAppliesNothing(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	r := win(t, s, a, "n")
	before := s.Stats()
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_, open := s.OpenSession(ctx, lease.Session{ID: 2, Owner: owner("a"), TTL: 1})
	_, acquire := s.Acquire(ctx, a, []lease.Claim{{Name: "m"}})
	_, renew := s.Renew(ctx, []lease.Session{a})
	_, release := s.Release(ctx, []lease.Held{r.Held()})
	_, transfer := s.Transfer(ctx, []lease.Transfer{{Held: r.Held(), To: offer(a, "n")}})
	_, read := s.Get(ctx, "n")
	errs := []error{open, s.CloseSession(ctx, a), acquire, renew, release, transfer, read}
	for r, err := range s.List(ctx, "") {
		require.Zero(t, r)
		errs = append(errs, err)
	}
	for e, err := range s.Watch(ctx, "") {
		require.Zero(t, e)
		errs = append(errs, err)
	}
	require.Len(t, errs, 9)
	for i, err := range errs {
		require.ErrorIs(t, err, context.Canceled, "call %d", i)
		require.ErrorIs(t, err, why, "call %d", i)
	}
	require.Equal(t, before, s.Stats())
	require.Equal(t, r.Held(), get(t, s, "n")[0].Held())
	require.Empty(t, get(t, s, "m"))
}

func TestMapsAndSlicesAreNotShared(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	mine := map[string]string{"k": "v"}
	out := claim(t, s, a, lease.Claim{Name: "n", Metadata: mine})
	mine["k"] = "changed"
	out.Record.Metadata["k"] = "changed"
	get(t, s, "n")[0].Metadata["k"] = "changed"
	list(t, s, "")["n"].Metadata["k"] = "changed"
	require.Equal(t, map[string]string{"k": "v"}, get(t, s, "n")[0].Metadata)
}

func TestListYieldsThePrefixAsItStoodWhenItBegan(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	for _, n := range []string{"x/1", "x/2", "x", "y/1"} {
		win(t, s, a, n)
	}
	require.ElementsMatch(t, []string{"x/1", "x/2"}, slices.Collect(maps.Keys(list(t, s, "x/"))))
	require.Len(t, list(t, s, ""), 4)
	require.Empty(t, list(t, s, "z"))

	seen := 0
	for r, err := range s.List(context.Background(), "x") {
		require.NoError(t, err)
		if seen == 0 { // the loop may use the store
			require.NoError(t, s.CloseSession(context.Background(), a))
		}
		require.True(t, strings.HasPrefix(r.Name, "x"))
		seen++
	}
	require.Equal(t, 3, seen)
	require.Empty(t, list(t, s, ""))
}

func TestAListEndsWithItsContext(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	win(t, s, a, "x")
	win(t, s, a, "y")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var errs []error
	for _, err := range s.List(ctx, "") {
		errs = append(errs, err)
		cancel()
	}
	require.Len(t, errs, 2)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], context.Canceled)
}

func TestOfManyWhoClaimAtOnceOneWins(t *testing.T) {
	s := memory.New()
	const owners, rounds = 64, 20
	var wg sync.WaitGroup
	wins := make([][]lease.Token, owners)
	for i := range owners {
		sess := open(t, s, lease.SessionID(i+1), owner(fmt.Sprint(i)), time.Minute)
		wg.Go(func() {
			for n := range rounds {
				out, err := s.Acquire(context.Background(), sess, []lease.Claim{{Name: fmt.Sprint(n), Nonce: uint64(i)}})
				if err == nil && out[0].OK {
					wins[i] = append(wins[i], out[0].Record.Token)
				}
			}
		})
	}
	wg.Wait()
	all := slices.Concat(wins...)
	slices.Sort(all)
	require.Len(t, all, rounds)
	require.Len(t, slices.Compact(all), rounds)
}

func TestStatsCountCalls(t *testing.T) {
	s := memory.New()
	ctx := context.Background()
	a := open(t, s, 1, owner("a"), time.Minute)
	b := open(t, s, 2, owner("b"), time.Minute)
	r := win(t, s, a, "n")
	_, _ = s.Renew(ctx, []lease.Session{a, b, {ID: 3}})
	_, _ = s.Transfer(ctx, []lease.Transfer{{Held: r.Held(), To: offer(b, "n")}})
	_, _ = s.Release(ctx, []lease.Held{r.Held()})
	_, _ = s.Get(ctx, "n")
	list(t, s, "")
	for range s.Watch(ctx, "") {
		break
	}
	require.NoError(t, s.CloseSession(ctx, a))
	require.Equal(t, memory.Stats{
		OpenSession: 2, CloseSession: 1, Acquire: 1, Renew: 1, RenewedSessions: 2,
		Release: 1, Transfer: 1, Get: 1, List: 1, Watch: 1,
	}, s.Stats())
}
