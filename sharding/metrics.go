package sharding

import (
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/meters"
)

// instruments are a Region's metrics. They carry holdfast.node and holdfast.type.
type instruments struct {
	hosted, dropped, undeliverable, relayed, unordered, overruns, crashes meters.Counter
	handOff                                                               meters.Times
}

func newInstruments(r *Region) (*instruments, error) {
	m := meters.New(r.set.meters, "sharding", attribute.String("holdfast.node", r.keeper.Owner().ID),
		attribute.String("holdfast.type", r.typ.Name))
	entities := m.ObservedUpDown("entities", "Entities that run on this node.", r.active.Load)
	waiting := m.ObservedUpDown("waiting",
		"Messages that wait on this node for a host or for an entity to start, or to be taken up.", r.waiting.Load)
	unconfirmed := m.ObservedCounter("unconfirmed",
		"Messages that are not known to have arrived when their link broke.", r.counts.unconfirmed.Load)
	i := &instruments{
		hosted:        m.UpDown("hosted", "Shards whose entities may run on this node."),
		dropped:       m.Counter("dropped", "Messages that found a buffer full, or were left when a Region ended."),
		undeliverable: m.Counter("undeliverable", "Messages that could not be encoded, decoded or routed."),
		relayed:       m.Counter("relayed", "Messages that were forwarded for others, each kept until it was taken up."),
		unordered:     m.Counter("unordered", "Moves after which the order of messages was not guaranteed."),
		overruns:      m.Counter("overruns", "Handlers that were running when their shard was lost."),
		crashes:       m.Counter("crashes", "Entities that panicked."),
		handOff: m.Times("handoff",
			"Planned moves of shards, from the entities being told to stop until the lease was transferred."),
	}
	stop := m.Observe(entities, waiting, unconfirmed)
	if m.Err() == nil {
		r.onEnd(stop)
	}
	return i, m.Err()
}

// counted notes what a shard's Router counted.
func (r *Region) counted(shard, relayed, unordered int) {
	if relayed > 0 {
		r.counts.relayed.Add(int64(relayed))
		r.metrics.relayed.Add(int64(relayed))
	}
	if unordered > 0 {
		r.counts.unordered.Add(int64(unordered))
		r.metrics.unordered.Add(int64(unordered))
		r.log.Warn("mail went on before all that was sent the old way was known to have arrived", zap.Int("shard", shard))
		r.event(Event{Kind: OrderNotKept, Shard: shard})
	}
}

// overran notes handlers that were running when their shard was lost.
func (r *Region) overran(n uint64) {
	if n > 0 {
		r.counts.overruns.Add(int64(n))
		r.metrics.overruns.Add(int64(n))
	}
}

// crashed notes that an entity panicked.
func (r *Region) crashed(shard int, id string, reason any) {
	r.counts.crashes.Add(1)
	r.metrics.crashes.Add(1)
	r.log.Warn("an entity panicked", zap.Int("shard", shard), zap.String("id", id), zap.Any("panic", reason))
	r.event(Event{Kind: EntityCrashed, Shard: shard, ID: id, Panic: reason})
}
