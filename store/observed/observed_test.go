package observed_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
)

// wait is how long an observer waits for a session of ttl.
const wait = ttl + ttl/10

// peer is one Store and its session.
type peer struct {
	t       *testing.T
	store   *observed.Store
	session store.Session
}

func newPeer(t *testing.T, objects observed.Objects, id store.SessionID, opts ...observed.Option) *peer {
	t.Helper()
	s, err := observed.New(objects, opts...)
	require.NoError(t, err)
	owner := store.Owner{ID: fmt.Sprint("node-", id), Incarnation: fmt.Sprint("i", id)}
	p := &peer{t, s, store.Session{ID: id, Owner: owner, TTL: ttl}}
	g, err := s.OpenSession(t.Context(), p.session)
	require.NoError(t, err)
	require.Equal(t, store.Grant{TTL: ttl}, g)
	return p
}

func (p *peer) claim(c store.Claim) store.Outcome {
	p.t.Helper()
	outs, err := p.store.Acquire(p.t.Context(), p.session, []store.Claim{c})
	require.NoError(p.t, err)
	require.Len(p.t, outs, 1)
	return outs[0]
}

func (p *peer) win(name string) store.Record {
	p.t.Helper()
	out := p.claim(store.Claim{Name: name, Nonce: uint64(p.session.ID)})
	require.True(p.t, out.OK, "%+v", out)
	return out.Record
}

func (p *peer) renew() error {
	p.t.Helper()
	grants, err := p.store.Renew(p.t.Context(), []store.Session{p.session})
	require.NoError(p.t, err)
	return grants[0].Err
}

func (p *peer) get(names ...string) []store.Record {
	p.t.Helper()
	found, err := p.store.Get(p.t.Context(), names...)
	require.NoError(p.t, err)
	return found
}

// keep renews p's session until the test ends.
func (p *peer) keep() {
	go func() {
		for p.t.Context().Err() == nil {
			_, _ = p.store.Renew(p.t.Context(), []store.Session{p.session})
			select {
			case <-time.After(ttl / 3):
			case <-p.t.Context().Done():
			}
		}
	}()
}

func TestAnObserverWaitsFromItsOwnFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observedtest.NewMap()
		a := newPeer(t, m, 1)
		a.win("n")
		time.Sleep(20 * ttl) // nobody looked
		b := newPeer(t, m, 2)
		b.keep()
		require.Equal(t, wait, b.get("n")[0].Left)
		time.Sleep(wait - 1)
		require.Equal(t, time.Duration(1), b.get("n")[0].Left)
		require.False(t, b.claim(store.Claim{Name: "n"}).OK)
		c := newPeer(t, m, 3) // b's observations are not its
		time.Sleep(time.Nanosecond)
		require.Len(t, c.get("n"), 1)
		require.Contains(t, m.All(), "sessions/1")
		r := b.win("n")
		require.Equal(t, store.Token(2), r.Token)
		require.NotContains(t, m.All(), "sessions/1", "its death was made final")
		require.Equal(t, "i2", c.get("n")[0].Owner.Incarnation)
		require.ErrorIs(t, a.renew(), store.ErrSessionGone)
	})
}

func TestListingsEndWhatNobodyRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := observedtest.NewNumbered()
		a, idle, b := newPeer(t, n, 1), newPeer(t, n, 2), newPeer(t, n, 3)
		b.keep()
		a.win("x/1")
		a.win("x/2")
		b.win("x/3")
		require.NotNil(t, idle)
		list := func() (names []string) {
			for r, err := range b.store.List(t.Context(), store.Query{Prefix: "x/"}) {
				require.NoError(t, err)
				names = append(names, r.Name)
			}
			return names
		}
		require.ElementsMatch(t, []string{"x/1", "x/2", "x/3"}, list())
		time.Sleep(wait)
		require.Equal(t, []string{"x/3"}, list())
		all := n.All()
		require.Len(t, all, 2, "%v", all) // b's session and record: the others are gone, and so is idle
		require.Contains(t, all, "sessions/3")
		require.Contains(t, all, "records/x_2f3")
	})
}

func TestWhatOperationsCost(t *testing.T) {
	m := observedtest.NewMap()
	a, b := newPeer(t, m, 1), newPeer(t, m, 2)
	var requests atomic.Int64
	m.SetFault(func(_ context.Context, _, _ string, apply func()) error {
		requests.Add(1)
		apply()
		return nil
	})
	costs := func(want int64, what string, f func()) {
		t.Helper()
		requests.Store(0)
		f()
		require.Equal(t, want, requests.Load(), what)
	}
	var r store.Record
	costs(3, "acquire", func() { r = a.win("n") })
	costs(21, "a batch of ten", func() {
		claims := make([]store.Claim, 10)
		for i := range claims {
			claims[i].Name = fmt.Sprint("m", i)
		}
		_, err := a.store.Acquire(t.Context(), a.session, claims)
		require.NoError(t, err)
	})
	costs(1, "a renewal, whatever is held", func() { require.NoError(t, a.renew()) })
	costs(2, "get", func() { b.get("n") })
	costs(12, "a refused batch: eleven records and two sessions, and none is written", func() {
		var claims []store.Claim
		for i := range 10 {
			claims = append(claims, store.Claim{Name: fmt.Sprint("m", i)})
		}
		_, err := b.store.Acquire(t.Context(), b.session, claims)
		require.NoError(t, err)
	})
	costs(3, "release", func() {
		_, err := a.store.Release(t.Context(), []store.Held{r.Held()})
		require.NoError(t, err)
	})
}

func TestASessionThatNobodyCanReadHoldsItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observedtest.NewMap()
		a, b := newPeer(t, m, 1), newPeer(t, m, 2)
		b.keep()
		a.win("n")
		m.Set("sessions/1", []byte(`{"v":2,"inc":"i1","ttl":"1"}`))
		for range 3 {
			require.Equal(t, []store.Record{{Name: "n"}}, b.get("n"))
			require.ErrorIs(t, b.claim(store.Claim{Name: "n"}).Err, store.ErrBadRecord)
			err := a.renew()
			require.Error(t, err)
			require.NotErrorIs(t, err, store.ErrSessionGone)
			time.Sleep(wait)
		}
		m.Remove("sessions/1")
		b.win("n")
	})
}

// rude are objects that panic where they are asked for a number.
type rude struct{ *observedtest.Map }

func (rude) Number(string) (store.Token, error) { panic("rude") }

func TestAPanicOfTheObjectsIsAnError(t *testing.T) {
	a := newPeer(t, rude{observedtest.NewMap()}, 1)
	_, err := a.store.Acquire(t.Context(), a.session, []store.Claim{{Name: "m"}, {Name: "n"}})
	require.ErrorContains(t, err, "it panicked: rude")
	bad := 0
	for r, err := range a.store.List(t.Context(), store.Query{}) {
		require.ErrorIs(t, err, store.ErrBadRecord, "%+v", r)
		bad++
	}
	require.Equal(t, 2, bad)
}

// tight are objects with bounds.
type tight struct{ *observedtest.Map }

func (tight) Sizes() (key, value int) { return 30, 300 }

func (tight) Limits() store.Limits {
	return store.Limits{Name: "tight", MinTTL: ttl, Batch: 3}
}

func TestBoundsOfTheObjects(t *testing.T) {
	o := tight{observedtest.NewMap()}
	a := newPeer(t, o, 1)
	limits := a.store.Limits()
	require.NoError(t, limits.CheckName(strings.Repeat("n", 22)))
	require.ErrorContains(t, limits.CheckName(strings.Repeat("n", 23)), "has 31 bytes, at most 30")
	require.ErrorContains(t, limits.CheckName("ÄÖÜß"), "has 32 bytes, at most 30", "as it is encoded")
	limits.CheckName = nil
	require.Equal(t, o.Limits(), limits)
	require.Equal(t, 128, newPeer(t, observedtest.NewMap(), 1).store.Limits().Batch)
	g, err := a.store.OpenSession(t.Context(), store.Session{ID: 2, Owner: store.Owner{ID: "b", Incarnation: "b"}, TTL: 1})
	require.NoError(t, err)
	require.Equal(t, ttl, g.TTL)

	long := strings.Repeat("n", 23)
	out := a.claim(store.Claim{Name: long})
	require.ErrorIs(t, out.Err, store.ErrInvalid)
	require.ErrorContains(t, out.Err, "has 31 bytes, at most 30")
	require.Empty(t, a.get(long))
	much := map[string]string{"k": strings.Repeat("v", 300)}
	out = a.claim(store.Claim{Name: "n", Metadata: much})
	require.ErrorIs(t, out.Err, store.ErrInvalid)
	require.ErrorContains(t, out.Err, "bytes, at most 300")
	r := a.win("n")
	to := store.Offer{Name: "n", Owner: a.session.Owner, Session: 1, TTL: ttl, Nonce: 7}
	outs, err := a.store.Transfer(t.Context(), []store.Transfer{{Held: r.Held(), To: to, Metadata: much}})
	require.NoError(t, err)
	require.ErrorIs(t, outs[0].Err, store.ErrInvalid)
	require.Equal(t, r.Held(), outs[0].Record.Held())
	owner := store.Owner{ID: strings.Repeat("i", 300), Incarnation: "b"}
	_, err = a.store.OpenSession(t.Context(), store.Session{ID: 3, Owner: owner, TTL: 1})
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "bytes, at most 300")
}

func TestObservationsOfLongAgoAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observedtest.NewMap()
		a := newPeer(t, m, 1)
		a.keep()
		for i := range 3000 {
			s := store.Session{ID: store.SessionID(i + 10), Owner: store.Owner{ID: "b", Incarnation: "b"}, TTL: ttl}
			_, err := a.store.OpenSession(t.Context(), s)
			require.NoError(t, err)
			m.Remove(fmt.Sprint("sessions/", int64(s.ID)))
			time.Sleep(time.Minute)
		}
		require.Less(t, observed.Sights(a.store), 300)
	})
}

// Processes that come and go, each with a Store of its own, leave no objects for long where one Store
// stays in use, though none of them lists. What is held stays.
func TestWhatOwnersLeaveIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := observedtest.NewNumbered()
		long := newPeer(t, objects, 1000)
		long.keep()
		long.win("long")
		for id := store.SessionID(1); id <= 50; id++ {
			newPeer(t, objects, id).win(fmt.Sprint("short/", id))
		}
		require.Len(t, objects.All(), 2*51)
		for range 5 {
			time.Sleep(time.Minute)
			_, err := long.store.OpenSession(t.Context(), long.session)
			require.NoError(t, err)
		}
		require.Len(t, objects.All(), 2)
		require.Len(t, long.get("long"), 1)
	})
}
