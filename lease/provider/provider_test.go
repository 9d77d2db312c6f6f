package provider_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
)

func over(t *testing.T, s store.Store) *provider.Provider {
	p := must(provider.New(s))(t)
	return p
}

func acquire(t *testing.T, p *provider.Provider, key, owner string, ttl time.Duration) provider.Result {
	t.Helper()
	r := must(p.Acquire(t.Context(), key, owner, ttl))(t)
	return r
}

// Two processes act in the names of owners, over each kind of store.
func TestOverStores(t *testing.T) {
	etcd := "etcd://" + strings.TrimPrefix(etcdtest.Start(t).Endpoints()[0], "http://")
	objects := observedtest.NewNumbered()
	backing := memory.New()
	for name, s := range map[string]struct {
		client func() store.Store
		moves  bool // by the same session
	}{
		"memory":   {func() store.Store { return backing }, true},
		"observed": {func() store.Store { s, err := observed.New(objects); require.NoError(t, err); return s }, true},
		"etcd":     {func() store.Store { return opened(t, etcd) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			const ttl = 20 * time.Second
			p, q := over(t, s.client()), over(t, s.client())
			first := acquire(t, p, name, "a", ttl)
			require.True(t, first.Acquired)
			require.Equal(t, "a", first.Owner)
			require.WithinRange(t, first.Expires, time.Now().Add(ttl-5*time.Second), time.Now().Add(ttl+time.Second))
			refused := acquire(t, q, name, "b", ttl)
			require.False(t, refused.Acquired)
			require.Equal(t, "a", refused.Owner)
			require.Zero(t, refused.Token)

			again := acquire(t, q, name, "a", ttl)
			require.True(t, again.Acquired)
			require.Equal(t, first.Token, again.Token, "of the same owner, with the same TTL")
			longer := acquire(t, q, name, "a", 2*ttl)
			require.Greater(t, longer.Token, first.Token)
			renewed, err := p.Renew(t.Context(), name, "a", 2*ttl)
			require.NoError(t, err)
			require.True(t, renewed)
			renewed = must(p.Renew(t.Context(), name, "b", ttl))(t)
			require.False(t, renewed)
			for _, other := range []time.Duration{ttl, 3 * ttl, 2 * ttl} {
				renewed = must(q.Renew(t.Context(), name, "a", other))(t)
				require.True(t, renewed, "to %v", other)
				require.Greater(t, acquire(t, p, name, "a", other).Token, longer.Token)
			}

			require.NoError(t, p.Release(t.Context(), name, "b"), "it does nothing")
			owner := must(p.Owner(t.Context(), name))(t)
			require.Equal(t, "a", owner)

			moved, err := q.Transfer(t.Context(), name, "b", "c", ttl)
			require.NoError(t, err)
			require.False(t, moved)
			moved = must(q.Transfer(t.Context(), name, "a", "c", ttl))(t)
			require.True(t, moved)
			moved = must(p.Transfer(t.Context(), name, "a", "c", ttl))(t)
			require.True(t, moved, "it has been, and the call may be repeated")
			moved = must(p.Transfer(t.Context(), name, "a", "c", 2*ttl))(t)
			require.True(t, moved, "also for another time")
			third := acquire(t, p, name, "c", ttl)
			require.True(t, third.Acquired)
			require.Greater(t, third.Token, longer.Token)

			require.NoError(t, q.Release(t.Context(), name, "c"))
			require.NoError(t, q.Release(t.Context(), name, "c"), "again")
			owner = must(p.Owner(t.Context(), name))(t)
			require.Empty(t, owner)
			require.Greater(t, acquire(t, p, name, "b", ttl).Token, third.Token)

			short := acquire(t, p, name+"/short", "a", time.Second) // etcd grants 2 s
			record := func() lease.Record {
				key := must(provider.Name(name + "/short"))(t)
				found, err := s.client().Get(t.Context(), key)
				require.NoError(t, err)
				require.Len(t, found, 1)
				return found[0]
			}
			require.Less(t, time.Until(short.Expires), record().TTL, "as granted")
			moved = must(p.Transfer(t.Context(), name+"/short", "a", "c", time.Second))(t)
			require.True(t, moved)
			require.Less(t, time.Until(short.Expires), record().TTL, "as granted")
		})
	}
}

func opened(t *testing.T, url string) store.Store {
	s, end, err := open.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end()) })
	return s
}

// A call that lands late, after the same owner was told to have the key for longer, takes nothing
// away from it: be it a claim for less time, a release or a transfer.
func TestWhatLandsLate(t *testing.T) {
	for name, give := range map[string]func(*provider.Provider) error{
		"acquire": func(p *provider.Provider) error {
			_, err := p.Acquire(context.Background(), "k", "a", time.Second)
			return err
		},
		"release": func(p *provider.Provider) error { return p.Release(context.Background(), "k", "a") },
		"transfer": func(p *provider.Provider) error {
			_, err := p.Transfer(context.Background(), "k", "a", "c", time.Second)
			return err
		},
	} {
		for nth := 1; nth <= 2; nth++ { // of the two steps
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backing := memory.New()
					late := faultstore.Wrap(backing)
					p, q := over(t, late), over(t, backing)
					acquire(t, p, "k", "a", 5*time.Second)
					n := 0
					late.SetRule(func(c faultstore.Call) faultstore.Fault {
						if c.Op == faultstore.Acquire || c.Op == faultstore.Release || c.Op == faultstore.Transfer {
							if n++; n == nth {
								return faultstore.Fault{Kind: faultstore.LandLate, Delay: 2 * time.Second}
							}
						}
						return faultstore.Fault{}
					})
					require.ErrorIs(t, give(p), lease.ErrUnknown)
					time.Sleep(time.Second)
					held := acquire(t, q, "k", "a", 5*time.Second)
					require.True(t, held.Acquired)
					for time.Now().Before(held.Expires.Add(-100 * time.Millisecond)) {
						require.False(t, acquire(t, q, "k", "b", time.Second).Acquired, "%v before it expires", time.Until(held.Expires))
						time.Sleep(50 * time.Millisecond)
					}
					time.Sleep(3 * time.Second)
					require.True(t, acquire(t, q, "k", "b", time.Second).Acquired)
				})
			})
		}
	}
}

// quick is a store whose clock is 9 % faster than that of the others.
type quick struct{ *memory.Store }

func (q quick) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	s.TTL = s.TTL * 100 / 109
	g, err := q.Store.OpenSession(ctx, s)
	g.TTL = g.TTL * 109 / 100
	return g, err
}

// While the store's clock is less than a tenth faster than the owner's, no other owner gets the key
// before the first one's Result expires.
func TestExpiresBeforeTheStoreDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := over(t, quick{memory.New()})
		const ttl = 30 * time.Second
		for what, held := range map[string]func() provider.Result{
			"acquired": func() provider.Result { return acquire(t, p, "acquired", "a", ttl) },
			"renewed": func() provider.Result {
				acquire(t, p, "renewed", "a", ttl)
				time.Sleep(ttl / 3)
				return acquire(t, p, "renewed", "a", ttl)
			},
		} {
			for r := held(); time.Now().Before(r.Expires); time.Sleep(10 * time.Millisecond) {
				require.False(t, acquire(t, p, what, "b", ttl).Acquired, "%v before it expires", time.Until(r.Expires))
			}
		}
	})
}

func TestBadInput(t *testing.T) {
	_, err := provider.New(nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	p := over(t, memory.New())
	for name, l := range map[string]*provider.Provider{"provider": p, "zero": new(provider.Provider)} {
		_, err := l.Acquire(t.Context(), "k", "", time.Minute)
		require.ErrorIs(t, err, lease.ErrInvalid, name)
		_, err = l.Renew(t.Context(), "k", "", time.Minute)
		require.ErrorIs(t, err, lease.ErrInvalid, name)
		inputtest.Contexts(t, l)
		_, err = l.Transfer(t.Context(), "k", "a", "", time.Minute)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorIs(t, l.Release(t.Context(), "k", ""), lease.ErrInvalid)
		_, err = l.Owner(t.Context(), "")
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
	_, err = over(t, struct{ store.Store }{memory.New()}).Transfer(t.Context(), "k", "a", "b", time.Minute)
	require.ErrorIs(t, err, lease.ErrUnsupported)
}

// A store that panics, and one that denies.
func TestRudeStores(t *testing.T) {
	s := faultstore.Wrap(memory.New())
	p := over(t, s)
	s.SetRule(func(faultstore.Call) faultstore.Fault { panic("rude") })
	_, err := p.Acquire(t.Context(), "k", "a", time.Second)
	require.ErrorContains(t, err, "rude")
	require.ErrorContains(t, err, `"k" for "a"`)
}

// bounded is a store with limits, which counts what it is asked.
type bounded struct {
	*memory.Store
	limits store.Limits
}

func (b bounded) Limits() store.Limits { return b.limits }

func asked(s *memory.Store) uint64 {
	x := s.Stats()
	return x.OpenSession + x.CloseSession + x.Acquire + x.Renew + x.Release + x.Transfer + x.Get
}

// Every call with every bad argument is refused before the store is asked, with the argument's name
// and its bound.
func TestEveryCallRefusesBadArguments(t *testing.T) {
	limits := store.Limits{Name: "small", MinTTL: 2 * time.Second, MaxTTL: time.Hour, MaxMetadata: 64, CheckName: func(name string) error {
		if len(name) > 20 {
			return errors.New("at most 20 bytes")
		}
		return nil
	}}
	s := memory.New()
	p := over(t, bounded{s, limits})
	type args struct {
		ctx             context.Context
		key, owner, to  string
		ttl             time.Duration
		name, says, not string
	}
	good := args{ctx: t.Context(), key: "k", owner: "a", to: "b", ttl: time.Minute}
	with := func(change func(*args), name, says, not string) args {
		a := good
		change(&a)
		a.name, a.says, a.not = name, says, not
		return a
	}
	calls := map[string]func(args) error{
		"acquire":  func(a args) error { _, err := p.Acquire(a.ctx, a.key, a.owner, a.ttl); return err },
		"owner":    func(a args) error { _, err := p.Owner(a.ctx, a.key); return err },
		"renew":    func(a args) error { _, err := p.Renew(a.ctx, a.key, a.owner, a.ttl); return err },
		"release":  func(a args) error { return p.Release(a.ctx, a.key, a.owner) },
		"transfer": func(a args) error { _, err := p.Transfer(a.ctx, a.key, a.owner, a.to, a.ttl); return err },
	}
	for call, do := range calls {
		require.NoError(t, do(good), call)
	}
	for _, a := range []args{
		with(func(a *args) { a.ctx = nil }, "ctx", "nil", ""),
		with(func(a *args) { a.key = "" }, "name", "empty", ""),
		with(func(a *args) { a.key = "\xff" }, "name", "not UTF-8", ""),
		with(func(a *args) { a.key = strings.Repeat("x", store.MaxName) }, "name", "at most 512", ""),
		with(func(a *args) { a.key = strings.Repeat("x", 15) }, "name", "at most 20 bytes (a bound of store small)", ""),
		with(func(a *args) { a.owner = "" }, "owner", "must be UTF-8 of 1 to 256 bytes", "owner"),
		with(func(a *args) { a.owner = "\xff" }, "owner", "must be UTF-8", "owner"),
		with(func(a *args) { a.owner = strings.Repeat("x", 257) }, "owner", "1 to 256 bytes", "owner"),
		with(func(a *args) { a.to = "" }, "to", "must be UTF-8 of 1 to 256 bytes", "acquire owner renew release"),
		with(func(a *args) { a.to = "\xff" }, "to", "must be UTF-8", "acquire owner renew release"),
		with(func(a *args) { a.to = strings.Repeat("x", 257) }, "to", "1 to 256 bytes", "acquire owner renew release"),
		with(func(a *args) { a.ttl = 0 }, "ttl", "at least 2s", "owner release"),
		with(func(a *args) { a.ttl = -time.Second }, "ttl", "at least 2s", "owner release"),
		with(func(a *args) { a.ttl = time.Second }, "ttl", "at least 2s", "owner release"),
		with(func(a *args) { a.ttl = time.Hour + 1 }, "ttl", "at most 1h0m0s", "owner release"),
	} {
		for call, do := range calls {
			before := asked(s)
			err := do(a)
			if strings.Contains(" "+a.not+" ", " "+call+" ") {
				require.NoError(t, err, call)
				continue
			}
			require.ErrorIs(t, err, lease.ErrInvalid, "%s: %+v", call, a)
			require.Equal(t, before, asked(s), "the store was asked")
			require.NotErrorIs(t, err, lease.ErrUnknown)
			require.ErrorContains(t, err, "provider: "+call)
			require.ErrorContains(t, err, a.name)
			require.ErrorContains(t, err, a.says)
		}
	}
}

// counting knows which sessions are open.
type counting struct {
	store.Store
	mu   sync.Mutex
	open map[store.SessionID]bool
}

func (c *counting) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	g, err := c.Store.OpenSession(ctx, s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && g.Err == nil {
		c.open[s.ID] = true
	}
	return g, err
}

func (c *counting) CloseSession(ctx context.Context, s store.Session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, s.ID)
	return c.Store.CloseSession(ctx, s)
}

func (c *counting) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	return c.Store.(store.Transferrer).Transfer(ctx, moves)
}

// once calls f at the first request of that kind, before it is made.
func once(op faultstore.Op, f func()) func(faultstore.Call) faultstore.Fault {
	done := false
	return func(c faultstore.Call) faultstore.Fault {
		if c.Op == op && !done {
			done = true
			f()
		}
		return faultstore.Fault{}
	}
}

// A session under which nothing is held is closed at once: its TTL may be a year.
func TestNoSessionIsLeftBehind(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, act := range map[string]func(t *testing.T, p *provider.Provider, s *faultstore.Store, q *provider.Provider) (held int){
		"of who loses a race": func(t *testing.T, p *provider.Provider, s *faultstore.Store, q *provider.Provider) int {
			s.SetRule(once(faultstore.Acquire, func() { require.True(t, acquire(t, q, "k", "b", year).Acquired) }))
			require.False(t, acquire(t, p, "k", "a", year).Acquired)
			return 1
		},
		"of who changes the TTL": func(t *testing.T, p *provider.Provider, _ *faultstore.Store, _ *provider.Provider) int {
			acquire(t, p, "k", "a", year)
			acquire(t, p, "k", "a", time.Hour)
			return 1
		},
		"of who transfers in vain": func(t *testing.T, p *provider.Provider, s *faultstore.Store, q *provider.Provider) int {
			acquire(t, p, "k", "a", year)
			s.SetRule(once(faultstore.Transfer, func() { require.NoError(t, q.Release(t.Context(), "k", "a")) }))
			moved := must(p.Transfer(t.Context(), "k", "a", "b", year))(t)
			require.False(t, moved)
			return 0
		},
		"of who releases what another releases": func(t *testing.T, p *provider.Provider, s *faultstore.Store, q *provider.Provider) int {
			acquire(t, p, "k", "a", year)
			s.SetRule(once(faultstore.OpenSession, func() { require.NoError(t, q.Release(t.Context(), "k", "a")) }))
			require.NoError(t, p.Release(t.Context(), "k", "a"))
			return 0 // a mark came under the session again, and was released, too
		},
		"of who renews what is released": func(t *testing.T, p *provider.Provider, s *faultstore.Store, q *provider.Provider) int {
			acquire(t, p, "k", "a", year)
			s.SetRule(once(faultstore.OpenSession, func() { require.NoError(t, q.Release(t.Context(), "k", "a")) }))
			ok := must(p.Renew(t.Context(), "k", "a", year))(t)
			require.False(t, ok)
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			backing := &counting{Store: memory.New(), open: map[store.SessionID]bool{}}
			s := faultstore.Wrap(backing)
			held := act(t, over(t, s), s, over(t, backing))
			require.Len(t, backing.open, held)
		})
	}
}

// A store may end a session long after it was asked to. What was told to be held stays, for a
// session that anybody may have closed holds nothing but marks.
func TestASessionThatIsClosedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backing := memory.New()
		renewing, releasing := faultstore.Wrap(backing), faultstore.Wrap(backing)
		p, q, r := over(t, renewing), over(t, releasing), over(t, backing)
		const ttl = 5 * time.Second
		acquire(t, r, "k", "a", ttl)

		// One renews, and one releases, who both have seen the record before it expires.
		var all sync.WaitGroup
		slow := func(closing faultstore.Fault) func(faultstore.Call) faultstore.Fault {
			return func(c faultstore.Call) faultstore.Fault {
				switch c.Op {
				case faultstore.OpenSession:
					return faultstore.Fault{Kind: faultstore.Delay, Delay: 6 * time.Second}
				case faultstore.CloseSession:
					return closing
				case faultstore.Release:
					return faultstore.Fault{Kind: faultstore.Drop}
				}
				return faultstore.Fault{}
			}
		}
		renewing.SetRule(slow(faultstore.Fault{Kind: faultstore.LandLate, Delay: 2 * time.Second}))
		releasing.SetRule(slow(faultstore.Fault{}))
		all.Go(func() {
			renewed := must(p.Renew(t.Context(), "k", "a", ttl))(t)
			require.False(t, renewed, "it has expired")
		})
		time.Sleep(time.Millisecond)
		all.Go(func() { require.ErrorIs(t, q.Release(t.Context(), "k", "a"), lease.ErrUnknown) })
		all.Wait()

		held := acquire(t, r, "k", "a", ttl)
		require.True(t, held.Acquired)
		for time.Now().Before(held.Expires.Add(-10 * time.Millisecond)) {
			require.False(t, acquire(t, r, "k", "b", ttl).Acquired, "%v before it expires", time.Until(held.Expires))
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// A store that denies has changed nothing: that is known. A mark stands before what ends a term.
func TestStoresThatDeny(t *testing.T) {
	calls := map[string]func(ctx context.Context, p *provider.Provider) error{
		"acquire": func(ctx context.Context, p *provider.Provider) error {
			_, err := p.Acquire(ctx, "k", "a", time.Minute)
			return err
		},
		"shorter": func(ctx context.Context, p *provider.Provider) error {
			_, err := p.Acquire(ctx, "k", "a", time.Second)
			return err
		},
		"owner": func(ctx context.Context, p *provider.Provider) error { _, err := p.Owner(ctx, "k"); return err },
		"renew": func(ctx context.Context, p *provider.Provider) error {
			_, err := p.Renew(ctx, "k", "a", time.Minute)
			return err
		},
		"release": func(ctx context.Context, p *provider.Provider) error { return p.Release(ctx, "k", "a") },
		"transfer": func(ctx context.Context, p *provider.Provider) error {
			_, err := p.Transfer(ctx, "k", "a", "b", time.Minute)
			return err
		},
	}
	for op, denied := range map[faultstore.Op][]string{
		faultstore.Get:         {"acquire", "owner", "renew", "release", "transfer"},
		faultstore.OpenSession: {"acquire", "renew", "release", "transfer"},
		faultstore.Acquire:     {"shorter", "release", "transfer"},
		faultstore.Release:     {"release"},
		faultstore.Transfer:    {"transfer"},
	} {
		for _, call := range denied {
			t.Run(op.String()+" "+call, func(t *testing.T) {
				s := faultstore.Wrap(memory.New())
				p := over(t, s)
				acquire(t, p, "k", "a", time.Minute)
				s.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Deny}, op))
				err := calls[call](t.Context(), p)
				require.ErrorIs(t, err, lease.ErrDenied)
				begun := op == faultstore.Release || op == faultstore.Transfer
				require.Equal(t, begun, errors.Is(err, lease.ErrUnknown))
				s.SetRule(nil)
				require.True(t, acquire(t, p, "k", "a", time.Minute).Acquired, "it is the owner's")
			})
		}
	}
}

// The session of who is to have it ends before it has.
func TestASessionThatEndsBeforeATransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.Wrap(memory.New())
		p := over(t, s)
		acquire(t, p, "k", "a", time.Minute)
		slow := 1
		s.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Transfer && slow > 0 {
				slow--
				return faultstore.Fault{Kind: faultstore.Delay, Delay: 2 * time.Second}
			}
			return faultstore.Fault{}
		})
		moved := must(p.Transfer(t.Context(), "k", "a", "b", time.Second))(t)
		require.True(t, moved)
	})
}

// guarded is a store as PostgreSQL is while a transaction guards what has run out: it stands, under a
// session that is gone, and can't be claimed.
type guarded struct {
	*memory.Store
	by bool
}

func (g *guarded) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	if g.by {
		return store.Grant{}, fmt.Errorf("open session: %w", store.ErrSessionGone)
	}
	return g.Store.OpenSession(ctx, s)
}

// A key that ran out is not its owner's any more, also while a transaction that guards it keeps its record.
func TestWhatRanOutAndIsGuarded(t *testing.T) {
	s := &guarded{Store: memory.New()}
	p := over(t, s)
	acquire(t, p, "k", "a", time.Minute)
	s.by = true
	for _, ttl := range []time.Duration{time.Minute, time.Hour} {
		got := acquire(t, p, "k", "a", ttl)
		require.Equal(t, provider.Result{Owner: "a"}, got)
		renewed := must(p.Renew(t.Context(), "k", "a", ttl))(t)
		require.False(t, renewed)
	}
	moved := must(p.Transfer(t.Context(), "k", "a", "b", time.Minute))(t)
	require.False(t, moved)
	require.NoError(t, p.Release(t.Context(), "k", "a"))
	s.by = false
	require.True(t, acquire(t, p, "k", "a", time.Minute).Acquired)
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
