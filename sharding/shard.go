package sharding

import (
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// shard is what this node knows of one shard. Each of its layers uses those below it:
//
//	hold      what the control loop decides about it
//	shard     brings mail and entities together
//	roster    its entities on this node
//	mailroom  its mail, which goes to entities here or to other nodes, or waits
//	cell      its name and its lock
//	node      what the parts of a Region share
type shard struct{ roster }

// Deliver implements route.Port.
func (s *shard) Deliver(it *route.Item) {
	m, ok := it.Local.(*mail)
	if !ok {
		var err error
		if m, err = s.unpack(it.Wire); err != nil {
			s.Refuse(it, wire.ReasonOf(err), wire.Why(err, s.self.Address))
			return
		}
	}
	s.handOverLocked(m, it.Custody())
}

// arrived gives an envelope of another node to its entity, if that is active and nothing has to
// be considered.
func (s *shard) arrived(m *wire.Envelope) bool {
	if !s.here.Load() || ShardOf(m.Key, s.typ.Shards) != s.number {
		return false
	}
	mail, err := s.unpack(m)
	if err != nil {
		return false // the Router refuses it
	}
	return s.deliverFast(lease.Token(m.Token), m.Key, mail.envelope)
}

// deliverFast gives a message that was routed by token, 0 on this node, to an entity that is
// active, if nothing has to be considered.
func (s *shard) deliverFast(token lease.Token, id string, envelope any) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.direct || token > 0 && token > s.last.term.Token() {
		return false
	}
	e := s.entries[id]
	if e == nil || e.Phase != entities.Active {
		return false
	}
	s.give(e, envelope)
	return true
}

// concludeLocked implements whole.
func (s *shard) concludeLocked() []*transport.Peer {
	var st route.Stats
	if s.router != nil {
		s.direct = s.router.Direct()
		hint(&s.here, s.direct)
		hint(&s.elsewhere, s.router.Elsewhere())
		st = s.router.Stats()
	}
	if w := st.Buffered + int(s.out.Held().Load()) + s.pending; w != s.waits {
		s.counts.waiting.Add(int64(w - s.waits))
		s.waits = w
	}
	if st.Relayed != s.stats.Relayed || st.Unordered != s.stats.Unordered {
		relayed, unordered := st.Relayed-s.stats.Relayed, st.Unordered-s.stats.Unordered
		s.after = append(s.after, func() { s.counted(s.number, relayed, unordered) })
	}
	s.stats = st
	if h := s.last; h != nil && h.ending && !h.told && len(s.entries) == 0 {
		// The next host would recover what the store has yet to be told to forget.
		if h.cause != nil || !h.rem.leaving && len(h.rem.remove) == 0 {
			h.told = true
			h.empty()
		}
	}
	return s.out.Touched()
}

func hint(b *atomic.Bool, v bool) {
	if b.Load() != v {
		b.Store(v)
	}
}

// failing counts the entities here that fail before their first message, unless one works.
func (s *shard) failing() (n int, works bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.entries {
		if e.Phase == entities.Active && e.gate.Used() {
			return 0, true
		}
		if e.failsEarly() {
			n++
		}
	}
	return n, false
}
