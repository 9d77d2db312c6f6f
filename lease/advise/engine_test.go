package advise_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/advise"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// What the engine loses to stalls, on fake time, is what the model says, or a little less: a stall
// may end just before a renewal is sent again.
func TestTheEngineLosesWhatTheModelSays(t *testing.T) {
	const stalls = 3000
	for _, d := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
		in := advise.Input{Stalls: 1, Stall: d, FalseLossCost: 1, Least: 5 * time.Second, Most: 5 * time.Second}
		a, err := advise.TTL(in)
		require.NoError(t, err)
		lost := 0
		synctest.Test(t, func(t *testing.T) { lost = lostOf(t, stalls, a.TTL, d) })
		seen := float64(lost) / stalls
		t.Logf("stalls of %v: %.4f lost, the model says %.4f", d, seen, a.FalseLosses)
		require.LessOrEqual(t, seen, 1.1*a.FalseLosses+0.003)
		require.GreaterOrEqual(t, seen, 0.6*a.FalseLosses-0.003)
	}
}

func lostOf(t *testing.T, stalls int, ttl, mean time.Duration) (lost int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	store := faultstore.Wrap(memory.New())
	k, err := lease.NewKeeper(store, lease.Config{ID: "a", TTL: ttl, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, k.Close(context.Background())) }()
	l, err := k.Lease("x")
	require.NoError(t, err)
	for range stalls {
		for {
			if won, _ := l.Acquire(t.Context()); won {
				break
			}
			time.Sleep(ttl / 10)
		}
		time.Sleep(ttl + time.Duration(r.Int64N(int64(ttl)))) // it is between two renewals somewhere
		require.True(t, l.CheckAlive())
		store.Partition()
		time.Sleep(time.Duration(r.ExpFloat64() * float64(mean)))
		store.Heal()
		synctest.Wait()
		time.Sleep(ttl / 2)
		if !l.CheckAlive() {
			lost++
		}
		require.NoError(t, l.Release(t.Context()))
	}
	return lost
}
