package lease

import (
	"context"
	mrand "math/rand/v2"
	"time"
)

// This file finds out whether the watches of a Keeper still run: one that has fallen
// silent is like one that has nothing to tell.

// Prober is implemented by Watchers whose watches can be asked whether they run. A
// Keeper asks about every second TTL, for all of them at once, and restarts those that do not
// answer, for a snapshot each.
type Prober interface {
	// Probe has every Watch and WatchDeletions of this Store that has yielded its
	// EventSynced yield an EventProgress, once it has yielded all that had happened
	// when Probe was called. One that can't, as it is behind, or has fallen silent,
	// yields none. Probe does not wait for them.
	Probe(ctx context.Context) error
}

// probing is when the watches are asked. It is guarded by Keeper.mu.
type probing struct {
	watches int // that may be asked
	at      time.Duration
}

// watchesLocked counts by more, or fewer, watches that can be asked.
func (k *Keeper) watchesLocked(by int) {
	if k.probing.watches == 0 {
		k.probing.at = k.clock.Now().Mono + k.probeIn()
	}
	k.probing.watches += by
	k.kick()
}

// refreshIn is for how long a watch is trusted to run that says nothing of itself.
func (k *Keeper) refreshIn() time.Duration {
	return time.Duration(float64(refreshRounds*k.cfg.TTL) * (0.75 + mrand.Float64()/4))
}

// probeIn is the time between probes: what they are answered with comes within an
// attempt of the shortest refreshIn.
func (k *Keeper) probeIn() time.Duration {
	return time.Duration(float64(k.cfg.TTL) * (1.5 + mrand.Float64()/2))
}

func (k *Keeper) tickProbe(now Reading, soon func(time.Duration)) {
	p, ok := k.store.(Prober)
	if !ok || k.probing.watches == 0 {
		return
	}
	if now.Mono >= k.probing.at {
		k.probing.at = now.Mono + k.probeIn()
		k.wg.Go(func() { // a probe that fails is one that no watch answers
			_, _ = call(k, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Probe(ctx) })
		})
	}
	soon(k.probing.at)
}
