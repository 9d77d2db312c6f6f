package pername_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/pername"
)

// More names hang than there are requests at once: the others of a renewal are
// asked for all the same.
func TestHungNamesHoldUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNameMap()
		s := must(t, m)
		var sessions []lease.Session
		const hung, all = 64, 1000
		for i := range all {
			x := lease.Session{ID: lease.SessionID(i + 1), Owner: lease.Owner{ID: "a", Incarnation: "a1"}, TTL: ttl}
			_, err := s.OpenSession(t.Context(), x)
			require.NoError(t, err)
			outs, err := s.Acquire(t.Context(), x, []lease.Claim{{Name: fmt.Sprint("n", i), Nonce: 1}})
			require.NoError(t, err)
			require.True(t, outs[0].OK)
			sessions = append(sessions, x)
		}
		bad := map[string]bool{}
		for i := range hung {
			bad[fmt.Sprint("n", i)] = true
		}
		m.setFault(hanging(func(name string) bool { return bad[name] }))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), ttl/4)
			began := time.Now()
			grants, err := s.Renew(ctx, sessions)
			cancel()
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), ttl/4)
			failed := 0
			for i, g := range grants {
				if g.Err != nil {
					require.Less(t, i, hung)
					failed++
				}
			}
			require.Equal(t, hung, failed)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		require.LessOrEqual(t, m.busiest, hung+16, "the bound holds for those that don't hang")
	})
}

// hanging lets requests about some names hang until their contexts end.
func hanging(hangs func(name string) bool) func(context.Context, string, string, func()) error {
	return func(ctx context.Context, _, name string, apply func()) error {
		if hangs(name) {
			<-ctx.Done()
			return ctx.Err()
		}
		apply()
		return nil
	}
}

var hung = simulate.New("pername-hung", 10, 200)

// A Keeper holds many names over a backend some of whose names hang, now these and
// now those. A name that did not hang for a TTL is held all along.
func TestHistoriesOfHungNames(t *testing.T) {
	hung.Run(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { hungHistory(t, hung.Random(seed), seed) })
	})
}

func hungHistory(t *testing.T, r *simulate.Random, seed uint64) {
	width := 1 + r.IntN(8)
	names := make([]string, width*(2+r.IntN(8)))
	for i := range names {
		names[i] = fmt.Sprint("many/", i)
	}
	m := newNameMap()
	k, err := lease.NewKeeper(must(t, m, pername.WithConcurrency(width)), lease.Config{ID: "a", TTL: ttl})
	require.NoError(t, err)
	defer func() {
		m.setFault(nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = k.Close(ctx)
	}()
	var mu sync.Mutex
	hangs := map[string]bool{}
	hung := map[string]time.Time{} // when it hung last
	lost := map[string]bool{}      // while it hung
	var hs []*lease.Handle
	for _, name := range names {
		h, err := k.Lease(name)
		require.NoError(t, err)
		hs = append(hs, h)
		mustWin(t, h)
	}
	m.setFault(hanging(func(name string) bool {
		mu.Lock()
		defer mu.Unlock()
		return hangs[name]
	}))
	for range 200 {
		if r.IntN(5) == 0 { // others hang, up to half of all
			mu.Lock()
			clear(hangs)
			for _, i := range r.Perm(len(names))[:r.IntN(len(names)/2+1)] {
				hangs[names[i]] = true
			}
			mu.Unlock()
		}
		for name := range hangs {
			hung[name] = time.Now()
		}
		time.Sleep(ttl / 10)
		for _, h := range hs {
			switch last, ever := hung[h.Name()]; {
			case ever && time.Since(last) <= ttl:
				lost[h.Name()] = !h.CheckAlive()
			case h.CheckAlive():
			case lost[h.Name()]:
				mustWin(t, h)
				lost[h.Name()] = false
			default:
				require.Fail(t, "held up", "%s, which does not hang, is lost, seed %d, width %d of %d", h.Name(), seed, width, len(names))
			}
		}
	}
}

// A backend that panics or ends the goroutine fails the requests in which it does, on
// whatever goroutine, and nothing else: what is renewed, what is given up and what waits goes on.
func TestARudeBackendHarmsNobody(t *testing.T) {
	for manner, rude := range manners {
		for _, op := range []string{"acquire", "renew", "release", "get"} {
			t.Run(manner+"/"+op, func(t *testing.T) { rudeBackend(t, op, rude) })
		}
	}
}

// manners are how a request may end that neither answers nor hangs.
var manners = map[string]func(){
	"panics": func() { panic("rude") },
	"leaves": runtime.Goexit,
}

func rudeBackend(t *testing.T, op string, rude func()) {
	synctest.Test(t, func(t *testing.T) {
		m := newNameMap()
		k, err := lease.NewKeeper(must(t, m), lease.Config{ID: "a", TTL: ttl})
		require.NoError(t, err)
		var hs []*lease.Handle
		for _, name := range []string{"good", "bad", "worse"} {
			h, err := k.Lease(name)
			require.NoError(t, err)
			hs = append(hs, h)
			mustWin(t, h)
		}
		m.setFault(func(_ context.Context, o, name string, apply func()) error {
			if o == op && name != "good" {
				rude()
			}
			apply()
			return nil
		})
		time.Sleep(3 * ttl)
		require.True(t, hs[0].CheckAlive())
		require.Equal(t, op != "renew", hs[1].CheckAlive())
		for _, h := range hs {
			err := h.Release(t.Context())
			require.Equal(t, op == "release" && h.Name() != "good", errors.Is(err, lease.ErrUnknown), "%s of %s: %v", op, h.Name(), err)
		}
		m.setFault(nil)
		time.Sleep(2 * ttl)
		for _, h := range hs {
			_, ok := m.stands(h.Name())
			require.False(t, ok, "%s is kept for nobody", h.Name())
			mustWin(t, h)
			require.NoError(t, h.Release(t.Context()))
		}
		require.NoError(t, k.Close(t.Context()), "no claim counts as under way")
	})
}
