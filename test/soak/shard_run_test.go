//go:build linux && !race

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The short forms of what runs shards, with processes and etcd: one after the other,
// as the nodes of each inherit from this process how many shards there are.
func TestShortFormsOfShards(t *testing.T) {
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
		{"rolling", rolling, []string{"-nodes", "2", "-shards", "32", "-rate", "400"}, 9},
		{"shardkills", shardKills, []string{"-n", "1", "-nodes", "3", "-shards", "32", "-rate", "300"}, 4},
		{"shards", shardsCheck, []string{"-n", "200", "-nodes", "3", "-ttl", "2s"}, 12},
		{"reshard", reshard, []string{"-entities", "120", "-nodes", "2", "-changes", "8,32,2"}, 6},
		{"load", loadCheck, []string{"-for", "20s", "-rate", "400"}, 14},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(shardEnv, "") // it is as it was in the end
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
