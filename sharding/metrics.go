package sharding

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

func newInstruments(r *Region) (*instruments, error) {
	m := r.set.meters.Meter("github.com/holdfast-go/holdfast/sharding")
	attrs := attribute.NewSet(attribute.String("holdfast.node", r.keeper.Owner().ID),
		attribute.String("holdfast.type", r.typ.Name))
	i := &instruments{attrs: metric.WithAttributeSet(attrs)}
	var errs []error
	counter := func(to *metric.Int64Counter, name, what string) {
		c, err := m.Int64Counter("holdfast.sharding."+name, metric.WithDescription(what))
		*to, errs = c, append(errs, err)
	}
	var err error
	i.hosted, err = m.Int64UpDownCounter("holdfast.sharding.hosted",
		metric.WithDescription("Shards whose entities may run on this node."))
	errs = append(errs, err)
	i.entities, err = m.Int64ObservableUpDownCounter("holdfast.sharding.entities",
		metric.WithDescription("Entities that run on this node."))
	errs = append(errs, err)
	i.waiting, err = m.Int64ObservableUpDownCounter("holdfast.sharding.waiting",
		metric.WithDescription("Messages that wait on this node for a host or for an entity to start, or to be taken up."))
	errs = append(errs, err)
	i.unconfirmed, err = m.Int64ObservableCounter("holdfast.sharding.unconfirmed",
		metric.WithDescription("Messages that are not known to have arrived when their link broke."))
	errs = append(errs, err)
	counter(&i.dropped, "dropped", "Messages that found a buffer full, or were left when a Region ended.")
	counter(&i.undeliverable, "undeliverable", "Messages that could not be encoded, decoded or routed.")
	counter(&i.relayed, "relayed", "Messages that were forwarded for others, each kept until it was taken up.")
	counter(&i.unordered, "unordered", "Moves after which the order of messages was not guaranteed.")
	counter(&i.overruns, "overruns", "Handlers that were running when their shard was lost.")
	counter(&i.crashes, "crashes", "Entities that panicked.")
	i.handOff, err = m.Float64Histogram("holdfast.sharding.handoff", metric.WithUnit("s"),
		metric.WithDescription("Planned moves of shards, from the entities being told to stop until the lease was transferred."),
		metric.WithExplicitBucketBoundaries(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	reg, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(i.entities, r.active.Load(), i.attrs)
		o.ObserveInt64(i.waiting, r.waiting.Load(), i.attrs)
		o.ObserveInt64(i.unconfirmed, r.counts.unconfirmed.Load(), i.attrs)
		return nil
	}, i.entities, i.waiting, i.unconfirmed)
	if err != nil {
		return nil, err
	}
	r.onEnd(func() { r.measure(func(*instruments) { _ = reg.Unregister() }) })
	return i, nil
}

// measure has instruments told, aside: they are the user's.
func (r *Region) measure(f func(*instruments)) { r.meters.Tell(func() { f(r.metrics) }) }

func (r *Region) count(c metric.Int64Counter, n int) {
	r.measure(func(i *instruments) { c.Add(context.Background(), int64(n), i.attrs) })
}

// countHosted notes that the entities of more shards may run here, or of fewer.
func (r *Region) countHosted(more int64) {
	r.measure(func(i *instruments) { i.hosted.Add(context.Background(), more, i.attrs) })
}

// counted notes what a shard's Router counted.
func (r *Region) counted(shard, relayed, unordered int) {
	if relayed > 0 {
		r.counts.relayed.Add(int64(relayed))
		r.count(r.metrics.relayed, relayed)
	}
	if unordered > 0 {
		r.counts.unordered.Add(int64(unordered))
		r.count(r.metrics.unordered, unordered)
		r.log.Warn("mail went on before all that was sent the old way was known to have arrived", zap.Int("shard", shard))
		go r.event(Event{Kind: OrderNotKept, Shard: shard})
	}
}

// overran notes handlers that were running when their shard was lost.
func (r *Region) overran(n uint64) {
	if n > 0 {
		r.counts.overruns.Add(int64(n))
		r.count(r.metrics.overruns, int(n))
	}
}

// crashed notes that an entity panicked.
func (r *Region) crashed(shard int, id string, reason any) {
	r.counts.crashes.Add(1)
	r.count(r.metrics.crashes, 1)
	r.log.Warn("an entity panicked", zap.Int("shard", shard), zap.String("id", id), zap.Any("panic", reason))
	r.event(Event{Kind: EntityCrashed, Shard: shard, ID: id, Panic: reason})
}
