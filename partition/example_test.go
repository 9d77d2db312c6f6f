package partition_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/partition"
)

// consume reads one partition until ctx is done; what it writes bears the token.
func consume(ctx context.Context, number int, token lease.Token) error {
	<-ctx.Done()
	return nil
}

func Example() {
	ctx := context.Background()
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "node-1"}) // on every node, with one store
	check(err)
	defer keeper.Close(ctx)
	group, err := membership.Join(ctx, keeper, "shop")
	check(err)
	defer group.Leave(ctx)

	orders, err := partition.Start(ctx, group, partition.Config{
		Name: "orders", Count: 16,
		Own: func(ctx context.Context, o partition.Owned) error {
			return consume(ctx, o.Number, o.Token())
		},
	})
	check(err)
	check(orders.Wait(ctx))
	fmt.Println(len(orders.Owned()), "of 16")
	check(orders.Stop(ctx)) // hands over to the other nodes
	// Output: 16 of 16
}

func ExampleDaemons() {
	ctx := context.Background()
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "node-1"})
	check(err)
	defer keeper.Close(ctx)
	group, err := membership.Join(ctx, keeper, "shop")
	check(err)
	defer group.Leave(ctx)

	importers, err := partition.Daemons(ctx, group, "importer", 4, func(ctx context.Context, i int) error {
		<-ctx.Done() // imports
		return nil
	})
	check(err)
	check(importers.Wait(ctx))
	fmt.Println(importers.Owned())
	check(importers.Stop(ctx))
	// Output: [0 1 2 3]
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
