package sharding_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// Deposit is a message for an account.
type Deposit struct{ Amount int }

// One node, and an account on it. More nodes do the same, with remoting and a store
// that they share.
func Example() {
	var ledger lease.Fence // where the account of alice writes: refuses one that was replaced

	// An account runs on one of the nodes, wherever its shard is.
	account := actor.PropsFromProducer(func() actor.Actor {
		balance := 0
		return actor.ReceiveFunc(func(c actor.Context) {
			switch m := c.Message().(type) {
			case Deposit:
				self, _ := sharding.Of(c) // which account this is, and its fencing token
				if err := ledger.Do(self.Token(), func() error { return nil /* write */ }); err == nil {
					balance += m.Amount
				}
				c.Respond(balance)
			}
		})
	})

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	system := actor.NewActorSystem(remoting.LogTo(nil))
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "node-1"})
	if err != nil {
		log.Fatal(err)
	}
	group, err := membership.Join(ctx, keeper, "bank")
	if err != nil {
		log.Fatal(err)
	}
	region, err := sharding.Start(system, group, sharding.Type{Name: "account", Props: account, Shards: 64})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(sharding.Ask[int](ctx, region, "alice", Deposit{100}))
	fmt.Println(sharding.Ask[int](ctx, region, "alice", Deposit{20}))

	// The shards move to other nodes, if there are any; then the node leaves.
	fmt.Println(region.Stop(ctx), group.Leave(ctx), keeper.Close(ctx))
	// Output:
	// 100 <nil>
	// 120 <nil>
	// <nil> <nil> <nil>
}
