//go:build linux && !race

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// The short forms, with processes and etcd. Each node is a process of this test
// binary; protoactor's remote sets gRPC's logger when it starts, while clients
// read it: hence the build constraint.
func TestShortForms(t *testing.T) {
	if os.Getenv("HOLDFAST_SKIP_ETCD") == "1" {
		fmt.Fprintf(os.Stderr, "etcd skipped (HOLDFAST_SKIP_ETCD is set): %s\n", t.Name())
		t.Skip("etcd skipped (HOLDFAST_SKIP_ETCD is set)")
	}
	for _, c := range []struct {
		name   string
		run    check
		args   []string
		judged int
	}{
		{"handovers", handovers, []string{"-n", "4", "-rate", "600"}, 10},
		{"kills", kills, []string{"-n", "1"}, 5},
		{"many", many, []string{"-n", "60", "-ttl", "2s"}, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			var out bytes.Buffer
			r := &report{out: &out}
			require.NoError(t, c.run(t.Context(), c.args, r), "%s", &out)
			require.Equal(t, c.judged, r.kept+r.broken, "%s", &out)
			var broken []string
			for line := range strings.Lines(out.String()) {
				// What takes how long is not for a machine that does other things, too.
				slow := strings.HasSuffix(line, " s\n") || strings.Contains(line, "share of the load")
				if strings.HasPrefix(line, "BROKEN") && !slow {
					broken = append(broken, line)
				}
			}
			require.Empty(t, broken, "%s", &out)
		})
	}
}

func TestANodeThatDiesIsNoticed(t *testing.T) {
	j, err := newJournal(t.TempDir()+"/journal", 1)
	require.NoError(t, err)
	defer j.close()
	at, err := lab.NewPlace(false)
	require.NoError(t, err)
	defer at.End()
	p, err := startProcess(at, settings{Endpoint: "127.0.0.1:1", Journal: "/nowhere"})
	require.NoError(t, err)
	_, err = p.await(context.Background(), 0, patience, "up", func(r said) bool { return r.What == isUp })
	require.ErrorContains(t, err, "node-0 ended by itself: exit status 2")
	require.NoError(t, p.kill())
}

func TestBadFlagsOfTheClusters(t *testing.T) {
	for _, c := range []struct {
		run  check
		args []string
		want string
	}{
		{handovers, []string{"-n", "0"}, "-n must be at least 1"},
		{handovers, []string{"-nodes", "1"}, "-nodes 2 to 100"},
		{handovers, []string{"-rate", "1e9"}, "-rate 100 to 100000"},
		{kills, []string{"-ttl", "1s"}, "-ttl at least 2s"},
		{many, []string{"-n", "0"}, "-n must be 1 to 50000"},
	} {
		err := c.run(t.Context(), c.args, &report{out: &bytes.Buffer{}})
		require.ErrorContains(t, err, c.want)
	}
}
