package partition

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/placement"
)

// measured are the metrics of a node's partitions "p": sums, values, and how many times were recorded.
func (n *node) measured() map[string]int64 {
	n.w.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(n.w.t, n.reader.Collect(context.Background(), &all))
	got := map[string]int64{}
	want := attribute.NewSet(attribute.String("holdfast.node", n.id), attribute.String("holdfast.partitions", "p"))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			name, ours := strings.CutPrefix(m.Name, "holdfast.partition.")
			if !ours {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				got[name] = data.DataPoints[0].Value
				require.Equal(n.w.t, want, data.DataPoints[0].Attributes)
			case metricdata.Gauge[int64]:
				got[name] = data.DataPoints[0].Value
			case metricdata.Histogram[float64]:
				got[name] = int64(data.DataPoints[0].Count)
				longest, _ := data.DataPoints[0].Max.Value()
				got["longest "+name] = int64(longest)
			}
		}
	}
	return got
}

// of are partitions with a phase, by number.
func of(in Info, phase string) (all []int) {
	for _, x := range in.Table {
		if x.Phase == phase {
			all = append(all, x.Number)
		}
	}
	return all
}

// All nodes agree on who owns what, under which token, and each tells what it does itself; so do the
// metrics.
func TestInfoAgreesWithWhatIsOwned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var all []*node
		for _, id := range names(3) {
			all = append(all, w.take(id, Config{Count: 9}))
		}
		for _, n := range all {
			n.settled()
		}
		agree := func(each ...int64) {
			t.Helper()
			for i, n := range all {
				in := n.Info()
				require.Equal(t, "g", in.Group)
				require.Equal(t, "p", in.Name)
				require.Equal(t, n.id, in.Node)
				require.Equal(t, "count 9", in.Layout)
				require.Equal(t, "count 9", in.Counts)
				require.Equal(t, n.Owned(), of(in, "active"))
				require.Len(t, n.Owned(), int(each[i]))
				require.EqualValues(t, each[i], n.measured()["owned"])
				require.Zero(t, n.measured()["unowned"])
				for _, x := range in.Table {
					o, ok := n.Owner(x.Number)
					require.True(t, ok)
					require.Equal(t, o.ID, x.Owner)
					require.Equal(t, x.Owner, all[0].Info().Table[x.Number].Owner)
					require.Equal(t, x.Token, all[0].Info().Table[x.Number].Token)
					require.NotZero(t, x.Token)
					require.False(t, x.Since.IsZero())
					require.Empty(t, x.To)
				}
				_, err := json.Marshal(in)
				require.NoError(t, err)
			}
		}
		agree(3, 3, 3)
		for _, r := range w.runs {
			require.Equal(t, r.owned.Token(), all[0].Info().Table[r.owned.Number].Token)
		}
		require.NoError(t, all[0].Drain(t.Context()))
		time.Sleep(time.Second)
		require.True(t, all[0].Info().Draining)
		require.Empty(t, of(all[0].Info(), "active"))
		require.EqualValues(t, 3, all[0].Info().Moves)
		m := all[0].measured()
		require.EqualValues(t, 3, m["handover"])
		require.Zero(t, m["stopping"])
		all[0].Undrain()
		time.Sleep(10 * time.Second)
		agree(3, 3, 3)
	})
}

// A partition on its way says where it goes, and an Own that does not return since when it should have.
func TestInfoOfAMove(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		release := make(chan struct{})
		cfg := Config{Keys: []string{"x", "y"}, Own: func(ctx context.Context, o Owned) error {
			<-ctx.Done()
			<-release
			return nil
		}}
		a := w.take("a", cfg)
		a.settled()
		w.take("b", cfg)
		time.Sleep(6 * time.Second)
		in := a.Info()
		stopping := of(in, "stopping")
		require.Len(t, stopping, 1)
		x := in.Table[stopping[0]]
		require.Equal(t, cfg.Keys[x.Number], x.Key)
		require.Equal(t, "a", x.Owner)
		require.Equal(t, "b", x.To)
		require.InDelta(t, time.Second, time.Since(x.Stopping), float64(time.Second))
		require.EqualValues(t, 1, a.measured()["stopping"])
		require.EqualValues(t, 2, a.measured()["owned"], "it is owned until it is passed on")
		time.Sleep(20 * time.Second)
		close(release)
		synctest.Wait()
		time.Sleep(time.Second)
		m := a.measured()
		require.Zero(t, m["stopping"])
		require.EqualValues(t, 1, m["owned"])
		require.InDelta(t, 21, m["longest handover"], 2)
	})
}

// Info has the last error of what fails here, until it has worked for a minute. While nodes
// differ in Count all know which counts.
func TestInfoOfWhatFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var well atomic.Bool
		a := w.take("a", Config{Count: 2, Own: func(ctx context.Context, o Owned) error {
			if o.Number == 1 && !well.Load() {
				return errors.New("no disk")
			}
			<-ctx.Done()
			return nil
		}})
		time.Sleep(5 * time.Second)
		x := a.Info().Table[1]
		require.Greater(t, x.Failures, 2)
		require.Equal(t, "no disk", x.Error)
		require.Equal(t, "active", x.Phase)
		require.EqualValues(t, x.Failures, a.measured()["failures"])
		events, _ := a.keeper.Journal().Since(0, time.Time{}, 1000)
		failed := slices.DeleteFunc(events, func(e journal.Event) bool { return e.Kind != "failed" })
		require.NotEmpty(t, failed)
		require.Equal(t, "partition/g/p/own/1", failed[0].Name)
		require.EqualError(t, failed[0].Why, "no disk")
		well.Store(true)
		time.Sleep(2 * time.Minute)
		require.Zero(t, a.Info().Table[1].Failures)
		require.Empty(t, a.Info().Table[1].Error)
		a.store.Partition()
		time.Sleep(2 * ttl)
		require.Equal(t, []int{0, 1}, of(a.Info(), "acquiring"))
		require.Zero(t, a.Info().Table[1].Failures, "nor does it count when the lease was lost")
		a.store.Heal()

		b := w.take("b", Config{Count: 3})
		b.settled()
		require.Equal(t, "count 3", a.Info().Counts)
		require.Equal(t, "count 2", a.Info().Layout)
		require.Zero(t, a.measured()["unowned"], "what another's Count has it does not know")
	})
}

// Partitions that no node owns are counted until one does.
func TestPartitionsWithoutAnOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var away atomic.Bool
		away.Store(true)
		a := w.take("a", Config{Count: 5, Strategy: placement.StrategyFunc(func(v placement.View) []string {
			if away.Load() {
				return make([]string, len(v.Owners)) // no opinion, and they have no owner
			}
			return placement.Balanced{}.Target(v)
		})})
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 5, a.measured()["unowned"])
		require.Empty(t, a.Info().Table[0].Owner)
		away.Store(false)
		w.take("b", Config{Count: 5})
		time.Sleep(10 * time.Second)
		require.Zero(t, a.measured()["unowned"])
		require.NoError(t, a.stop())
	})
}

// A node that has a partition stays ready for it while others move: that is no move.
func TestInfoOfWhatHasCome(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.take("a", Config{Count: 2})
		a.settled()
		a.locked(func() { a.ready[0] = a.own[0] })
		require.Empty(t, a.Info().Table[0].To)
	})
}
