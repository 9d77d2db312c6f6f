package membership_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// Two nodes, here in one process, join a group. The first leads; when it leaves,
// the other does.
func Example() {
	ctx := context.Background()
	store := memory.New() // what the nodes have in common

	join := func(node string, roles ...string) (group *membership.Group, election *membership.Election, leave func()) {
		keeper, err := lease.NewKeeper(store, lease.Config{ID: node})
		if err != nil {
			log.Fatal(err)
		}
		group, err = membership.Join(ctx, keeper, "shop", membership.WithRoles(roles...), membership.WithCapacity(4))
		if err != nil {
			log.Fatal(err)
		}
		election, err = group.Leadership()
		if err != nil {
			log.Fatal(err)
		}
		return group, election, func() { fmt.Println("node", node, "left:", group.Leave(ctx), keeper.Close(ctx)) }
	}
	_, leadsA, leaveA := join("a", "worker")
	await(leadsA)
	b, leadsB, leaveB := join("b", "worker", "front")
	for _, m := range b.Members().Members {
		fmt.Println(m.ID, m.Roles, m.Capacity)
	}
	leaveA()
	await(leadsB)
	leader, self := leadsB.Leader()
	fmt.Println(leader.ID, "leads:", self)
	leaveB()
	// Output:
	// a [worker] 4
	// b [front worker] 4
	// node a left: <nil> <nil>
	// b leads: true
	// node b left: <nil> <nil>
}

// In a rollout the work moves once: from a node of the old version to the first node of the new version.
func ExampleGroup_RunForever() {
	ctx, cancel := context.WithCancel(context.Background())
	store, moved := memory.New(), make(chan string)

	run := func(node, version string) (stop func()) {
		keeper, err := lease.NewKeeper(store, lease.Config{ID: node})
		if err != nil {
			log.Fatal(err)
		}
		group, err := membership.Join(ctx, keeper, "shop", membership.WithLabels(map[string]string{"version": version}))
		if err != nil {
			log.Fatal(err)
		}
		l, err := keeper.Lease("invoices")
		if err != nil {
			log.Fatal(err)
		}
		newest := membership.Prefer("version", membership.Newest)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = group.RunForever(ctx, l, func(ctx context.Context, _ lease.Term) error {
				moved <- node
				<-ctx.Done()
				return ctx.Err()
			}, newest)
		}()
		return func() { <-done; _, _ = group.Leave(context.Background()), keeper.Close(context.Background()) }
	}
	stopA := run("a", "1.9")
	fmt.Println(<-moved)
	stopB := run("b", "1.10")
	fmt.Println(<-moved)
	cancel()
	stopA()
	stopB()
	// Output:
	// a
	// b
}

// await waits until the node leads.
func await(l membership.Leadership) {
	leads := make(chan struct{}, 1)
	stop := l.Follow(func(c membership.LeaderChanged) {
		if c.IsSelf {
			leads <- struct{}{}
		}
	})
	defer stop()
	select {
	case <-leads:
	case <-time.After(10 * time.Second):
		log.Fatal("does not lead")
	}
}
