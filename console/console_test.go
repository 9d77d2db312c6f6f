package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/store"
)

type nothing struct{}

func (nothing) Receive(actor.Context) {}

func props() *actor.Props { return actor.PropsFromProducer(func() actor.Actor { return nothing{} }) }

func start(t *testing.T, s store.Store, id string) *node.Node {
	t.Helper()
	n, err := node.Start(t.Context(), node.Config{ID: id, Store: s, Group: "shop", Listen: "127.0.0.1:0", Plaintext: true, Logger: zap.NewNop(),
		Lease: lease.Config{TTL: time.Second}, Console: &console.Config{}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	return n
}

func TestSnapshotOfTwoNodes(t *testing.T) {
	s := memory.New()
	a, b := start(t, s, "a"), start(t, s, "b")
	for _, n := range []*node.Node{a, b} {
		_, err := n.Singleton("cron", props())
		require.NoError(t, err)
		_, err = n.Sharded("account", props())
		require.NoError(t, err)
	}
	k, err := lease.NewKeeper(s, lease.Config{ID: "viewer"})
	require.NoError(t, err)
	defer k.Close(t.Context())
	time.Sleep(3 * time.Second)
	c, err := console.New(b.Keeper(), b.System(), console.Config{})
	require.NoError(t, err)
	defer c.Close()
	snap, err := c.Snapshot(t.Context(), time.Time{})
	require.NoError(t, err)
	body, _ := json.MarshalIndent(snap, "", " ")
	require.NoError(t, os.WriteFile("/tmp/snap.json", body, 0o600))
	fmt.Println(len(body))
}
