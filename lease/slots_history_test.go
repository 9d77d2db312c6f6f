package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

var poolHistories = simulate.New("lease-pools", 150, 3000)

// Nodes work in the slots of a Pool, over a store that fails, waits or watches worse than it should;
// nodes are cut off, and some for good. Never do more work at once than there are slots, nor two in
// one; who waits has a slot soon after all is well; and in the end every slot can be had.
func TestHistoriesOfPools(t *testing.T) { play(t, poolHistories, poolHistory) }

func poolHistory(t *testing.T, s *memory.Store, r *simulate.Random) {
	store := []store.Store{s, sessionless(s), blind(s), listless{s}}[r.IntN(4)]
	slots := 1 + r.IntN(4)
	w := newAuditor(t, slots)
	type member struct {
		*node
		pool *lease.Pool
		dead atomic.Bool
	}
	var members []*member
	for i := range 2 + r.IntN(3) {
		n := start(t, store, fmt.Sprint("n", i))
		n.faulty(fork(r), r.Float64()/3)
		members = append(members, &member{node: n, pool: n.pool("import", slots)})
	}
	var all sync.WaitGroup
	whole, stop := context.WithCancel(context.Background())
	defer stop()
	work := func(m *member, own *rand.Rand) func(ctx context.Context, slot int, term lease.Term) error {
		return func(ctx context.Context, slot int, term lease.Term) error {
			if want := fmt.Sprint("import/", slot); term.Name() != want {
				t.Errorf("slot %d is %s", slot, term.Name())
			}
			defer w.begin(m.node, term, &m.dead)()
			select {
			case <-ctx.Done():
				if term.CheckAlive() && !errors.Is(context.Cause(ctx), context.Canceled) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
					t.Errorf("%s was cancelled while it was alive: %v", m.Owner().ID, context.Cause(ctx))
				}
				time.Sleep(upTo(own, ttl/2)) // it takes its time
			case <-time.After(upTo(own, ttl)):
			}
			simulate.Break(own.IntN(30)) // by a panic, or the goroutine's end
			return nil
		}
	}
	for range r.Each(60) {
		m, own := members[r.IntN(len(members))], fork(r)
		switch k := r.IntN(14); {
		case m.dead.Load():
		case k == 0:
			m.store.Partition()
		case k < 3:
			m.store.Heal()
		case k == 3 && r.IntN(4) == 0 && m != members[0]:
			m.dead.Store(true)
			m.store.Partition()
		default:
			patience, waits := time.Duration(0), r.IntN(3) > 0
			if r.IntN(2) == 0 {
				patience = upTo(own, 2*ttl)
			}
			all.Go(func() {
				ctx, cancel := context.WithCancel(whole)
				defer cancel()
				if patience > 0 {
					ctx, cancel = context.WithTimeout(ctx, patience)
					defer cancel()
				}
				defer func() { _ = recover() }()
				run := m.pool.Run
				if !waits {
					run = m.pool.TryRun
				}
				began := time.Now()
				err := run(ctx, work(m, own))
				switch took := time.Since(began); {
				case waits && errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrClosed):
					t.Errorf("%s: %v", m.Owner().ID, err)
				case !waits && errors.Is(err, lease.ErrHeld) && took > 3*ttl: // a read and attempts, each bounded
					t.Errorf("%s: it took %v to learn that there is none", m.Owner().ID, took)
				}
			})
		}
		time.Sleep(upTo(r, ttl/3))
		synctest.Wait()
		w.check()
	}
	for _, m := range members {
		if m.store.SetRule(nil); !m.dead.Load() {
			m.store.Heal()
		}
	}
	ended := make(chan struct{})
	var alive sync.WaitGroup
	alive.Go(func() { // of the dead some wait for good
		time.Sleep(5 * time.Minute)
		for _, m := range members {
			m.store.Heal()
		}
	})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(15 * time.Minute):
		t.Error("some wait yet")
		stop()
	}
	alive.Wait()
	<-ended
	time.Sleep(6 * ttl)
	for i := range slots {
		requireFree(t, s, fmt.Sprint("import/", i))
	}
	// Every slot can be had, and no more.
	began := time.Now()
	var full sync.WaitGroup
	end := make(chan struct{})
	for range slots {
		full.Go(func() {
			require.NoError(t, members[0].pool.Run(context.Background(), func(_ context.Context, _ int, term lease.Term) error {
				defer w.begin(members[0].node, term, &members[0].dead)()
				<-end
				return nil
			}))
		})
	}
	synctest.Wait()
	if n := w.working(); n != slots {
		t.Errorf("%d of %d slots can be had", n, slots)
	}
	require.Zero(t, time.Since(began))
	require.ErrorIs(t, members[1].pool.TryRun(t.Context(), noSlot), lease.ErrHeld)
	close(end)
	full.Wait()
	for _, m := range members {
		require.NoError(t, m.pool.Close(t.Context()))
	}
}
