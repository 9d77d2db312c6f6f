package etcd_test

import (
	"context"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
)

// Data that lies in the same etcd is fenced by the lease itself: a Txn of a
// holder that was succeeded is not applied, whatever that holder believes.
func ExampleStore_Guard() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := etcd.New(client)
	if err != nil {
		log.Fatal(err)
	}
	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close(ctx)
	job, err := keeper.Lease("job/ledger")
	if err != nil {
		log.Fatal(err)
	}
	err = lease.Run(ctx, job, func(ctx context.Context, t lease.Term) error {
		resp, err := client.Txn(ctx).
			If(store.Guard(t)).
			Then(clientv3.OpPut("ledger/balance", "17")).
			Commit()
		if err == nil && !resp.Succeeded {
			err = lease.ErrStale
		}
		return err
	})
	if err != nil {
		log.Print(err)
	}
}
