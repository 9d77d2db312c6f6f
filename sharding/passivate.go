package sharding

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// This file stops entities that are not needed for now.

// An entity counts as used in the quarter of the passivation time in which the last
// message came to it. After four more whole quarters it is idle.
const quarters = 4

// noted is an entity as it was seen, to be stopped if it still is as it was.
type noted struct {
	s    *shard
	e    *entry
	used uint32
}

// tick counts quarters.
func (r *Region) tick() {
	for r.life.Err() == nil {
		r.sleep(r.set.idle / quarters)
		r.epoch.Add(1)
		r.post(r.loop.passivateIdle)
	}
}

// running lists the active entities that were not used since the epoch before.
func (c *controller) running(before uint32) (all []noted) {
	for i := range c.shards {
		s := &c.shards[i]
		if s.m.Phase != handover.Active {
			continue
		}
		s.mu.RLock()
		for _, e := range s.entries {
			if used := e.used.Load(); e.Phase == entities.Active && int32(before-used) >= 0 {
				all = append(all, noted{s, e, used})
			}
		}
		s.mu.RUnlock()
	}
	return all
}

// stop passivates an entity that has not been used since.
func (n noted) stop() (done bool) {
	n.s.do(func() {
		e := n.e
		if n.s.entries[e.id] == e && e.used.Load() == n.used {
			done = len(n.s.happensLocked(e, entities.Unneeded)) > 0
		}
	})
	return done
}

func (c *controller) passivateIdle() {
	n := 0
	for _, x := range c.running(c.epoch.Load() - quarters - 1) {
		if x.stop() {
			n++
		}
	}
	c.counts.passivated.Add(int64(n))
}

// tooMany has the oldest stopped if more entities run than may.
func (r *Region) tooMany() {
	if m := r.set.maxActive; m > 0 && r.active.Load() > int64(m) && r.evict.CompareAndSwap(false, true) {
		r.post(r.loop.evictOldest)
	}
}

// evictPause is the least time from one eviction to the next: entities that have
// mail are started again, and must come to handle some of it.
const evictPause = 10 * time.Millisecond

// evictOldest stops those that were not used the longest, and a twentieth more than
// it must, so that it need not be done for every entity that starts.
func (c *controller) evictOldest() {
	most, again := c.set.maxActive, 10*evictPause
	if all := c.running(c.epoch.Load()); len(all) > most {
		again = evictPause
		slices.SortFunc(all, func(a, b noted) int { return cmp.Compare(int32(a.used-b.used), 0) })
		n := 0
		for _, x := range all[:min(len(all)-most+most/20, len(all))] {
			if x.stop() {
				n++
			}
		}
		c.counts.passivated.Add(int64(n))
		if n > 0 {
			c.log.Debug("too many entities: some were stopped", zap.Int("stopped", n), zap.Int("most", most))
		}
		if c.set.idle == 0 {
			c.epoch.Add(1) // nothing else counts
		}
	}
	c.clock.AfterFunc(again, func() {
		c.evict.Store(false)
		c.tooMany()
	})
}
