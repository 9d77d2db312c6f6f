// Package churn runs a kit on servers that are never left alone: something is done to them, and
// undone, all the while. It is for tests of stores.
package churn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/settler"
)

// longest is what a disturbance takes, its end included, on a machine that is not busy with other
// things: where it takes longer, pauses are longer, up to four times.
const longest = 2500 * time.Millisecond

// Churn is what happens to servers all the while.
type Churn struct {
	What  string                                        // such as "leaders killed and restarted"
	Fault func(ctx context.Context, r *rand.Rand) error // and its end
	Pause func(n int, r *rand.Rand) time.Duration       // before the n-th fault, from 0
	Least Least

	Rounds, Most int    // how often the kit runs: at the least, and at the most so that enough happens
	Seed         uint64 // of the draws; 0: a new one
	SeedFlag     string // that repeats it
}

// Least is what must have happened for the run to mean something.
type Least struct {
	Faults  int64 // that the servers met
	Settled int64 // calls that met them
	Evident int64 // requests that were applied, and got no answer
}

func (l Least) reached(faults int64, t *settler.Tally) bool {
	return faults >= l.Faults && t.Settled.Load() >= l.Settled && t.Evident.Load() >= l.Evident
}

// Between draws a time from a to b.
func Between(r *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(r.Int64N(int64(b-a)+1))
}

// Run runs kit, whose settlers count in counts, in rounds, each with a seed of its own. Enough must
// have happened in the end. No disturbance is under way when it returns.
func (c Churn) Run(t *testing.T, counts *settler.Tally, kit func(t *testing.T, seed uint64)) {
	seed := c.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-%s repeats it)", seed, c.SeedFlag)
	began := time.Now()
	stop := make(chan struct{})
	var disturbing sync.WaitGroup
	var faults atomic.Int64
	disturbing.Go(func() {
		r := rand.New(rand.NewPCG(seed, 0))
		slow := 1.0
		for n := 0; ; n++ {
			select {
			case <-time.After(time.Duration(slow * float64(c.Pause(n, r)))):
			case <-stop:
				return
			}
			at := time.Since(began)
			if err := c.Fault(context.WithoutCancel(t.Context()), r); err != nil {
				t.Errorf("after %v: %v", at, err)
				return
			}
			t.Logf("disturbed from %v to %v", at.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			faults.Add(1)
			slow = min(max((time.Since(began)-at).Seconds()/longest.Seconds(), 1), 4)
		}
	})
	for i := 0; i < c.Rounds || i < c.Most && !c.Least.reached(faults.Load(), counts); i++ {
		if !t.Run(fmt.Sprintf("round-%d", i), func(t *testing.T) { kit(t, seed+uint64(i)) }) {
			break
		}
	}
	close(stop)
	disturbing.Wait()
	t.Logf("%d %s in %v; %s", faults.Load(), c.What, time.Since(began).Round(time.Second), counts)
	if !t.Failed() {
		require.True(t, c.Least.reached(faults.Load(), counts),
			"hardly anything happened to the servers, or hardly any request met it: want %+v", c.Least)
	}
}
