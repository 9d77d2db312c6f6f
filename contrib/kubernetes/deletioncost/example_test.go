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
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// held is what a node would have to hand over: a singleton counts as much as a hundred entities.
func held(singletons []*singleton.Manager, types []*sharding.Region) int {
	cost := 0
	for _, m := range singletons {
		if m.Status().Token != 0 { // hosted here
			cost += 100
		}
	}
	for _, r := range types {
		cost += r.Info().Entities
	}
	return cost
}

func keepCost(ctx context.Context, clientset kubernetes.Interface, singletons []*singleton.Manager, types []*sharding.Region) error {
	pods := clientset.CoreV1().Pods(os.Getenv("POD_NAMESPACE"))
	return deletioncost.Run(ctx, pods, os.Getenv("POD_NAME"), func() int { return held(singletons, types) })
}

// What a node's parts hold counts. Without nodes, keeper.Info().Held counts leases.
func ExampleRun() {
	var singletons []*singleton.Manager // from Node.Singleton
	var types []*sharding.Region        // from Node.Sharded
	config, err := rest.InClusterConfig()
	if err != nil {
		panic(err)
	}
	go keepCost(context.Background(), kubernetes.NewForConfigOrDie(config), singletons, types)
}

func TestWhatANodeHolds(t *testing.T) {
	n, err := node.Start(t.Context(), node.Config{ID: "a", Store: memory.New(), Logger: zap.NewNop()})
	require.NoError(t, err)
	m, err := n.Singleton("s", actor.PropsFromFunc(func(actor.Context) {}))
	require.NoError(t, err)
	parts := []*singleton.Manager{m}
	for held(parts, nil) == 0 {
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, 100, held(parts, nil))
	require.NoError(t, n.Stop(t.Context()))
}
