package observed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// wait is how long an observer waits for a session of ttl.
const wait = ttl + ttl/10

// peer is one Store and its session.
type peer struct {
	t       *testing.T
	store   *observed.Store
	session store.Session
}

func newPeer(t *testing.T, objects observed.Objects, id store.SessionID) *peer {
	t.Helper()
	s := must(observed.New(objects))(t)
	owner := store.Owner{ID: fmt.Sprint("node-", id), Incarnation: fmt.Sprint("i", id)}
	p := &peer{t, s, store.Session{ID: id, Owner: owner, TTL: ttl}}
	g := must(s.OpenSession(t.Context(), p.session))(t)
	require.Equal(t, store.Grant{TTL: ttl}, g)
	return p
}

func (p *peer) claim(c store.Claim) store.Outcome {
	p.t.Helper()
	outs := must(p.store.Acquire(p.t.Context(), p.session, []store.Claim{c}))(p.t)
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
	grants := must(p.store.Renew(p.t.Context(), []store.Session{p.session}))(p.t)
	return grants[0].Err
}

func (p *peer) get(names ...string) []store.Record {
	p.t.Helper()
	found := must(p.store.Get(p.t.Context(), names...))(p.t)
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
		own := b.win("own")
		m.Set("sessions/1", []byte(`{"v":2,"inc":"i1","ttl":"1"}`))
		for range 3 {
			require.Equal(t, []store.Record{{Name: "n"}}, b.get("n"))
			require.ErrorIs(t, b.claim(store.Claim{Name: "n"}).Err, store.ErrBadRecord)
			_, acquired := a.store.Acquire(t.Context(), a.session, []store.Claim{{Name: "m"}})
			for _, err := range []error{a.renew(), acquired} {
				require.Error(t, err)
				require.NotErrorIs(t, err, store.ErrSessionGone)
			}
			to := store.Offer{Name: "own", Owner: a.session.Owner, Session: 1, TTL: ttl, Nonce: 8}
			outs := must(b.store.Transfer(t.Context(), []store.Transfer{{Held: own.Held(), To: to}}))(t)
			require.ErrorIs(t, outs[0].Err, store.ErrBadRecord)
			time.Sleep(wait)
		}
		m.Remove("sessions/1")
		b.win("n")
	})
}

// tight are objects with bounds.
type tight struct{ *observedtest.Map }

func (tight) Limits() store.Limits {
	return store.Limits{Name: "tight", MinTTL: ttl, Batch: 3}
}

func TestBoundsOfTheObjects(t *testing.T) {
	o := tight{observedtest.NewMap()}
	a := newPeer(t, o, 1)
	require.Equal(t, o.Limits(), a.store.Limits())
	require.Equal(t, 128, newPeer(t, observedtest.NewMap(), 1).store.Limits().Batch)
	g, err := a.store.OpenSession(t.Context(), store.Session{ID: 2, Owner: store.Owner{ID: "b", Incarnation: "b"}, TTL: 1})
	require.NoError(t, err)
	require.Equal(t, ttl, g.TTL)
}

func TestObservationsOfWhatIsGoneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := observedtest.NewMap()
		a := newPeer(t, m, 1)
		a.keep()
		for i := range 100 {
			s := store.Session{ID: store.SessionID(i + 10), Owner: store.Owner{ID: "b", Incarnation: "b"}, TTL: ttl}
			_, err := a.store.OpenSession(t.Context(), s)
			require.NoError(t, err)
			m.Remove(fmt.Sprint("sessions/", int64(s.ID)))
			time.Sleep(time.Minute)
		}
		require.Less(t, observed.Sights(a.store), 5)
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// askew is the clock of a machine that has another time of day than all others, that
// began to count at another moment, and that counts faster or slower.
type askew struct {
	store.Clock
	mono, wall time.Duration
	percent    time.Duration
}

func (c askew) Now() store.Reading {
	r := c.Clock.Now()
	return store.Reading{Mono: r.Mono/100*c.percent + c.mono, Wall: r.Wall + int64(c.wall)}
}

// fleet makes Stores of machines that have nothing in common but the objects: the
// first is slow, the second fast, and so on; times of day are hours apart. Between the
// fastest and the slowest lies what the margin allows.
func fleet(objects observed.Objects) func() store.Store {
	var n atomic.Int64
	return func() store.Store {
		i := time.Duration(n.Add(1))
		s, err := observed.NewWithClock(objects, askew{
			store.SystemClock(), i * 24 * time.Hour, (i%5 - 2) * 7 * time.Hour, 105 - i%2*10,
		})
		if err != nil {
			panic(err)
		}
		return s
	}
}

// kit are the objects of a case, and a hand that writes into them.
type kit struct {
	name    string
	objects func() (observed.Objects, *observedtest.Map)
}

var kits = []kit{
	{"tokens counted", func() (observed.Objects, *observedtest.Map) {
		m := observedtest.NewMap()
		return m, m
	}},
	{"tokens of versions", func() (observed.Objects, *observedtest.Map) {
		n := observedtest.NewNumbered()
		return n, n.Map
	}},
}

func (k kit) fresh(storetest.TB) func() store.Store {
	objects, _ := k.objects()
	return fleet(objects)
}

// options are for a store whose sessions die a TTL and the margin after somebody's
// first look.
func (k kit) options() []storetest.Option {
	return []storetest.Option{
		storetest.FakeTime(), storetest.Observed(), storetest.ExpirySlack(1350 * time.Millisecond),
		storetest.Unreachable(func(storetest.TB) func() store.Store {
			objects, m := k.objects()
			m.SetFault(func(ctx context.Context, _, _ string, _ func()) error {
				<-ctx.Done()
				return ctx.Err()
			})
			return fleet(objects)
		}),
		storetest.BadRecords(func(storetest.TB) (func() store.Store, func(string)) {
			objects, m := k.objects()
			return fleet(objects), func(name string) {
				m.Set("records/"+strings.ReplaceAll(name, "/", "_2f"), []byte(`{"v":2,"name":"`+name+`"}`))
			}
		}),
	}
}

func TestConformance(t *testing.T) {
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) { storetest.Run(t, k.fresh, k.options()...) })
	}
}

// With requests that take a while, operations truly overlap.
func TestConformanceOverSlowObjects(t *testing.T) {
	kits := kits
	if !tier.Nightly() {
		kits = kits[:1]
	}
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) {
			slow := func(storetest.TB) func() store.Store {
				objects, m := k.objects()
				var n atomic.Int64
				m.SetFault(func(_ context.Context, _, _ string, apply func()) error {
					time.Sleep(time.Duration(n.Add(1)*7919%40) * time.Microsecond)
					apply()
					time.Sleep(time.Duration(n.Add(1)*7919%40) * time.Microsecond)
					return nil
				})
				return fleet(objects)
			}
			storetest.Run(t, slow, storetest.FakeTime(), storetest.Observed(), storetest.ExpirySlack(1400*time.Millisecond))
		})
	}
}

// TestADenialIsOfTheWholeCall: lease.ErrDenied says that nothing of a call was applied.
func TestADenialIsOfTheWholeCall(t *testing.T) {
	down := errors.New("down")
	for _, k := range kits {
		for op, call := range map[string]func(a, b *peer, names []string, held []store.Held) error{
			"acquire": func(a, _ *peer, names []string, _ []store.Held) error {
				var claims []store.Claim
				for _, name := range names {
					claims = append(claims, store.Claim{Name: "new/" + name, Nonce: 7})
				}
				_, err := a.store.Acquire(t.Context(), a.session, claims)
				return err
			},
			"release": func(a, _ *peer, _ []string, held []store.Held) error {
				_, err := a.store.Release(t.Context(), held)
				return err
			},
			"transfer": func(a, b *peer, _ []string, held []store.Held) error {
				var moves []store.Transfer
				for _, h := range held {
					moves = append(moves, store.Transfer{Held: h, To: store.Offer{
						Name: h.Name, Owner: b.session.Owner, Session: b.session.ID, TTL: ttl, Nonce: 8,
					}})
				}
				_, err := a.store.Transfer(t.Context(), moves)
				return err
			},
		} {
			for _, x := range []struct {
				names []string
				other error
				is    bool
			}{
				{[]string{"denied"}, nil, true},
				{[]string{"denied", "x"}, store.ErrDenied, true},
				{[]string{"x", "denied"}, nil, false},
				{[]string{"x", "denied"}, down, false},
			} {
				objects, m := k.objects()
				a, b := newPeer(t, objects, 1), newPeer(t, objects, 2)
				var held []store.Held
				for _, name := range x.names {
					held = append(held, a.win(name).Held())
				}
				m.SetFault(func(_ context.Context, o, key string, apply func()) error {
					switch {
					case o == "get":
					case strings.HasSuffix(key, "denied"):
						return store.ErrDenied
					case x.other != nil:
						return x.other
					}
					apply()
					return nil
				})
				err := call(a, b, x.names, held)
				require.Error(t, err)
				require.Equal(t, x.is, errors.Is(err, store.ErrDenied), "%s %s %v %v: %v", k.name, op, x.names, x.other, err)
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	s := must(observed.New(observedtest.NewMap()))(t)
	inputtest.Contexts(t, s)
	inputtest.Zeros(t, nil, new(observed.Store), new(observed.View))
	_, err := new(observed.Store).Get(t.Context(), "a")
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "observed.New")
	for _, objects := range []observed.Objects{nil, (*observedtest.Map)(nil)} {
		_, err = observed.New(objects)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, "observed.New: objects")
	}
}

// fails makes objects panic at each op about a key with that prefix.
func fails(m *observedtest.Map, op, prefix string) {
	m.SetFault(func(_ context.Context, o, key string, apply func()) error {
		if o == op && strings.HasPrefix(key, prefix) {
			panic("rude")
		}
		apply()
		return nil
	})
}

// A request that panicked on a goroutine of the store's has no answer, whichever it is of those that a call
// consists of: so a session whose look panics is not gone.
func TestAPanicIsNoAnswer(t *testing.T) {
	names := []string{"x", "y", "z"}
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) {
			objects, m := k.objects()
			a, b := newPeer(t, objects, 1), newPeer(t, objects, 2)
			var held []store.Held
			var claims []store.Claim
			var moves []store.Transfer
			for _, name := range names {
				h := a.win(name).Held()
				held, claims = append(held, h), append(claims, store.Claim{Name: "new/" + name, Nonce: 7})
				moves = append(moves, store.Transfer{Held: h, To: store.Offer{
					Name: name, Owner: b.session.Owner, Session: b.session.ID, TTL: ttl, Nonce: 8,
				}})
			}
			ctx := t.Context()
			release := "put" // of a tombstone
			if k.name == "tokens of versions" {
				release = "delete"
			}
			get := func() error { _, err := a.store.Get(ctx, names...); return err }
			acquire := func() error { _, err := a.store.Acquire(ctx, a.session, claims); return err }
			for call, x := range map[string]struct {
				op, prefix string
				do         func() error
			}{
				"get":                  {"get", "records/", get},
				"get, its look":        {"get", "sessions/", get},
				"acquire":              {"put", "records/", acquire},
				"acquire, what stands": {"get", "records/", acquire},
				"acquire, its look": {"get", "sessions/1", func() error {
					_, err := b.store.Acquire(ctx, b.session, []store.Claim{{Name: "x"}})
					return err
				}},
				"transfer": {"put", "records/", func() error { _, err := a.store.Transfer(ctx, moves); return err }},
				"release":  {release, "records/", func() error { _, err := a.store.Release(ctx, held); return err }},
				"renew": {"put", "sessions/", func() error {
					grants := must(a.store.Renew(ctx, []store.Session{a.session}))(t)
					return grants[0].Err
				}},
			} {
				fails(m, x.op, x.prefix)
				err := x.do()
				m.SetFault(nil)
				require.ErrorContains(t, err, "panicked", call)
				require.NotErrorIs(t, err, store.ErrSessionGone, call)
				require.Len(t, a.get(names...), len(names), "%s: nothing was done", call)
			}
		})
	}
}

// numberless are objects that have no numbers.
type numberless struct{ *observedtest.Map }

func (numberless) Number(string) (store.Token, error) { return 0, errors.New("rude") }

func TestAVersionWithoutANumberIsNoRecord(t *testing.T) {
	a := newPeer(t, numberless{observedtest.NewMap()}, 1)
	for _, claims := range [][]store.Claim{{{Name: "l"}}, {{Name: "m"}, {Name: "n"}}} {
		_, err := a.store.Acquire(t.Context(), a.session, claims)
		require.ErrorContains(t, err, "rude")
	}
	bad := 0
	for r, err := range a.store.List(t.Context(), store.Query{}) {
		require.ErrorIs(t, err, store.ErrBadRecord, "%+v", r)
		bad++
	}
	require.Equal(t, 3, bad)
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
