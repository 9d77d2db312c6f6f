package lease_test

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// A master lease with sub-leases: the master works on parts, and none of them is
// worked on under a master that is none any more.
func ExampleWithParent() {
	ctx := context.Background()
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "node-1", Logger: zap.NewNop()})
	if err != nil {
		panic(err)
	}
	defer keeper.Close(ctx)
	master, err := keeper.Lease("master")
	if err != nil {
		panic(err)
	}
	part, err := keeper.Lease("part/1", lease.WithParent(master))
	if err != nil {
		panic(err)
	}

	working, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		err := lease.Run(ctx, part, func(ctx context.Context, _ lease.Term) error { // waits for the master's term
			close(working)
			<-ctx.Done() // the master is about to end
			fmt.Println("the part's work stops")
			return nil
		})
		fmt.Println("part:", err)
	}()
	err = lease.Run(ctx, master, func(context.Context, lease.Term) error {
		<-working
		fmt.Println("the master's work is done")
		return nil
	})
	<-done
	fmt.Println("master:", err)
	// Output:
	// the master's work is done
	// the part's work stops
	// part: lease parent lost
	// master: <nil>
}
