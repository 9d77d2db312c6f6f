package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// meter reads what a Keeper counted: by instrument, and by outcome or reason.
type meter struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
}

func metered(t *testing.T, store store.Store, change ...func(*lease.Config)) (*node, *meter) {
	m := &meter{t, sdkmetric.NewManualReader()}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	change = append(change, func(c *lease.Config) { c.MeterProvider = provider })
	return start(t, store, "a", change...), m
}

func (m *meter) read() map[string]int64 {
	m.t.Helper()
	synctest.Wait() // what is measured is told by a goroutine of its own
	var all metricdata.ResourceMetrics
	require.NoError(m.t, m.reader.Collect(context.Background(), &all))
	got := map[string]int64{}
	key := func(name string, set attribute.Set) string {
		keeper, _ := set.Value("holdfast.keeper")
		store, _ := set.Value("holdfast.store")
		require.Equal(m.t, "a memory", keeper.AsString()+" "+store.AsString())
		for _, k := range []attribute.Key{"outcome", "reason"} {
			if v, ok := set.Value(k); ok {
				name += " " + v.AsString()
			}
		}
		return name[len("holdfast.lease."):]
	}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			require.NotEmpty(m.t, metric.Description)
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[key(metric.Name, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				require.Equal(m.t, "s", metric.Unit)
				for _, p := range data.DataPoints {
					got[key(metric.Name, p.Attributes)] = int64(p.Count)
					low, ok := p.Min.Value()
					require.True(m.t, ok && low >= 0)
				}
			}
		}
	}
	return got
}

// stalls is a zapcore.Core that writes when it is let.
type stalls struct {
	zapcore.LevelEnabler
	until chan struct{}
}

func (s stalls) With([]zapcore.Field) zapcore.Core { return s }
func (s stalls) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, s)
}
func (s stalls) Write(zapcore.Entry, []zapcore.Field) error { <-s.until; return nil }
func (s stalls) Sync() error                                { return nil }

// A logger that stalls fills the queue of lines, not that of measurements: the number of held leases stays
// right.
func TestALoggerThatStallsDropsNoMeasurement(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		slow := stalls{zapcore.InfoLevel, make(chan struct{})}
		a, m := metered(t, store, func(c *lease.Config) { c.Logger = zap.New(slow) })
		kept, l := a.hold("kept"), a.lease("x")
		for range 6000 { // two lines each, of which 10 000 may wait
			mustWin(t, l)
			require.NoError(t, l.Release(t.Context()))
		}
		close(slow.until)
		require.True(t, kept.CheckAlive())
		require.EqualValues(t, 1, m.read()["held"])
	})
}

func TestMetricsCountWhatTheySay(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, m := metered(t, sessionless(db), func(c *lease.Config) { c.Jitter = -1 })
		b := start(t, db, "b")
		x, y := a.hold("x"), a.hold("y")
		lb := b.hold("taken")
		taken := a.lease("taken")
		mustNotWin(t, taken)
		require.Equal(t, map[string]int64{"acquisitions won": 2, "acquisitions held by another": 1, "held": 2}, m.read())

		mustWin(t, x) // ours already: nothing happened
		require.NoError(t, y.Release(t.Context()))
		require.EqualValues(t, 1, m.read()["held"])
		require.EqualValues(t, 2, m.read()["acquisitions won"])

		time.Sleep(ttl + ttl/10)
		require.EqualValues(t, 3, m.read()["renewals ok"])
		require.EqualValues(t, 3, m.read()["renewal.left"])
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.Drop})
		time.Sleep(ttl)
		require.NotZero(t, m.read()["renewals error"])
		require.EqualValues(t, 1, m.read()["losses expired"])
		require.Zero(t, m.read()["held"])

		// A term that supersedes what an earlier operation left.
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		mustWin(t, x)
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
		mustWin(t, y)
		require.EqualValues(t, 2, m.read()["settlements"])

		// Losses by reason.
		for name, how := range map[string]func(){
			"record gone": func() {
				rec, _ := standing(t, db, "x")
				remove(t, db, rec)
			},
			"taken over": func() {
				require.NoError(t, lb.Release(t.Context()))
				mustWin(t, taken)
				o := offerOf(t, lb)
				rec, _ := standing(t, db, "taken")
				outs, err := db.Transfer(t.Context(), []store.Transfer{{Held: rec.Held(), To: o}})
				require.NoError(t, err)
				require.True(t, outs[0].OK)
				won, err := lb.Adopt(t.Context(), o)
				require.NoError(t, err)
				require.True(t, won)
			},
		} {
			how()
			time.Sleep(4 * ttl) // one that was taken over is found by listing
			require.EqualValues(t, 1, m.read()["losses "+name], name)
		}

		// Given back, and an error.
		z := a.lease("z")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Second})
		_, err := z.Acquire(within(t, 500*time.Millisecond))
		require.ErrorIs(t, err, lease.ErrUnknown)
		time.Sleep(time.Second)
		require.EqualValues(t, 1, m.read()["acquisitions given back"])
		a.store.Partition()
		_, err = z.Acquire(t.Context())
		require.ErrorIs(t, err, lease.ErrUnknown)
		time.Sleep(ttl)
		a.store.Heal()
		require.EqualValues(t, 1, m.read()["acquisitions error"])
	})
}

func TestMetricsOfReconcilingAndClosing(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, m := metered(t, sessionless(db))
		x := a.hold("x")
		rec, _ := standing(t, db, "x")
		_, err := db.Acquire(t.Context(), store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}, []store.Claim{{Name: "stray", Nonce: 7}})
		require.NoError(t, err)
		time.Sleep(4 * ttl)
		requireFree(t, db, "stray")
		require.EqualValues(t, 1, m.read()["reconciled"])

		require.NoError(t, db.CloseSession(t.Context(), store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}))
		time.Sleep(ttl)
		require.EqualValues(t, 1, m.read()["losses record gone"])
		mustWin(t, x)
		a.Close(within(t, time.Second))
		require.EqualValues(t, 1, m.read()["losses closed"])
		require.Zero(t, m.read()["held"])
	})
}

func TestMetricsOfASessionThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a, m := metered(t, blind(db))
		a.hold("x")
		rec, _ := standing(t, db, "x")
		require.NoError(t, db.CloseSession(t.Context(), store.Session{ID: rec.Session, Owner: rec.Owner, TTL: rec.TTL}))
		time.Sleep(ttl / 2)
		require.EqualValues(t, 1, m.read()["renewals gone"])
		require.EqualValues(t, 1, m.read()["losses record gone"])
	})
}
