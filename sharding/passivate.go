package sharding

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// passivation stops entities that are not needed for now.
type passivation struct {
	*node
	shards shards
}

// An entity counts as used in the quarter of the passivation time in which the last
// message came to it. After four more whole quarters it is idle.
const quarters = 4

// noted is an entity as it was seen, to be stopped if it still is as it was.
type noted struct {
	s    *hold
	e    *entry
	used uint32
}

// tick counts quarters.
func (p *passivation) tick() {
	for p.life.Err() == nil {
		p.sleep(p.set.idle / quarters)
		p.crowd.epoch.Add(1)
		p.post(func() { p.stop(p.running(p.crowd.epoch.Load() - quarters - 1)) })
	}
}

// running lists the active entities that were not used since the epoch before.
func (p *passivation) running(before uint32) (all []noted) {
	for i := range p.shards {
		s := &p.shards[i]
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

// stop passivates entities that have not been used since, and counts them.
func (p *passivation) stop(all []noted) (n int) {
	for _, x := range all {
		x.s.do(func() {
			if x.s.entries[x.e.id] == x.e && x.e.used.Load() == x.used && len(x.s.happensLocked(x.e, entities.Unneeded)) > 0 {
				n++
			}
		})
	}
	p.counts.passivated.Add(int64(n))
	return n
}

// evictPause is the least time from one eviction to the next: entities that have
// mail are started again, and must come to handle some of it.
const evictPause = 10 * time.Millisecond

// evictOldest stops those that were not used the longest, and a twentieth more than
// it must, so that it need not be done for every entity that starts.
func (p *passivation) evictOldest() {
	most, again := p.set.maxActive, 10*evictPause
	if all := p.running(p.crowd.epoch.Load()); len(all) > most {
		again = evictPause
		slices.SortFunc(all, func(a, b noted) int { return cmp.Compare(int32(a.used-b.used), 0) })
		if n := p.stop(all[:min(len(all)-most+most/20, len(all))]); n > 0 {
			p.log.Debug("too many entities: some were stopped", zap.Int("stopped", n), zap.Int("most", most))
		}
		if p.set.idle == 0 {
			p.crowd.epoch.Add(1) // nothing else counts
		}
	}
	p.clock.AfterFunc(again, func() {
		p.crowd.evict.Store(false)
		p.evictIfMany()
	})
}
