//go:build unix

package doccheck

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	prometheusclient "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

// promName is what OpenTelemetry's Prometheus exporter calls an instrument of a kind, as
// everyInstrument tells it.
func promName(name, kind string) string {
	name = strings.NewReplacer(".", "_", " ", "_").Replace(name)
	switch {
	case strings.HasPrefix(kind, "counter"):
		return name + "_total"
	case strings.HasSuffix(kind, ", s"):
		return name + "_seconds"
	}
	return name
}

func TestTheExporterNamesInstrumentsSo(t *testing.T) {
	registry := prometheusclient.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	require.NoError(t, err)
	m := meters.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), "part")
	m.Counter("a.counter", "a")
	m.UpDown("an.up.down", "b")
	m.Gauge("a.gauge", "c").Set(1)
	m.Times("a.time", "d").Record(1)
	m.Observe(m.ObservedCounter("seen", "e", func() int64 { return 1 }), m.ObservedUpDown("waiting", "f", func() int64 { return 1 }),
		m.ObservedBy("holding", "g", "holdfast.lease", func(tell func(string, int64)) { tell("x", 1) }),
		m.ObservedTime("offset", "h", func(tell func(time.Duration)) { tell(1) }))
	require.NoError(t, m.Err())
	want := []string{"target_info", "otel_scope_info"}
	for name, kind := range map[string]string{"a.counter": "counter", "an.up.down": "up-down counter", "a.gauge": "gauge",
		"a.time": "histogram, s", "seen": "counter, observed", "waiting": "up-down counter, observed", "holding": "gauge, observed",
		"offset": "gauge, observed, s"} {
		want = append(want, promName("holdfast.part."+name, kind))
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	var got []string
	for _, f := range families {
		got = append(got, f.GetName())
		if f.GetName() == "holdfast_part_holding" {
			require.Contains(t, f.String(), `"holdfast_lease"`)
		}
	}
	require.ElementsMatch(t, want, got)
}

// dashboard is what of Grafana's JSON is looked at.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		Targets []struct{ Expr string }
	}
}

type rules struct {
	Groups []struct {
		Rules []struct{ Alert, Expr string }
	}
}

var (
	metricName = regexp.MustCompile(`\bholdfast_[a-z_]+`)
	// labels are attributes of instruments, which stand in PromQL as names do.
	labels  = []string{"holdfast_keeper", "holdfast_store", "holdfast_node", "holdfast_type", "holdfast_partitions", "holdfast_group", "holdfast_lease"}
	leftOut = regexp.MustCompile("(?m)^- `(holdfast\\.[a-z.]+)`: ")
)

// used are the metrics in PromQL; a histogram's without what its parts are called.
func used(exprs []string) map[string]bool {
	all := map[string]bool{}
	for _, e := range exprs {
		for _, name := range metricName.FindAllString(e, -1) {
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, part)
			}
			if !slices.Contains(labels, name) {
				all[name] = true
			}
		}
	}
	return all
}

// TestTheDashboardAndTheAlarmsNameInstruments that exist. Each is shown, or docs/metrics.md says why it
// is left out.
func TestTheDashboardAndTheAlarmsNameInstruments(t *testing.T) {
	made := map[string]string{}
	for name, what := range everyInstrument(t) {
		kind, _, _ := strings.Cut(what, " | ")
		made[promName(name, kind)] = name
	}
	shown, alarmed := used(exprsOfDashboard(t)), used(exprsOfRules(t))
	for name := range shown {
		require.Contains(t, made, name, "the dashboard")
	}
	for name := range alarmed {
		require.Contains(t, made, name, "the alarms")
	}
	var out []string
	for _, m := range leftOut.FindAllStringSubmatch(read(t, root+"/docs/metrics.md"), -1) {
		out = append(out, m[1])
	}
	for name, instrument := range made {
		require.NotEqual(t, shown[name], slices.Contains(out, instrument), "%s: it is on the dashboard, or docs/metrics.md says why not", instrument)
	}
}

func exprsOfDashboard(t *testing.T) (exprs []string) {
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, root+"/deploy/grafana/holdfast.json")), &d))
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "%s: another panel has its id", p.Title)
		ids[p.ID] = true
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	return exprs
}

func exprsOfRules(t *testing.T) (exprs []string) {
	var r rules
	require.NoError(t, yaml.Unmarshal([]byte(read(t, root+"/deploy/prometheus/alerts.yaml")), &r))
	tests := read(t, root+"/deploy/prometheus/alerts_test.yaml")
	for _, g := range r.Groups {
		for _, x := range g.Rules {
			require.Contains(t, tests, "  - name: "+x.Alert+"\n", "alerts_test.yaml has no test of it")
			exprs = append(exprs, x.Expr)
		}
	}
	return exprs
}

// TestPromtool has Prometheus's own program read the alarms and run their tests, and read the queries of the
// dashboard.
func TestPromtool(t *testing.T) {
	servertest.Skip(t, "prometheus", "promtool", "HOLDFAST_SKIP_PROMETHEUS", func() error { _, err := exec.LookPath("promtool"); return err })
	promtool := func(args ...string) {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = root + "/deploy/prometheus"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "promtool %v:\n%s", args, out)
	}
	promtool("check", "rules", "alerts.yaml")
	promtool("test", "rules", "alerts_test.yaml")

	var all []map[string]string // JSON is YAML, too
	for _, e := range exprsOfDashboard(t) {
		all = append(all, map[string]string{"record": "a", "expr": strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").Replace(e)})
	}
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "g", "rules": all}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "dashboard.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool("check", "rules", "--lint=none", file)
}
