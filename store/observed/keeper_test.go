package observed_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
	"github.com/holdfast-go/holdfast/store/observed"
)

var keepers = simulate.New("observed-keepers", 10, 200)

// Keepers on machines with clocks of their own compete over objects with faults, are
// cut off and come back. At most one sees a name as its own, tokens grow, names
// change hands though their holders say nothing, and in the end everybody can have
// every name.
func TestKeepers(t *testing.T) {
	var cuts, played atomic.Int64
	keepers.Run(t, func(t *testing.T, seed uint64) {
		for _, k := range kits {
			t.Run(k.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { cuts.Add(compete(t, k, seed)) })
				played.Add(1)
			})
		}
	})
	require.True(t, keepers.Replays() || cuts.Load() > played.Load(),
		"names that were won of holders that are cut off: %d in %d histories", cuts.Load(), played.Load())
}

// rival is one Keeper, and its link.
type rival struct {
	*lease.Keeper
	link    *faultstore.Store
	handles []*lease.Handle // of each name
	cut     bool            // guarded by the race
}

// race is what the rivals share.
type race struct {
	t      *testing.T
	w      *world // of the draws and the faults
	rivals []*rival

	mu   sync.Mutex
	last map[string]win
	cuts int64
}

type win struct {
	token store.Token
	by    *rival
}

func compete(t *testing.T, k kit, seed uint64) int64 {
	objects, m := k.objects()
	g := &race{t: t, last: map[string]win{}, w: &world{t: t, objects: m, rnd: keepers.Random(seed)}}
	names := []string{"a", "b"}
	for i := range 3 {
		g.add(objects, i, names)
	}
	m.SetFault(g.w.fault)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { // after a failure too
		stop()
		running.Wait()
		m.SetFault(nil)
		for _, r := range g.rivals {
			g.cutOff(r, false)
			require.NoError(t, r.Close(context.Background()))
		}
	}()
	for _, r := range g.rivals {
		for _, h := range r.handles {
			running.Go(func() { g.work(ctx, r, h) })
		}
		running.Go(func() { g.disturb(ctx, r) })
	}
	alive := 0
	for range 10 * int(2*ttl/(50*time.Millisecond)) {
		time.Sleep(50 * time.Millisecond)
		for i, name := range names {
			n := 0
			for _, r := range g.rivals {
				if r.handles[i].CheckAlive() {
					n++
				}
			}
			alive += n
			require.LessOrEqual(t, n, 1, "%q is of %d, seed %d", name, n, seed)
		}
	}
	require.NotZero(t, alive)
	stop()
	running.Wait()
	m.SetFault(nil)
	for _, r := range g.rivals {
		g.cutOff(r, false)
		for _, h := range r.handles {
			end, cancel := context.WithTimeout(t.Context(), 4*ttl)
			for won := false; !won; time.Sleep(ttl / 20) {
				require.NoError(t, end.Err(), "seed %d", seed)
				won, _ = h.Acquire(end)
			}
			require.NoError(t, h.Release(end))
			cancel()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cuts
}

func (g *race) add(objects observed.Objects, i int, names []string) {
	clock := askew{store.SystemClock(), time.Duration(i+1) * time.Hour, time.Duration(i*i) * time.Hour, time.Duration(95 + 5*i)}
	s, err := observed.New(objects, observed.WithClock(clock))
	require.NoError(g.t, err)
	r := &rival{link: faultstore.Wrap(s)}
	r.Keeper, err = lease.NewKeeper(r.link, lease.Config{
		ID: fmt.Sprint("node-", i), TTL: ttl, Clock: clock, Logger: zap.NewNop(),
	})
	require.NoError(g.t, err)
	for _, name := range names {
		h, err := r.Lease(name)
		require.NoError(g.t, err)
		r.handles = append(r.handles, h)
	}
	g.rivals = append(g.rivals, r)
}

// work wins a name, has it for a while, and gives it up.
func (g *race) work(ctx context.Context, r *rival, h *lease.Handle) {
	for ctx.Err() == nil {
		time.Sleep(g.w.upTo(ttl / 4))
		attempt, cancel := context.WithTimeout(ctx, ttl)
		if won, err := h.Acquire(attempt); won && err == nil {
			if term, ok := h.Term(); ok {
				g.won(r, h.Name(), term.Token())
			}
			for end := time.Now().Add(g.w.upTo(2 * ttl)); h.CheckAlive() && time.Now().Before(end); {
				time.Sleep(ttl / 50)
			}
			release, done := context.WithTimeout(context.Background(), ttl)
			_ = h.Release(release)
			done()
		}
		cancel()
	}
}

func (g *race) won(r *rival, name string, token store.Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.last[name]
	if token <= last.token {
		g.t.Errorf("%q: token %d after %d", name, token, last.token)
	}
	if last.by != nil && last.by != r && last.by.cut {
		g.cuts++
	}
	g.last[name] = win{token, r}
}

// disturb cuts r off now and then.
func (g *race) disturb(ctx context.Context, r *rival) {
	for ctx.Err() == nil {
		time.Sleep(ttl + g.w.upTo(4*ttl))
		g.cutOff(r, true)
		time.Sleep(ttl + g.w.upTo(3*ttl))
		g.cutOff(r, false)
	}
}

func (g *race) cutOff(r *rival, cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.cut = cut; cut {
		r.link.Partition()
	} else {
		r.link.Heal()
	}
}
