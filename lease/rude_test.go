package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
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

// backAgain is a context whose every method calls f.
type backAgain struct {
	context.Context
	f func()
}

func (c backAgain) Err() error                  { c.f(); return c.Context.Err() }
func (c backAgain) Done() <-chan struct{}       { c.f(); return c.Context.Done() }
func (c backAgain) Value(key any) any           { c.f(); return c.Context.Value(key) }
func (c backAgain) Deadline() (time.Time, bool) { c.f(); return c.Context.Deadline() }

// TestAContextMayCallTheKeeper: it is code of the user's, and runs under no lock.
func TestAContextMayCallTheKeeper(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	h, err := k.Lease("job")
	require.NoError(t, err)
	other, err := k.Lease("other")
	require.NoError(t, err)
	ctx := backAgain{t.Context(), func() {
		_ = other.Describe(nil)
		_, _ = k.Get(context.Background(), "other")
	}}
	for _, x := range []struct {
		name string
		call func() error
	}{
		{"Acquire", func() error { _, err := h.Acquire(ctx); return err }},
		{"Get", func() error { _, err := k.Get(ctx, "job"); return err }},
		{"List", func() error { _, err := k.List(ctx, ""); return err }},
		{"Wait", func() error { return h.Wait(ctx) }},
		{"Release", func() error { return h.Release(ctx) }},
		{"AcquireTerm", func() error { _, err := h.AcquireTerm(ctx); return err }},
		{"Close of the handle", func() error { return h.Close(ctx) }},
		{"Offer", func() error { _, err := other.Offer(ctx); return err }},
		{"Close", func() error { return k.Close(ctx) }},
	} {
		done := meanwhile(func() error { return x.call() })
		select {
		case err := <-done:
			require.NoError(t, err, x.name)
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not return", x.name)
		}
	}
}

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
		k, err := lease.NewKeeper(panickingStore{store}, lease.Config{ID: "a", TTL: ttl})
		require.NoError(t, err)
		defer func() { require.NoError(t, k.Close(context.Background())) }()
		h, err := k.Lease("job")
		require.NoError(t, err)
		_, _, err = h.Holder(t.Context())
		require.ErrorContains(t, err, "it panicked: rude")
		require.Error(t, k.Health(t.Context()))
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

// What loggers and meters do harms no term: the others are renewed, and what is over
// is told.
func TestRudeLoggersAndMetersHoldNothingUp(t *testing.T) {
	for name, rude := range map[string]func(*lease.Keeper, chan struct{}){
		"they block": func(_ *lease.Keeper, end chan struct{}) { <-end },
		"they panic": func(*lease.Keeper, chan struct{}) { panic("rude") },
		"they call the keeper": func(k *lease.Keeper, _ chan struct{}) {
			_ = k.Health(context.Background())
			if h, err := k.Lease("another"); err == nil {
				_ = h.Close(context.Background())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				end := make(chan struct{})
				var k atomic.Pointer[lease.Keeper]
				do := func() {
					if k := k.Load(); k != nil {
						rude(k, end)
					}
				}
				a := start(t, store, "a", func(c *lease.Config) {
					c.Logger, c.MeterProvider = calling(func(string) { do() }), measuring{f: do}
				})
				t.Cleanup(func() { close(end) })
				k.Store(a.Keeper)
				one, two := a.hold("one"), a.hold("two", lease.WithOwnSession())
				time.Sleep(time.Second) // the watch runs
				lost := watchLosses(one)
				rec, _ := standing(t, store, "one")
				remove(t, store, rec)
				lost.one(t, lease.ErrRecordGone)
				time.Sleep(5 * ttl)
				require.True(t, two.CheckAlive(), "what is well is renewed")
				lost = watchLosses(two)
				a.store.Partition()
				time.Sleep(ttl)
				lost.one(t, lease.ErrExpired)
				a.store.Heal()
				mustWin(t, one)
				require.NoError(t, one.Release(t.Context()))
				require.NoError(t, two.Release(t.Context()))
				began := time.Now()
				require.NoError(t, a.Close(t.Context()))
				require.Less(t, time.Since(began), time.Second)
			})
		})
	}
}

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

// logLines is a slog.Handler that collects.
type logLines struct {
	mu  sync.Mutex
	all []string
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) WithGroup(string) slog.Handler            { return l }
func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, text)
	return nil
}

func (l *logLines) read() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// defaultLines makes slog's default logger collect, for the time of a test.
func defaultLines(t *testing.T) *logLines {
	l, before := &logLines{}, slog.Default()
	slog.SetDefault(slog.New(l))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

func TestANilOptionIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		_, err := start(t, store, "a").Lease("job", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}
