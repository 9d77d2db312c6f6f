package lease

import (
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/meters"
)

// instruments are the Keeper's metrics. Each carries holdfast.keeper and
// holdfast.store.
type instruments struct {
	won, refused, givenBack, failed *tally // acquisitions
	settlements, reconciled, held   *tally
	renewals, losses                meters.Counter
	left                            meters.Times

	all   []*tally
	flush func()      // tell, made once
	waits atomic.Bool // flush does, to be called
}

// tally counts for an instrument that is called later.
type tally struct {
	meters.Counter
	n atomic.Int64 // not told yet
}

func newInstruments(mp metric.MeterProvider, keeper, store string) (*instruments, error) {
	m := meters.New(mp, "lease", attribute.String("holdfast.keeper", keeper), attribute.String("holdfast.store", store))
	acquisitions := m.Counter("acquisitions", "Acquisitions by outcome: won, held by another, given back, error.")
	var all []*tally
	of := func(c meters.Counter) *tally {
		t := &tally{Counter: c}
		all = append(all, t)
		return t
	}
	outcome := func(o string) *tally { return of(acquisitions.With(attribute.String("outcome", o))) }
	i := &instruments{
		won: outcome("won"), refused: outcome("held by another"), givenBack: outcome("given back"), failed: outcome("error"),
		renewals:    m.Counter("renewals", "Session renewals by outcome: ok, error, gone."),
		losses:      m.Counter("losses", "Terms that ended against their holder's will, by reason; lapsed: on time, by their policy."),
		settlements: of(m.Counter("settlements", "Terms that began by settling what an earlier operation had left.")),
		reconciled:  of(m.Counter("reconciled", "Records of this node that no lease claimed and that were released.")),
		held:        of(m.UpDown("held", "Leases held.")),
		left: m.Times("renewal.left", "Time left to the deadline when a renewal was answered.",
			0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 30, 60),
	}
	i.all, i.flush = all, i.tell
	return i, m.Err()
}

// count has t count by more, later. One such item waits at a time, for all that is counted until then,
// and its key keeps the queue from dropping it.
func (k *Keeper) count(t *tally, by int64) {
	if t.n.Add(by); !k.instruments.waits.Swap(true) {
		k.later.queue.Put(measurements, feed.Item{Key: k, Do: k.instruments.flush})
	}
}

func (i *instruments) tell() {
	i.waits.Store(false)
	for _, t := range i.all {
		if n := t.n.Swap(0); n != 0 {
			t.Add(n)
		}
	}
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
