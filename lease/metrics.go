package lease

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/store"
)

// instruments are the Keeper's metrics. Each carries holdfast.keeper and
// holdfast.store.
type instruments struct {
	won, refused, givenBack, failed *tally // acquisitions
	settlements, reconciled, held   *tally
	renewals, losses                map[string]meters.Counter // by outcome, by reason
	left                            meters.Times
	restarts                        *tally // of watches
	requests                        requests

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
	acquisitions := m.CounterBy("acquisitions", "Acquisitions by outcome: won, held by another, given back, error.",
		"outcome", "won", "held by another", "given back", "error")
	var all []*tally
	of := func(c meters.Counter) *tally {
		t := &tally{Counter: c}
		all = append(all, t)
		return t
	}
	outcome := func(o string) *tally { return of(acquisitions[o]) }
	i := &instruments{
		won: outcome("won"), refused: outcome("held by another"), givenBack: outcome("given back"), failed: outcome("error"),
		renewals: m.CounterBy("renewals", "Session renewals by outcome: ok, error, gone, overtaken.", "outcome", "ok", "error", "gone", "overtaken"),
		losses: m.CounterBy("losses", "Terms that ended against their holder's will, by reason; lapsed: on time, by their policy.",
			"reason", append(slices.Collect(maps.Keys(reasonsOfLoss)), "lapsed", "other")...),
		settlements: of(m.Counter("settlements", "Terms that began by settling what an earlier operation had left.")),
		restarts:    of(m.Counter("watch.restarts", "Watches of the store that broke off and were begun again.")),
		requests:    requests{Times: m.Times("store.duration", "Requests to the store by operation and outcome: ok, gone, denied, timeout, canceled, error.")},
		reconciled:  of(m.Counter("reconciled", "Records of this node that no lease claimed and that were released.")),
		held:        of(m.UpDown("held", "Leases held.")),
		left: m.Times("renewal.left", "Time left to the deadline when a renewal was answered.",
			0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 30, 60),
	}
	for _, t := range all {
		t.of = i
	}
	i.maker, i.queue, i.all, i.flush = m, queue, all, i.tell
	return i, m.Err()
}

func (i *instruments) tell() {
	i.waits.Store(false)
	for _, t := range i.all {
		if n := t.n.Swap(0); n != 0 {
			t.Add(n)
		}
	}
	i.requests.tell()
}

// renewed measures a renewal, later.
func (i *instruments) renewed(outcome string, left time.Duration) {
	i.queue.Put(measurements, feed.Item{Do: func() {
		i.renewals[outcome].Add(1)
		i.left.Record(max(left, 0))
		i.requests.off.Store(!i.requests.Enabled())
	}})
}

// lost measures a loss, later.
func (i *instruments) lost(reason error) {
	i.queue.Put(measurements, feed.Item{Do: func() {
		i.losses[nameOfLoss(reason)].Add(1)
	}})
}

var reasonsOfLoss = map[string]error{"expired": ErrExpired, "taken over": ErrTakenOver, "record gone": ErrRecordGone,
	"inconsistent": ErrInconsistent, "closed": ErrClosed, "asked": ErrAsked, "parent lost": ErrParentLost}

func nameOfLoss(reason error) string {
	if errors.Is(reason, ErrLapsed) { // which is ErrExpired, too
		return "lapsed"
	}
	for name, err := range reasonsOfLoss {
		if errors.Is(reason, err) {
			return name
		}
	}
	return "other"
}

// What is asked of a store, and how it answers.
const (
	askOpenSession = iota
	askCloseSession
	askAcquire
	askRenew
	askRelease
	askTransfer
	askGet
	askList
)

var operationNames = [...]string{"open", "close", "acquire", "renew", "release", "transfer", "get", "list"}

const (
	cameOK = iota
	cameError
	cameGone
	cameDenied
	cameTimeout
	cameCanceled
)

var outcomeNames = [...]string{"ok", "error", "gone", "denied", "timeout", "canceled"}

// request is one that has ended.
type request struct {
	operation, outcome uint8
	took               time.Duration
}

// requests are measured later, as tallies are.
type requests struct {
	meters.Times
	of  [len(operationNames)][len(outcomeNames)]meters.Times // made when it is needed
	off atomic.Bool                                          // no provider takes what is measured
	mu  sync.Mutex
	// What waits to be told, and the room for what comes meanwhile.
	waiting, spare []request
}

// tell measures what waits. One call comes after the other.
func (r *requests) tell() {
	r.off.Store(!r.Enabled())
	r.mu.Lock()
	all := r.waiting
	r.waiting, r.spare = r.spare[:0], all
	r.mu.Unlock()
	for _, x := range all {
		r.record(x)
	}
}

func (r *requests) record(x request) {
	t := &r.of[x.operation][x.outcome]
	if t.Unmade() {
		*t = r.With(attribute.String("operation", operationNames[x.operation]), attribute.String("outcome", outcomeNames[x.outcome]))
	}
	t.Record(x.took)
}

// asked measures a request, later.
func (i *instruments) asked(x request) {
	r := &i.requests
	r.mu.Lock()
	full := len(r.waiting) == laterMost
	if !full {
		r.waiting = append(r.waiting, x)
	}
	r.mu.Unlock()
	if full { // the queue counts what does not fit
		i.queue.Put(measurements, feed.Item{Do: func() { r.record(x) }})
	}
	if !i.waits.Swap(true) {
		i.queue.Put(measurements, feed.Item{Key: i, Do: i.flush})
	}
}

// meteredStore is the user's store: what is asked of it is measured and, for a caller under a span, traced.
type meteredStore struct {
	store.Store
	traces *traces.Tracer
	meter  *instruments
}

// asking is one request under way.
type asking struct {
	operation uint8
	began     time.Time // zero: it is not measured
	span      traces.Span
}

// errUnanswered is how a request ends that does not return.
var errUnanswered = errors.New("it panicked")

// begin begins a request. One whose context is done asks nothing.
func (s *meteredStore) begin(ctx context.Context, operation uint8, names int) (context.Context, asking) {
	a := asking{operation: operation}
	if ctx.Err() != nil {
		return ctx, a
	}
	if !s.meter.requests.off.Load() {
		a.began = time.Now()
	}
	if s.traces.Under(ctx) {
		ctx, a.span = s.traces.Begin(ctx, "holdfast.store."+operationNames[operation], trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String("holdfast.store", s.Limits().Name), attribute.Int("holdfast.names", names)))
	}
	return ctx, a
}

func (s *meteredStore) end(ctx context.Context, a asking, err error) {
	if a.span.End(err); a.began.IsZero() {
		return
	}
	x := request{operation: a.operation, outcome: cameError, took: time.Since(a.began)}
	switch {
	case err == nil:
		x.outcome = cameOK
	case errors.Is(err, store.ErrSessionGone):
		x.outcome = cameGone
	case errors.Is(err, ErrDenied):
		x.outcome = cameDenied
	case errors.Is(err, context.DeadlineExceeded), errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		x.outcome = cameTimeout
	case ctx.Err() != nil:
		x.outcome = cameCanceled
	}
	s.meter.asked(x)
}

// through sends a request that is measured.
func through[T any](ctx context.Context, s *meteredStore, operation uint8, names int, f func(context.Context) (T, error)) (v T, err error) {
	ctx, a := s.begin(ctx, operation, names)
	err = errUnanswered
	defer func() { s.end(ctx, a, err) }()
	v, err = f(ctx)
	return v, err
}

func (s *meteredStore) OpenSession(ctx context.Context, sess store.Session) (store.Grant, error) {
	return through(ctx, s, askOpenSession, 0, func(ctx context.Context) (store.Grant, error) { return s.Store.OpenSession(ctx, sess) })
}

func (s *meteredStore) CloseSession(ctx context.Context, sess store.Session) error {
	_, err := through(ctx, s, askCloseSession, 0, func(ctx context.Context) (any, error) { return nil, s.Store.CloseSession(ctx, sess) })
	return err
}

func (s *meteredStore) Acquire(ctx context.Context, sess store.Session, claims []store.Claim) ([]store.Outcome, error) {
	return through(ctx, s, askAcquire, len(claims), func(ctx context.Context) ([]store.Outcome, error) { return s.Store.Acquire(ctx, sess, claims) })
}

func (s *meteredStore) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	return through(ctx, s, askRenew, len(sessions), func(ctx context.Context) ([]store.Grant, error) { return s.Store.Renew(ctx, sessions) })
}

func (s *meteredStore) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	return through(ctx, s, askRelease, len(held), func(ctx context.Context) ([]store.Outcome, error) { return s.Store.Release(ctx, held) })
}

// Transfer is only called where the user's store is a Transferrer.
func (s *meteredStore) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	t := s.Store.(store.Transferrer)
	return through(ctx, s, askTransfer, len(moves), func(ctx context.Context) ([]store.Outcome, error) { return t.Transfer(ctx, moves) })
}

func (s *meteredStore) Get(ctx context.Context, names ...string) ([]Record, error) {
	return through(ctx, s, askGet, len(names), func(ctx context.Context) ([]Record, error) { return s.Store.Get(ctx, names...) })
}

func (s *meteredStore) List(ctx context.Context, q store.Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		ctx, a := s.begin(ctx, askList, 0)
		err := errUnanswered
		defer func() { s.end(ctx, a, err) }()
		for rec, e := range s.Store.List(ctx, q) {
			if e != nil && !errors.Is(e, ErrBadRecord) {
				err = e
			}
			if !yield(rec, e) {
				break
			}
		}
		if err == errUnanswered {
			err = nil
		}
	}
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
