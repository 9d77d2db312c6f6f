package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// brokenStore answers with one token, whatever it has issued.
type brokenStore struct {
	store.Store
	token lease.Token
}

func (b brokenStore) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	outs, err := b.Store.Acquire(ctx, s, claims)
	for i := range outs {
		outs[i].Record.Token = b.token
	}
	return outs, err
}

func TestARepeatedTokenIsNotTrusted(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, brokenStore{store, 7}, "a")
		la := a.hold("job")
		require.NoError(t, la.Release(t.Context()))
		won, err := la.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.False(t, la.CheckAlive())
	})
}

// A success without a token is a broken answer, and says nothing of the store's history:
// what else there is is not ended, and the next answer may be right.
func TestAWinWithoutATokenIsNoSetback(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		broken := &fickleStore{Store: store}
		a := start(t, broken, "a")
		other := a.hold("other")
		broken.is = true
		l := a.lease("job")
		won, err := l.Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrInconsistent)
		require.NotErrorIs(t, err, lease.ErrSetback)
		require.NoError(t, a.Setback())
		require.True(t, other.CheckAlive())
		broken.is = false
		mustWin(t, l)
	})
}

// fickleStore is broken at times.
type fickleStore struct {
	store.Store
	is bool
}

func (f *fickleStore) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	if f.is {
		return brokenStore{f.Store, 0}.Acquire(ctx, s, claims)
	}
	return f.Store.Acquire(ctx, s, claims)
}

// rudeStore panics or never returns, whatever its context says.
type rudeStore struct {
	store.Store
	manner string
	hang   chan struct{}
}

func (r *rudeStore) Renew(ctx context.Context, s []store.Session) ([]store.Grant, error) {
	if r.manner == "panics" {
		panic("rude")
	}
	<-r.hang
	return nil, errors.New("late")
}

func TestARudeStoreHarmsNobody(t *testing.T) {
	for _, manner := range []string{"panics", "hangs"} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			hang := make(chan struct{})
			a := start(t, &rudeStore{Store: store, manner: manner, hang: hang}, "a")
			la := a.hold("job")
			lost := watchLosses(la)
			time.Sleep(ttl)
			require.False(t, la.CheckAlive())
			lost.one(t, lease.ErrExpired)
			mustWin(t, la)
			close(hang)
		})
	}
}

// panickingStore panics when it is read.
type panickingStore struct{ store.Store }

func (panickingStore) Get(context.Context, ...string) ([]lease.Record, error) { panic("rude") }

// A request that panicked has no answer: least of all that a name is free.
func TestAPanicIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, panickingStore{store}, "a")
		_, _, err := a.lease("job").Holder(t.Context())
		require.ErrorContains(t, err, "it panicked: rude")
		require.Error(t, a.Health(t.Context()))
	})
}

// calling returns a logger that calls f with the text of each line.
func calling(f func(line string)) *zap.Logger {
	return zap.New(callingCore{zapcore.NewNopCore(), f})
}

type callingCore struct {
	zapcore.Core
	f func(string)
}

func (c callingCore) Enabled(zapcore.Level) bool                     { return true }
func (c callingCore) With([]zapcore.Field) zapcore.Core              { return c }
func (c callingCore) Write(e zapcore.Entry, _ []zapcore.Field) error { c.f(e.Message); return nil }
func (c callingCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, c)
}

// measuring is a MeterProvider whose instruments call f.
type measuring struct {
	noop.MeterProvider
	f func()
}

func (m measuring) Meter(string, ...metric.MeterOption) metric.Meter { return measuringMeter{f: m.f} }

type measuringMeter struct {
	noop.Meter
	f func()
}

func (m measuringMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return measuringCounter{f: m.f}, nil
}

func (m measuringMeter) Int64UpDownCounter(string, ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return measuringGauge{f: m.f}, nil
}

func (m measuringMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return measuringHistogram{f: m.f}, nil
}

type measuringCounter struct {
	noop.Int64Counter
	f func()
}

func (m measuringCounter) Add(context.Context, int64, ...metric.AddOption) { m.f() }

type measuringGauge struct {
	noop.Int64UpDownCounter
	f func()
}

func (m measuringGauge) Add(context.Context, int64, ...metric.AddOption) { m.f() }

type measuringHistogram struct {
	noop.Float64Histogram
	f func()
}

func (m measuringHistogram) Record(context.Context, float64, ...metric.RecordOption) { m.f() }

// A logger that is slow loses lines, and is told how many.
func TestLinesThatALoggerCannotTakeAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		core, logs := observer.New(zapcore.DebugLevel)
		end, panicking := make(chan struct{}), errors.New("once")
		var once sync.Once
		slow := zap.New(core, zap.Hooks(func(zapcore.Entry) error {
			<-end
			once.Do(func() { panic(panicking) })
			return nil
		}))
		a := start(t, store, "a", func(c *lease.Config) { c.Logger = slow })
		h := a.lease("job")
		for range 11_000 {
			mustWin(t, h)
			require.NoError(t, h.Release(t.Context()))
		}
		close(end)
		synctest.Wait()
		told := logs.FilterMessageSnippet("lines or measurements were dropped").All()
		require.NotEmpty(t, told)
		dropped := int64(0)
		for _, e := range told {
			dropped += e.ContextMap()["count"].(int64)
		}
		require.Positive(t, dropped)
		require.LessOrEqual(t, logs.Len(), 10_010, "what waits is bounded")
	})
}
