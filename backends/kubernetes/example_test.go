package kubernetes_test

import (
	"context"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/lease"
)

func inCluster() (*lease.Keeper, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	store, err := kubernetes.New(config, "leases")
	if err != nil {
		return nil, err
	}
	return lease.NewKeeper(store, lease.Config{ID: os.Getenv("POD_NAME"), TTL: 15 * time.Second})
}

// A pod keeps its leases in the namespace "leases".
func Example() {
	keeper, err := inCluster()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	job, err := keeper.Lease("job")
	if err != nil {
		panic(err)
	}
	err = lease.Run(ctx, job, func(ctx context.Context, t lease.Term) error {
		return ctx.Err() // work under t.Token() until ctx is done
	})
	if err != nil {
		panic(err)
	}
}
