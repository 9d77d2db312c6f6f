package singleton

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are a node's metrics of its singletons, all of them together: one
// series each, however many singletons there are. They carry holdfast.node.
type instruments struct {
	attrs         metric.MeasurementOption
	hosted        metric.Int64UpDownCounter
	buffered      metric.Int64UpDownCounter
	dropped       metric.Int64Counter
	undeliverable metric.Int64Counter
	unconfirmed   metric.Int64Counter
	relayed       metric.Int64Counter
	unordered     metric.Int64Counter
	overruns      metric.Int64Counter
	restarts      metric.Int64Counter
	hostless      metric.Float64Histogram
	handOver      metric.Float64Histogram
}

func newInstruments(mp metric.MeterProvider, node string) (*instruments, error) {
	m := mp.Meter("github.com/holdfast-go/holdfast/singleton")
	i := &instruments{attrs: metric.WithAttributeSet(attribute.NewSet(attribute.String("holdfast.node", node)))}
	var errs []error
	counter := func(to *metric.Int64Counter, name, what string) {
		c, err := m.Int64Counter("holdfast.singleton."+name, metric.WithDescription(what))
		*to, errs = c, append(errs, err)
	}
	gauge := func(to *metric.Int64UpDownCounter, name, what string) {
		c, err := m.Int64UpDownCounter("holdfast.singleton."+name, metric.WithDescription(what))
		*to, errs = c, append(errs, err)
	}
	times := func(to *metric.Float64Histogram, name, what string) {
		h, err := m.Float64Histogram("holdfast.singleton."+name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300))
		*to, errs = h, append(errs, err)
	}
	gauge(&i.hosted, "hosted", "Singletons whose child runs on this node.")
	gauge(&i.buffered, "buffered", "Messages that wait on this node for a host, or to be taken up by it.")
	counter(&i.dropped, "dropped", "Messages that found a buffer full, or were left when a manager ended.")
	counter(&i.undeliverable, "undeliverable", "Messages that could not be encoded, decoded or routed.")
	counter(&i.unconfirmed, "unconfirmed", "Messages that are not known to have arrived when their link broke.")
	counter(&i.relayed, "relayed", "Messages that were forwarded for others, each kept until it was taken up.")
	counter(&i.unordered, "unordered", "Moves after which the order of messages was not guaranteed.")
	counter(&i.overruns, "overruns", "Handlers that were running when the lease was lost.")
	counter(&i.restarts, "restarts", "Children that ended by themselves.")
	times(&i.hostless, "hostless", "Time without a host that this node's messages could go to.")
	times(&i.handOver, "handover", "Planned hand-overs, from the child being told to stop until the lease was transferred.")
	return i, errors.Join(errs...)
}

// measure has instruments told, aside: they are the user's.
func (c *controller) measure(f func(*instruments)) { c.meters.Tell(func() { f(c.metrics) }) }

// meter tells what changed from one status to the next.
func (c *controller) meter(old, now Status) {
	c.measure(func(i *instruments) { i.changed(old, now) })
	if now.Unordered > old.Unordered {
		c.log.Warn("mail went on before all that was sent the old way was known to have arrived")
		c.event(Event{Kind: OrderNotKept, Token: now.Token})
	}
}

func (i *instruments) changed(old, now Status) {
	ctx := context.Background()
	add := func(to metric.Int64Counter, d int) {
		if d > 0 {
			to.Add(ctx, int64(d), i.attrs)
		}
	}
	move := func(to metric.Int64UpDownCounter, d int) {
		if d != 0 {
			to.Add(ctx, int64(d), i.attrs)
		}
	}
	move(i.buffered, now.Buffered-old.Buffered)
	move(i.hosted, one(now.Phase.hosts())-one(old.Phase.hosts()))
	add(i.dropped, now.Dropped-old.Dropped)
	add(i.undeliverable, now.Undeliverable-old.Undeliverable)
	add(i.unconfirmed, now.Unconfirmed-old.Unconfirmed)
	add(i.relayed, now.Relayed-old.Relayed)
	add(i.unordered, now.Unordered-old.Unordered)
}

// hosts reports whether there is a child in p.
func (p Phase) hosts() bool {
	switch p {
	case Active, Inviting, HandingOver, Yielding, Stopping:
		return true
	}
	return false
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// meterHost measures for how long there was no host.
func (c *controller) meterHost() {
	switch routable := c.proxy.Routable(); {
	case routable && c.hostlessAt != 0:
		d := c.clock.Now().Mono - c.hostlessAt + time.Nanosecond
		c.hostlessAt = 0
		c.measure(func(i *instruments) { i.hostless.Record(context.Background(), d.Seconds(), i.attrs) })
	case !routable && c.hostlessAt == 0:
		c.hostlessAt = c.clock.Now().Mono
	}
}
