package provider_test

import (
	"context"
	"strings"
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
	p, err := provider.New(s)
	require.NoError(t, err)
	return p
}

func acquire(t *testing.T, p *provider.Provider, key, owner string, ttl time.Duration) provider.Result {
	t.Helper()
	r, err := p.Acquire(t.Context(), key, owner, ttl)
	require.NoError(t, err)
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
			renewed, err = p.Renew(t.Context(), name, "b", ttl)
			require.NoError(t, err)
			require.False(t, renewed)
			for _, other := range []time.Duration{ttl, 3 * ttl, 2 * ttl} {
				renewed, err = q.Renew(t.Context(), name, "a", other)
				require.NoError(t, err)
				require.True(t, renewed, "to %v", other)
				require.Greater(t, acquire(t, p, name, "a", other).Token, longer.Token)
			}

			require.NoError(t, p.Release(t.Context(), name, "b"), "it does nothing")
			owner, err := p.Owner(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, "a", owner)

			moved, err := q.Transfer(t.Context(), name, "b", "c", ttl)
			require.NoError(t, err)
			require.False(t, moved)
			moved, err = q.Transfer(t.Context(), name, "a", "c", ttl)
			require.NoError(t, err)
			require.True(t, moved)
			moved, err = p.Transfer(t.Context(), name, "a", "c", ttl)
			require.NoError(t, err)
			require.True(t, moved, "it has been, and the call may be repeated")
			moved, err = p.Transfer(t.Context(), name, "a", "c", 2*ttl)
			require.NoError(t, err)
			require.True(t, moved, "also for another time")
			third := acquire(t, p, name, "c", ttl)
			require.True(t, third.Acquired)
			require.Greater(t, third.Token, longer.Token)

			require.NoError(t, q.Release(t.Context(), name, "c"))
			require.NoError(t, q.Release(t.Context(), name, "c"), "again")
			owner, err = p.Owner(t.Context(), name)
			require.NoError(t, err)
			require.Empty(t, owner)
			require.Greater(t, acquire(t, p, name, "b", ttl).Token, third.Token)

			short := acquire(t, p, name+"/short", "a", time.Second) // etcd grants 2 s
			record := func() lease.Record {
				key, err := provider.Name(name + "/short")
				require.NoError(t, err)
				found, err := s.client().Get(t.Context(), key)
				require.NoError(t, err)
				require.Len(t, found, 1)
				return found[0]
			}
			require.Less(t, time.Until(short.Expires), record().TTL, "as granted")
			moved, err = p.Transfer(t.Context(), name+"/short", "a", "c", time.Second)
			require.NoError(t, err)
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

// floored is a store with a least TTL of a second.
type floored struct{ *memory.Store }

func (floored) Limits() store.Limits {
	return store.Limits{Name: "memory", MinTTL: time.Second}
}

func TestBadInput(t *testing.T) {
	_, err := provider.New(nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.False(t, (*provider.Provider)(nil).Atomic())
	p := over(t, floored{memory.New()})
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
	_, err = p.Acquire(t.Context(), "k", "a", time.Millisecond)
	require.ErrorContains(t, err, "must be at least 1s")
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
