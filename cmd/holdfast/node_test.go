//go:build !race

// Two nodes in one process: see remoting.Start.

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
	holdfastnode "github.com/holdfast-go/holdfast/node"
)

// TestNodes: two nodes, found out about and steered through the page of one.
func TestNodes(t *testing.T) {
	noLeaks(t)
	s := memory.New()
	props := actor.PropsFromFunc(func(actor.Context) {})
	var at string
	for _, id := range []string{"a", "b"} {
		n, err := holdfastnode.Start(t.Context(), holdfastnode.Config{ID: id, Store: s, Group: "shop", Listen: "127.0.0.1:0",
			Plaintext: true, Logger: zap.NewNop(), Lease: lease.Config{TTL: 2 * time.Second}, Console: &console.Config{
				Actions: true, Authorize: func(*http.Request, console.Access) (string, error) { return "ada", nil },
			}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = n.Stop(context.Background()) })
		_, err = n.Singleton("cron", props)
		require.NoError(t, err)
		_, err = n.Sharded("account", props)
		require.NoError(t, err)
		h := httptest.NewServer(n.Handler())
		t.Cleanup(h.Close)
		at = h.URL + "/holdfast/"
	}
	does := func(line string, code int, out string) (got said) {
		t.Helper()
		require.Eventually(t, func() bool {
			got = holdfast(t, map[string]string{"HOLDFAST_NODE": at}, strings.Fields(line)...)
			return got.code == code && strings.Contains(got.out, out)
		}, 20*time.Second, 100*time.Millisecond, "%s: %v", line, &got)
		return got
	}
	does("members -o name", 0, "a\nb\n")
	does("singletons cron -o json", 0, `"phase": "active"`)
	does("shards -o json", 0, `"unassigned": 0`)
	does("doctor cron", 0, "singleton/cron is held by ")
	from := strings.TrimSpace(does("ls singleton/ -o jsonl", 0, `"state":"held"`).out)
	to := map[bool]string{true: "b", false: "a"}[strings.Contains(from, `"id":"a"`)]
	does("transfer cron --to "+to+" --yes", 0, "")
	does("ls singleton/ --holder "+to, 0, "singleton/cron")
	does("describe cron", 0, "Hand-overs")
	does("events singleton/cron -o jsonl", 0, `"kind":"became host"`)
	does("drain "+to+" --yes", 0, "")
	does("members", 0, "draining")
	does("undrain "+to+" --yes", 0, "")
	does("drain nowhere --yes", 1, "")
	does("health --warn -o json", 0, `"items"`)
	does("get singleton/cron -o name", 0, "singleton/cron\n")
}
