package singleton_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// Two nodes, here in one process, start the same scheduler. The one that holds
// the lease runs it; when that node leaves, the other takes over.
func Example() {
	store := memory.New()  // what the nodes have in common
	var ledger lease.Fence // where jobs write: refuses a scheduler that was replaced

	join := func(node string) (run func(job string), leave func()) {
		scheduler := actor.PropsFromFunc(func(c actor.Context) {
			if job, ok := c.Message().(string); ok {
				held, _ := singleton.Of(c) // the ownership this actor works under
				err := ledger.Do(held.Token(), func() error { return nil /* write */ })
				c.Respond(fmt.Sprintf("node %s ran %s, error: %v", node, job, err))
			}
		})
		keeper, err := lease.NewKeeper(store, lease.Config{ID: node})
		if err != nil {
			log.Fatal(err)
		}
		system := actor.NewActorSystem()
		m, err := singleton.Start(system, keeper, "scheduler", scheduler)
		if err != nil {
			log.Fatal(err)
		}
		return func(job string) {
				fmt.Println(system.Root.RequestFuture(m.PID(), job, 5*time.Second).Result())
			}, func() { // the scheduler stops, then the lease is released
				fmt.Println("node", node, "left:", m.Stop(context.Background()), keeper.Close(context.Background()))
			}
	}

	runOnA, leaveA := join("a")
	runOnA("backup")
	runOnB, leaveB := join("b")
	leaveA()
	runOnB("report")
	leaveB()
	// Output:
	// node a ran backup, error: <nil> <nil>
	// node a left: <nil> <nil>
	// node b ran report, error: <nil> <nil>
	// node b left: <nil> <nil>
}
