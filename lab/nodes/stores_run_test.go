//go:build linux && !race

package nodes

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// skip skips a test whose servers are not there.
func skip(t *testing.T, s Store) {
	switch s.Name {
	case overEtcd.Name:
		etcdtest.Skip(t)
	case overPostgres.Name:
		postgrestest.Skip(t)
	}
}

// The short form, with processes of this test binary, over every store: one of the test's own, which
// can't be watched and has no history of records, too. protoactor's remote sets gRPC's logger when it
// starts, while clients read it: hence the build constraint.
func TestShortTorture(t *testing.T) {
	tier.NightlyOnly(t, "TestShortForms kills and stops nodes")
	for _, s := range []Store{overEtcd, overPostgres, overSQLite, shared} {
		t.Run(s.Name, func(t *testing.T) {
			skip(t, s)
			playShort(t, "torture", &scene.Run{Short: true, Seed: 3, Store: s.Name})
		})
	}
}

// playShort plays a scenario. That something took long is the machine's.
func playShort(t *testing.T, name string, r *scene.Run) {
	var out bytes.Buffer
	r.Out = &out
	for _, s := range Scenarios() {
		if s.Name != name {
			continue
		}
		err := s.Play(t.Context(), r)
		for _, v := range r.Violations() {
			slow := strings.HasPrefix(v, "late: ") || strings.HasSuffix(v, " s") || strings.Contains(v, "share of the load") || strings.HasPrefix(v, "p99")
			if !slow {
				t.Errorf("%s", v)
			}
		}
		if len(r.Violations()) == 0 {
			require.NoError(t, err, "%s", &out)
		}
		if t.Failed() || testing.Verbose() {
			t.Log(out.String())
		}
		return
	}
	t.Fatalf("there is no scenario %q", name)
}

// Each scenario in its short form: one of each kind in the commit tier, the rest at night.
func TestShortForms(t *testing.T) {
	short := []string{"rolling", "scheduler", "stops"}
	if tier.Nightly() {
		short = []string{"scheduler", "bank", "kills", "stops", "shardkills", "many", "shards", "handovers", "singletonload", "rolling", "restarts", "load", "congestion", "backlog", "slowlink", "reshard"}
	}
	for _, name := range short {
		t.Run(name, func(t *testing.T) {
			etcdtest.Skip(t)
			if !tier.Nightly() {
				t.Parallel() // they wait, mostly
			}
			playShort(t, name, &scene.Run{Short: true})
		})
	}
}

func TestShortRestore(t *testing.T) {
	tier.NightlyOnly(t, "TestShortForms plays others")
	etcdtest.Skip(t)
	playShort(t, "restore", &scene.Run{Short: true})
}

// Nodes that leak with every account they start, for real.
func TestLeaksOfNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestLeaksShowInTheSeries judges series")
	etcdtest.Skip(t)
	var out bytes.Buffer
	r := &scene.Run{Seed: 1, Dir: t.TempDir(), Out: &out}
	m := moves{nodes: 3, set: settings{TTL: 10 * time.Second, Names: names{Singletons: 2, Shards: 32, Each: 128}, Follows: true, Idle: 2 * time.Second,
		MaxActive: 260, Leaks: "goroutines, heap"}, asks: 400, length: 20 * time.Second, every: 2500 * time.Millisecond, deck: []move{drain, handOver}, grow: true}
	require.NoError(t, scene.Try(func() { m.play(t.Context(), r) }), "%s", &out)
	all := strings.Join(r.Violations(), "; ")
	require.Contains(t, all, "more goroutines")
	require.Contains(t, all, "more MiB of heap")
	require.NotContains(t, all, "open files")
}

// brokenNodes are nodes that trust a slow clock, and write without a condition: what they do when they
// are cut off from the store must be found. A stale write must meet a newer one for the journal to
// show it.
func brokenNodes(ctx context.Context, r *scene.Run) map[string]int {
	t := newTorture(ctx, r, options{length: time.Second, nodes: 2, ttl: 2 * time.Second, rate: 100, broken: true, wires: newNetwork})
	defer t.end()
	t.begin(ctx)
	cut := fault{kind: cutRequests, Shape: machine.Shape{Stall: true}, For: 6 * time.Second}
	second := cut
	second.Node, second.After = 1, 7*time.Second
	t.weather(ctx, 1, []fault{cut, second})
	found := map[string]int{}
	for _, v := range judge(t.bring(ctx)).violations {
		found[v.rule]++
	}
	return found
}

func TestBrokenNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestEveryViolationIsFound judges broken journals")
	for _, s := range []Store{overEtcd, overPostgres} {
		t.Run(s.Name, func(t *testing.T) {
			skip(t, s)
			var out bytes.Buffer
			found := map[string]int{}
			for try := 0; try < 3 && (found[ruleI1] == 0 || found[ruleI3] == 0 || found[ruleFence] == 0); try++ {
				require.NoError(t, scene.Try(func() {
					found = brokenNodes(t.Context(), &scene.Run{Seed: 1, Store: s.Name, Dir: t.TempDir(), Out: &out})
				}), "%s", &out)
			}
			for _, rule := range []string{ruleI1, ruleI3, ruleFence} {
				require.NotZero(t, found[rule], "%s: %s", rule, &out)
			}
		})
	}
}
