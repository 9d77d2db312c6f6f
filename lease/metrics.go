package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/store"
)

// instruments are the Keeper's metrics. Each carries holdfast.keeper and
// holdfast.store.
type instruments struct {
	won, refused, givenBack, failed *tally // acquisitions
	settlements, reconciled, held   *tally
	renewals, losses                map[string]meters.Counter // by outcome, by reason
	left, duration                  meters.Times
	restarts                        *tally // of watches

	durations map[[2]string]meters.Times // by operation and outcome, for the queue alone
	off       atomic.Bool                // no provider takes durations

	maker *meters.Maker
	queue *feed.Queue
	all   []*tally
	flush func()      // tell, made once
	waits atomic.Bool // flush does, to be called
}

// tally counts for an instrument that is called later.
type tally struct {
	meters.Counter
	of *instruments
	n  atomic.Int64 // not told yet
}

// add counts by more, later. One such item waits at a time, for all that is counted until then, and
// its key keeps the queue from dropping it.
func (t *tally) add(by int64) {
	if t.n.Add(by); !t.of.waits.Swap(true) {
		t.of.queue.Put(measurements, feed.Item{Key: t.of, Do: t.of.flush})
	}
}

func newInstruments(mp metric.MeterProvider, queue *feed.Queue, keeper, store string) (*instruments, error) {
	m := meters.New(mp, "lease", attribute.String("holdfast.keeper", keeper), attribute.String("holdfast.store", store))
	i := &instruments{queue: queue, durations: map[[2]string]meters.Times{}, maker: m}
	i.flush = i.tell
	of := func(c meters.Counter) *tally {
		i.all = append(i.all, &tally{Counter: c, of: i})
		return i.all[len(i.all)-1]
	}
	acquisitions := m.CounterBy("acquisitions", "Acquisitions by outcome: won, held by another, given back, error.",
		"outcome", "won", "held by another", "given back", "error")
	i.won, i.refused = of(acquisitions["won"]), of(acquisitions["held by another"])
	i.givenBack, i.failed = of(acquisitions["given back"]), of(acquisitions["error"])
	i.renewals = m.CounterBy("renewals", "Session renewals by outcome: ok, error, gone, overtaken.", "outcome", "ok", "error", "gone", "overtaken")
	i.losses = m.CounterBy("losses", "Terms that ended against their holder's will, by reason; lapsed: on time, by their policy.",
		"reason", "expired", "taken over", "record gone", "inconsistent", "closed", "asked", "parent lost", "lapsed", "other")
	i.settlements = of(m.Counter("settlements", "Terms that began by settling what an earlier operation had left."))
	i.restarts = of(m.Counter("watch.restarts", "Watches of the store that broke off and were begun again."))
	i.reconciled = of(m.Counter("reconciled", "Records of this node that no lease claimed and that were released."))
	i.held = of(m.UpDown("held", "Leases held."))
	i.duration = m.Times("store.duration", "Requests to the store by operation and outcome: ok, gone, denied, timeout, canceled, error.")
	i.left = m.Times("renewal.left", "Time left to the deadline when a renewal was answered.",
		0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 30, 60)
	return i, m.Err()
}

func (i *instruments) tell() {
	i.waits.Store(false)
	for _, t := range i.all {
		if n := t.n.Swap(0); n != 0 {
			t.Add(n)
		}
	}
}

// renewed measures a renewal, later.
func (i *instruments) renewed(outcome string, left time.Duration) {
	i.queue.Put(measurements, feed.Item{Do: func() {
		i.renewals[outcome].Add(1)
		i.left.Record(max(left, 0))
		i.off.Store(!i.duration.Enabled())
	}})
}

// lost measures a loss, later.
func (i *instruments) lost(reason error) {
	i.queue.Put(measurements, feed.Item{Do: func() { i.losses[nameOfLoss(reason)].Add(1) }})
}

func nameOfLoss(reason error) string {
	for _, x := range []struct {
		is   error
		name string
	}{
		{ErrLapsed, "lapsed"}, {ErrExpired, "expired"}, {ErrTakenOver, "taken over"}, {ErrRecordGone, "record gone"},
		{ErrInconsistent, "inconsistent"}, {ErrClosed, "closed"}, {ErrAsked, "asked"}, {ErrParentLost, "parent lost"},
	} {
		if errors.Is(reason, x.is) {
			return x.name
		}
	}
	return "other"
}

// asked measures a request to the store, later.
func (i *instruments) asked(operation, outcome string, took time.Duration) {
	i.queue.Put(measurements, feed.Item{Do: func() {
		of := [2]string{operation, outcome}
		t, ok := i.durations[of]
		if !ok {
			t = i.duration.With(attribute.String("operation", operation), attribute.String("outcome", outcome))
			i.durations[of] = t
		}
		t.Record(took)
		i.off.Store(!i.duration.Enabled())
	}})
}

// outcomeOf says how a request under ctx ended.
func outcomeOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, store.ErrSessionGone):
		return "gone"
	case errors.Is(err, ErrDenied):
		return "denied"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return "timeout"
	case ctx.Err() != nil:
		return "canceled"
	}
	return "error"
}

// laterMost bounds what waits to be logged or measured.
const laterMost = 10_000

// later writes log lines and calls instruments in order, on a goroutine of its own: they are
// noted under Keeper.mu, where no users' code may run.
type later struct {
	log   *zap.Logger // the user's
	least zapcore.Level
	queue feed.Queue
}

// The classes of the queue: a burst of lines drops no measurement.
const (
	measurements = iota
	lines
)

// newLater adds fields to the lines of the user's logger. It asks that logger for its level when a line
// is written, and knows the level of the default logger.
func newLater(log *zap.Logger, fields ...zap.Field) *later {
	l := &later{log: log.With(fields...), least: zapcore.DebugLevel}
	switch log.Core() {
	case boundary.Default().Core():
		l.least = zapcore.WarnLevel
	case zapcore.NewNopCore():
		l.least = zapcore.InvalidLevel
	}
	l.queue = feed.Queue{Limit: laterMost,
		Call: func(f func()) { _ = boundary.Contained(f) }, // it would have to be logged
		Dropped: func(_ int, n int64, first bool) {
			if first {
				_ = boundary.Contained(func() {
					l.log.Warn("lines or measurements were dropped: the logger or meter is too slow", zap.Int64("count", n))
				})
			}
		}}
	return l
}

// wait waits for a moment until nothing is left to do.
func (l *later) wait() {
	select {
	case <-l.queue.Idle():
	case <-time.After(100 * time.Millisecond):
	}
}

// logger returns the user's logger, written later.
func (l *later) logger() *zap.Logger {
	return l.log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return laterCore{c, l} }))
}

// laterCore is the core of later's logger.
type laterCore struct {
	zapcore.Core
	l *later
}

func (c laterCore) Enabled(level zapcore.Level) bool { return level >= c.l.least }

func (c laterCore) With(fields []zapcore.Field) zapcore.Core {
	c.Core = zapcore.NewLazyWith(c.Core, fields)
	return c
}

func (c laterCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c laterCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.l.queue.Put(lines, feed.Item{Do: func() {
		if ce := c.Core.Check(e, nil); ce != nil {
			ce.Write(fields...)
		}
	}})
	return nil
}
