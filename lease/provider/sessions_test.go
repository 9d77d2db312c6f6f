package provider_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

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
		"of who is denied": func(t *testing.T, p *provider.Provider, s *faultstore.Store, _ *provider.Provider) int {
			s.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Deny}, faultstore.Acquire))
			_, err := p.Acquire(t.Context(), "k", "a", year)
			require.ErrorIs(t, err, lease.ErrDenied)
			return 0
		},
		"of who changes the TTL": func(t *testing.T, p *provider.Provider, _ *faultstore.Store, _ *provider.Provider) int {
			acquire(t, p, "k", "a", year)
			acquire(t, p, "k", "a", time.Hour)
			return 1
		},
		"of who transfers in vain": func(t *testing.T, p *provider.Provider, s *faultstore.Store, q *provider.Provider) int {
			acquire(t, p, "k", "a", year)
			s.SetRule(once(faultstore.Transfer, func() { require.NoError(t, q.Release(t.Context(), "k", "a")) }))
			moved, err := p.Transfer(t.Context(), "k", "a", "b", year)
			require.NoError(t, err)
			require.False(t, moved)
			return 0
		},
		"of who releases": func(t *testing.T, p *provider.Provider, _ *faultstore.Store, _ *provider.Provider) int {
			acquire(t, p, "k", "a", year)
			require.NoError(t, p.Release(t.Context(), "k", "a"))
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
			ok, err := p.Renew(t.Context(), "k", "a", year)
			require.NoError(t, err)
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
			renewed, err := p.Renew(t.Context(), "k", "a", ttl)
			require.NoError(t, err)
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
	for op, calls := range map[faultstore.Op]map[string]bool{ // whether the outcome is known
		faultstore.Get:         {"acquire": true, "owner": true, "renew": true, "release": true, "transfer": true},
		faultstore.OpenSession: {"acquire": true, "renew": true, "release": true, "transfer": true},
		faultstore.Acquire:     {"shorter": true, "release": true, "transfer": true},
		faultstore.Release:     {"release": false},
		faultstore.Transfer:    {"transfer": false},
	} {
		for call, known := range calls {
			t.Run(op.String()+" "+call, func(t *testing.T) {
				s := faultstore.Wrap(memory.New())
				p := over(t, s)
				acquire(t, p, "k", "a", time.Minute)
				s.SetRule(faultstore.On(faultstore.Fault{Kind: faultstore.Deny}, op))
				var err error
				switch call {
				case "acquire":
					_, err = p.Acquire(t.Context(), "k", "a", time.Minute)
				case "shorter":
					_, err = p.Acquire(t.Context(), "k", "a", time.Second)
				case "owner":
					_, err = p.Owner(t.Context(), "k")
				case "renew":
					_, err = p.Renew(t.Context(), "k", "a", time.Minute)
				case "release":
					err = p.Release(t.Context(), "k", "a")
				case "transfer":
					_, err = p.Transfer(t.Context(), "k", "a", "b", time.Minute)
				}
				require.ErrorIs(t, err, lease.ErrDenied)
				if known {
					require.NotErrorIs(t, err, lease.ErrUnknown)
				} else {
					require.ErrorIs(t, err, lease.ErrUnknown)
				}
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
		moved, err := p.Transfer(t.Context(), "k", "a", "b", time.Second)
		require.NoError(t, err)
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
		renewed, err := p.Renew(t.Context(), "k", "a", ttl)
		require.NoError(t, err)
		require.False(t, renewed)
	}
	moved, err := p.Transfer(t.Context(), "k", "a", "b", time.Minute)
	require.NoError(t, err)
	require.False(t, moved)
	require.NoError(t, p.Release(t.Context(), "k", "a"))
	s.by = false
	require.True(t, acquire(t, p, "k", "a", time.Minute).Acquired)
}
