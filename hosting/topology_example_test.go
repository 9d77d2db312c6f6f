package hosting_test

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// followTopology makes a source of leadership of a protoactor cluster: the member with the lowest ID
// that is not blocked leads. Call it before the cluster starts. The cluster publishes under a lock of
// its own: the handler sets the leader, and calls nothing else.
func followTopology(system *actor.ActorSystem) membership.Leadership {
	leaders := membership.NewStatic(lease.Owner{ID: system.ID, Incarnation: system.ID})
	system.EventStream.Subscribe(func(event any) {
		t, ok := event.(*cluster.ClusterTopology)
		if !ok {
			return
		}
		alive := slices.DeleteFunc(slices.Clone(t.Members), func(m *cluster.Member) bool { return slices.Contains(t.Blocked, m.Id) })
		if len(alive) == 0 {
			leaders.Set(lease.Owner{})
			return
		}
		m := slices.MinFunc(alive, func(a, b *cluster.Member) int { return cmp.Compare(a.Id, b.Id) })
		leaders.Set(lease.Owner{ID: m.Id, Incarnation: m.Id, Address: net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port)))})
	})
	return leaders
}

// A singleton is placed where a protoactor cluster says; its lease decides who hosts.
func Example_clusterTopology() {
	system := actor.NewActorSystem()
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	if err != nil {
		log.Fatal(err)
	}
	scheduler := actor.PropsFromFunc(func(c actor.Context) {
		if job, ok := c.Message().(string); ok {
			c.Respond("ran " + job)
		}
	})
	m, err := singleton.Start(system, keeper, "scheduler", scheduler, singleton.WithLeadership(followTopology(system)))
	if err != nil {
		log.Fatal(err)
	}
	self := &cluster.Member{Id: system.ID, Host: "a.example", Port: 80}
	other := &cluster.Member{Id: "", Host: "b.example", Port: 80} // lower, and blocked
	system.EventStream.Publish(&cluster.ClusterTopology{Members: []*cluster.Member{other, self}, Blocked: []string{other.Id}})

	fmt.Println(system.Root.RequestFuture(m.PID(), "backup", 5*time.Second).Result())
	fmt.Println(m.Stop(context.Background()), keeper.Close(context.Background()))
	// Output:
	// ran backup <nil>
	// <nil> <nil>
}
