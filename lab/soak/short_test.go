//go:build linux && !race

package soak

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// The short forms, with processes and etcd. Each node is a process of this test
// binary; protoactor's remote sets gRPC's logger when it starts, while clients
// read it: hence the build constraint.
func TestShortForms(t *testing.T) {
	forms := []shortCheck{{"rolling", rolling, []string{"-nodes", "2", "-shards", "32", "-rate", "400"}, 9}}
	if tier.Nightly() {
		forms = append(forms, nightlyForms...)
	}
	for _, c := range forms {
		t.Run(c.name, func(t *testing.T) { shortForm(t, c.judged, c.run, c.args...) })
	}
}

// shortCheck is a command in its short form, which judges so many figures.
type shortCheck struct {
	name   string
	run    check
	args   []string
	judged int
}

var nightlyForms = []shortCheck{
	{"handovers", handovers, []string{"-n", "4", "-rate", "600"}, 10},
	{"kills", kills, []string{"-n", "1"}, 5},
	{"many", many, []string{"-n", "60", "-ttl", "2s"}, 11},
	{"shardkills", shardKills, []string{"-n", "1", "-nodes", "3", "-shards", "32", "-rate", "300"}, 4},
	{"shards", shardsCheck, []string{"-n", "200", "-nodes", "3", "-ttl", "2s"}, 12},
	{"reshard", reshard, []string{"-entities", "120", "-nodes", "2", "-changes", "8,32,2"}, 6},
	{"load", loadCheck, []string{"-for", "20s", "-rate", "400"}, 14},
}

func TestShortRestore(t *testing.T) {
	tier.NightlyOnly(t, "TestShortForms runs one command")
	shortForm(t, 13, restoreCheck, "-nodes", "2", "-n", "3", "-ttl", "2s")
}

var gaveOrderUp = regexp.MustCompile(`[1-9]\d* moves without known order`)

// shortForm runs a check that judges so many figures, and none of them broken.
func shortForm(t *testing.T, judged int, run check, args ...string) {
	r, out := inShort(t, run, args...)
	require.Equal(t, judged, r.kept+r.broken, "%s", out)
	for line := range strings.Lines(out) {
		// What takes how long is not for a machine that does other things, too; nor is
		// order, where a move made no progress for a second, and said so.
		slow := strings.HasSuffix(line, " s\n") || strings.Contains(line, "share of the load") ||
			strings.Contains(line, "messages reordered") && gaveOrderUp.MatchString(out)
		if strings.HasPrefix(line, "BROKEN") && !slow {
			tier.Unsafe(t, "%s%s", line, out)
		}
	}
}

// inShort runs a check, and returns its report and what it printed.
func inShort(t *testing.T, run check, args ...string) (*report, string) {
	etcdtest.Skip(t)
	t.Parallel() // it waits, mostly
	var out bytes.Buffer
	r := &report{out: &out}
	require.NoError(t, run(t.Context(), args, r), "%s", &out)
	return r, out.String()
}

// Nodes that leak with every entity they start, for real.
func TestLeaksOfNodesAreFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestLeaksShowInTheSeries judges series")
	_, out := inShort(t, loadCheck, "-for", "20s", "-leaks", "goroutines, heap")
	require.Contains(t, out, "BROKEN processes that end with more goroutines")
	require.Contains(t, out, "BROKEN processes that end with more heap")
	require.Contains(t, out, "ok     processes that end with more open files")
}

func TestBadFlagsOfLoad(t *testing.T) {
	for _, args := range [][]string{{"-for", "9s"}, {"-rate", "99"}, {"-rate", "20001"}, {"-for", "10h"}} {
		require.ErrorContains(t, loadCheck(t.Context(), args, &report{out: &bytes.Buffer{}}), "-for must be at least 10s")
	}
}
