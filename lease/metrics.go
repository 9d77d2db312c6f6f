package lease

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/meters"
)

// instruments are the Keeper's metrics. Each carries holdfast.keeper and
// holdfast.store.
type instruments struct {
	won, refused, givenBack, failed meters.Counter // acquisitions
	renewals                        meters.Counter
	losses                          meters.Counter
	settlements                     meters.Counter
	reconciled                      meters.Counter
	held                            meters.Counter
	left                            meters.Times
}

func newInstruments(mp metric.MeterProvider, keeper, store string) (*instruments, error) {
	m := meters.New(mp, "lease", attribute.String("holdfast.keeper", keeper), attribute.String("holdfast.store", store))
	acquisitions := m.Counter("acquisitions", "Acquisitions by outcome: won, held by another, given back, error.")
	outcome := func(o string) meters.Counter { return acquisitions.With(attribute.String("outcome", o)) }
	i := &instruments{
		won: outcome("won"), refused: outcome("held by another"), givenBack: outcome("given back"), failed: outcome("error"),
		renewals:    m.Counter("renewals", "Session renewals by outcome: ok, error, gone."),
		losses:      m.Counter("losses", "Terms that ended against their holder's will, by reason; lapsed: on time, by their policy."),
		settlements: m.Counter("settlements", "Terms that began by settling what an earlier operation had left."),
		reconciled:  m.Counter("reconciled", "Records of this node that no lease claimed and that were released."),
		held:        m.UpDown("held", "Leases held."),
		left: m.Times("renewal.left", "Time left to the deadline when a renewal was answered.",
			0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 30, 60),
	}
	return i, m.Err()
}

// measure has instruments called, later.
func (k *Keeper) measure(f func(*instruments)) {
	k.later.queue.Put(measurements, feed.Item{Do: func() { f(k.instruments) }})
}

func (k *Keeper) measureRenewal(outcome string, left time.Duration) {
	k.measure(func(i *instruments) {
		i.renewals.With(attribute.String("outcome", outcome)).Add(1)
		i.left.Record(max(left, 0))
	})
}

func (k *Keeper) measureLoss(reason error) {
	k.measure(func(i *instruments) { i.losses.With(attribute.String("reason", nameOfLoss(reason))).Add(1) })
}

func nameOfLoss(reason error) string {
	if errors.Is(reason, ErrLapsed) { // which is ErrExpired, too
		return "lapsed"
	}
	for name, err := range map[string]error{"expired": ErrExpired, "taken over": ErrTakenOver, "record gone": ErrRecordGone,
		"inconsistent": ErrInconsistent, "closed": ErrClosed, "parent lost": ErrParentLost} {
		if errors.Is(reason, err) {
			return name
		}
	}
	return "other"
}
