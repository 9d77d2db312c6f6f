package lease_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

var parentHistories = simulate.New("lease-parents", 150, 100)

// TestHistoriesOfParents has a few nodes acquire and release leases under leases over a store
// that loses, delays and repeats what it is asked, while an operator deletes records. Nothing is
// applied under an ownership that does not stand, no child is alive beside a parent that is
// not, and in the end nothing stands that nobody has.
func TestHistoriesOfParents(t *testing.T) {
	parentHistories.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, store *memory.Store) { parentHistory(t, store, parentHistories.Random(seed)) })
	})
}

// hanging is a store that judges each claim when it is applied.
type hanging struct {
	*memory.Store
	t  *testing.T
	mu sync.Mutex
	on map[lease.Held]lease.Held // under what each ownership was won
}

func (s *hanging) Acquire(ctx context.Context, in lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outs := make([]lease.Outcome, len(claims))
	for i, c := range claims {
		was, _ := s.Store.Get(context.Background(), c.While.Name)
		one, err := s.Store.Acquire(ctx, in, []lease.Claim{c})
		if err != nil {
			return nil, err
		}
		outs[i] = one[0]
		if !one[0].OK {
			continue
		}
		s.on[one[0].Record.Held()] = c.While
		if child := !strings.HasPrefix(c.Name, "parent/"); child && (len(was) == 0 || was[0].Held() != c.While) {
			s.t.Errorf("%s was won while %+v, and there stood %+v", c.Name, c.While, was)
		}
	}
	return outs, nil
}

func (s *hanging) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Release(ctx, held)
}

func (s *hanging) CloseSession(ctx context.Context, in lease.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.CloseSession(ctx, in)
}

func (s *hanging) under(h lease.Held) lease.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on[h]
}

// family are the handles of one node, each behind its parent.
type family struct {
	n  *node
	of []*lease.Handle
	on map[*lease.Handle]*lease.Handle
}

func newFamily(n *node, r *simulate.Random) *family {
	f := &family{n: n, on: map[*lease.Handle]*lease.Handle{}}
	ttls := []time.Duration{ttl, ttl / 2, 2 * ttl}
	add := func(name string, parent *lease.Handle) *lease.Handle {
		opts := []lease.Option{lease.WithTTL(ttls[r.IntN(len(ttls))])}
		if parent != nil {
			opts = append(opts, lease.WithParent(parent))
		}
		h := n.lease(name, opts...)
		f.of, f.on[h] = append(f.of, h), parent
		return h
	}
	a, b := add("parent/0", nil), add("parent/1", nil)
	add("grandchild/0", add("child/0", a))
	add("child/1", a)
	add("child/2", b)
	return f
}

// check reads the child first: its parent may end in between, and does not come back.
func (f *family) check(t *testing.T, s *hanging) {
	for child, parent := range f.on {
		if parent == nil {
			continue
		}
		term, ok := child.Term()
		if !ok || !term.CheckAlive() {
			continue
		}
		above, alive := parent.Term()
		require.True(t, alive, "%s is alive, and %s is not", child.Name(), parent.Name())
		r, stands := standing(t, s.Store, child.Name())
		if stands && r.Token == term.Token() {
			require.Equal(t, above.Token(), s.under(r.Held()).Token, "%s, under %s", child.Name(), parent.Name())
		}
	}
}

func parentHistory(t *testing.T, inner *memory.Store, r *simulate.Random) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	s := &hanging{Store: inner, t: t, on: map[lease.Held]lease.Held{}}
	var families []*family
	kinds := []faultstore.Kind{faultstore.Delay, faultstore.Drop, faultstore.ApplyThenFail, faultstore.ReplyLate, faultstore.LandLate, faultstore.Deny}
	for _, id := range []string{"a", "b", "c"}[:2+r.IntN(2)] {
		n := start(t, s, id)
		families = append(families, newFamily(n, r))
		var mu sync.Mutex
		own, odds := rand.New(rand.NewPCG(r.Uint64(), 2)), r.Float64()/3
		n.store.SetRule(func(faultstore.Call) faultstore.Fault {
			mu.Lock()
			defer mu.Unlock()
			if own.Float64() >= odds {
				return faultstore.Fault{}
			}
			return faultstore.Fault{Kind: kinds[own.IntN(len(kinds))], Delay: time.Duration(own.Int64N(int64(ttl / 2)))}
		})
	}
	var ops sync.WaitGroup
	for range 80 {
		f := families[r.IntN(len(families))]
		h, patience := f.of[r.IntN(len(f.of))], upTo(ttl)
		switch r.IntN(12) {
		case 0:
			f.n.store.Partition()
		case 1:
			f.n.store.Heal()
		case 2, 3, 4:
			ops.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_ = h.Release(ctx)
			})
		case 5:
			if rec, ok := standing(t, inner, h.Name()); ok && r.IntN(3) == 0 {
				_, err := s.Release(t.Context(), []lease.Held{rec.Held()})
				require.NoError(t, err)
			}
		default:
			ops.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_, _ = h.Acquire(ctx)
			})
		}
		if r.IntN(2) == 0 {
			time.Sleep(upTo(ttl / 2))
		}
		synctest.Wait()
		for _, f := range families {
			f.check(t, s)
		}
	}
	for _, f := range families {
		f.n.store.SetRule(nil)
		f.n.store.Heal()
	}
	ops.Wait()
	for _, f := range families {
		for i := len(f.of) - 1; i >= 0; i-- {
			_ = f.of[i].Release(context.Background())
		}
	}
	time.Sleep(6 * ttl)
	for rec, err := range inner.List(t.Context(), "") {
		require.NoError(t, err)
		require.Fail(t, "it stands, and nobody has it", "%+v", rec)
	}
	for _, h := range families[0].of {
		mustWin(t, h)
	}
}
