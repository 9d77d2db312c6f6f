package deletioncost_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/deletioncost"
	"github.com/holdfast-go/holdfast/node"
)

// held is what a node would have to hand over: a singleton counts as much as a hundred entities.
func held(n *node.Node) int {
	cost, info := 0, n.Info()
	for _, s := range info.Singletons {
		if s.Token != 0 { // hosted here
			cost += 100
		}
	}
	for _, s := range info.Shards {
		cost += s.Entities
	}
	return cost
}

func keepCost(ctx context.Context, n *node.Node, clientset kubernetes.Interface) error {
	pods := clientset.CoreV1().Pods(os.Getenv("POD_NAMESPACE"))
	return deletioncost.Run(ctx, pods, os.Getenv("POD_NAME"), func() int { return held(n) })
}

// A node says what it holds. Without nodes, keeper.Info().Held counts leases.
func ExampleRun() {
	var n *node.Node // from node.Start
	config, err := rest.InClusterConfig()
	if err != nil {
		panic(err)
	}
	go keepCost(context.Background(), n, kubernetes.NewForConfigOrDie(config))
}

func TestWhatANodeHolds(t *testing.T) {
	n, err := node.Start(t.Context(), node.Config{ID: "a", Store: memory.New(), Logger: zap.NewNop()})
	require.NoError(t, err)
	require.Zero(t, held(n))
	m, err := n.Singleton("s", actor.PropsFromFunc(func(actor.Context) {}))
	require.NoError(t, err)
	for m.Status().Token == 0 {
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, 100, held(n))
	require.NoError(t, n.Stop(t.Context()))
}
