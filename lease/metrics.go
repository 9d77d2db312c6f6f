package lease

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/teller"
)

// instruments are the Keeper's metrics. Each carries holdfast.keeper and
// holdfast.store.
type instruments struct {
	attrs       []metric.AddOption // made once, as are those of the outcomes: an Add allocates none
	acquires    counter
	renewals    counter
	losses      counter
	settlements counter
	reconciled  counter
	held        counter
	left        histogram
	base        []attribute.KeyValue

	won, refused, givenBack, failed []metric.AddOption // outcomes of acquisitions
}

func newInstruments(mp metric.MeterProvider, t *teller.Teller, keeper, store string) (*instruments, error) {
	m := mp.Meter("github.com/holdfast-go/holdfast/lease")
	base := []attribute.KeyValue{attribute.String("holdfast.keeper", keeper), attribute.String("holdfast.store", store)}
	i := &instruments{base: base, attrs: []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(base...))}}
	var errs [7]error
	i.acquires.to, errs[0] = m.Int64Counter("holdfast.lease.acquisitions",
		metric.WithDescription("Acquisitions by outcome: won, held by another, given back, error."))
	i.renewals.to, errs[1] = m.Int64Counter("holdfast.lease.renewals",
		metric.WithDescription("Session renewals by outcome: ok, error, gone."))
	i.losses.to, errs[2] = m.Int64Counter("holdfast.lease.losses",
		metric.WithDescription("Terms that ended against their holder's will, by reason."))
	i.settlements.to, errs[3] = m.Int64Counter("holdfast.lease.settlements",
		metric.WithDescription("Terms that began by settling what an earlier operation had left."))
	i.reconciled.to, errs[4] = m.Int64Counter("holdfast.lease.reconciled",
		metric.WithDescription("Records of this node that nobody claimed and that were released."))
	i.held.to, errs[5] = m.Int64UpDownCounter("holdfast.lease.held",
		metric.WithDescription("Leases held."))
	i.left.to, errs[6] = m.Float64Histogram("holdfast.lease.renewal.left", metric.WithUnit("s"),
		metric.WithDescription("Time left to the deadline when a renewal was answered."),
		metric.WithExplicitBucketBoundaries(0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 30, 60))
	for _, c := range []*counter{&i.acquires, &i.renewals, &i.losses, &i.settlements, &i.reconciled, &i.held} {
		c.t = t
	}
	i.left.t = t
	outcome := func(o string) []metric.AddOption { return []metric.AddOption{i.with("outcome", o)} }
	i.won, i.refused, i.givenBack, i.failed = outcome("won"), outcome("held by another"), outcome("given back"), outcome("error")
	return i, errors.Join(errs[:]...)
}

func (i *instruments) with(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(i.base[:len(i.base):len(i.base)], attribute.String(key, value))...))
}

func (i *instruments) renewed(outcome string, left time.Duration) {
	i.renewals.Add(1, i.with("outcome", outcome))
	i.left.Record(max(left, 0).Seconds(), metric.WithAttributeSet(attribute.NewSet(i.base...)))
}

func (i *instruments) loss(reason error) {
	name := "other"
	for s, err := range map[string]error{"expired": ErrExpired, "taken over": ErrTakenOver, "record gone": ErrRecordGone,
		"inconsistent": ErrInconsistent, "closed": ErrClosed} {
		if errors.Is(reason, err) {
			name = s
		}
	}
	i.losses.Add(1, i.with("reason", name))
}
