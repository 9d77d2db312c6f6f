package topology_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/membership/topology"
	"github.com/holdfast-go/holdfast/remoting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bubble(t *testing.T, f func(t *testing.T, system *actor.ActorSystem, s *topology.Source)) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		system.ID = "m"
		s, err := topology.New(system)
		require.NoError(t, err)
		defer s.Close()
		f(t, system, s)
	})
}

func member(id string) *cluster.Member { return &cluster.Member{Id: id, Host: "host-" + id, Port: 80} }

func members(ids ...string) *cluster.ClusterTopology {
	t := &cluster.ClusterTopology{}
	for _, id := range ids {
		t.Members = append(t.Members, member(id))
	}
	return t
}

func owner(id string) lease.Owner {
	if id == "" {
		return lease.Owner{}
	}
	return lease.Owner{ID: id, Incarnation: id, Address: "host-" + id + ":80"}
}

// The lowest ID that is not blocked leads, in whatever order members come; each
// change is told once.
func TestLeader(t *testing.T) {
	bubble(t, func(t *testing.T, system *actor.ActorSystem, s *topology.Source) {
		var told, published []membership.LeaderChanged
		s.Follow(func(c membership.LeaderChanged) { told = append(told, c) })
		system.EventStream.Subscribe(func(ev any) {
			if c, ok := ev.(membership.LeaderChanged); ok {
				published = append(published, c)
			}
		})
		synctest.Wait()
		blocked := members("k", "m", "z")
		blocked.Blocked = []string{"k"}
		odd := members("z", "m")
		odd.Members = append(odd.Members, nil, &cluster.Member{})
		for _, topo := range []*cluster.ClusterTopology{
			members("z", "m"), members("m", "z"), odd, members("z", "k", "m"), blocked, members("z"), members(),
		} {
			before := fmt.Sprint(topo.Members)
			system.EventStream.Publish(topo)
			synctest.Wait()
			require.Equal(t, before, fmt.Sprint(topo.Members), "the event is the cluster's and stays as it is")
		}
		system.EventStream.Publish("something else")
		system.EventStream.Publish((*membership.LeaderChanged)(nil))
		synctest.Wait()
		var story []string
		last := lease.Owner{}
		for _, c := range told {
			require.Equal(t, last, c.Previous)
			require.Equal(t, c.Leader.ID == "m", c.IsSelf)
			require.Equal(t, owner(c.Leader.ID), c.Leader)
			last = c.Leader
			story = append(story, c.Leader.ID)
		}
		require.Equal(t, ",m,k,m,z,", strings.Join(story, ","))
		require.Equal(t, told[1:], published)
	})
}

// The event is published under the cluster's lock: the handler must return though
// a follower blocks, or waits for that lock.
func TestHandlerOnlyPosts(t *testing.T) {
	bubble(t, func(t *testing.T, system *actor.ActorSystem, s *topology.Source) {
		var memberList sync.Mutex
		var told []string
		s.Follow(func(c membership.LeaderChanged) {
			memberList.Lock()
			defer memberList.Unlock()
			told = append(told, c.Leader.ID)
		})
		system.EventStream.Subscribe(func(ev any) {
			if _, ok := ev.(membership.LeaderChanged); ok {
				memberList.Lock()
				defer memberList.Unlock()
			}
		})
		memberList.Lock()
		for _, id := range []string{"a", "b", "c"} {
			system.EventStream.Publish(members(id))
		}
		memberList.Unlock()
		synctest.Wait()
		require.Equal(t, "c", slices.Compact(told)[len(told)-1])
	})
}

func TestZeroValuesDoNotPanic(t *testing.T) { inputtest.Zeros(t, nil, new(topology.Source)) }

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		own := system.EventStream.Length()
		s, err := topology.New(system)
		require.NoError(t, err)
		told := 0
		stop := s.Follow(func(membership.LeaderChanged) { told++ })
		synctest.Wait()
		s.Close()
		s.Close()
		system.EventStream.Publish(members("a"))
		synctest.Wait()
		require.Equal(t, 1, told)
		require.Equal(t, own, system.EventStream.Length(), "only protoactor's own subscriptions stay")
		stop()
	})
	_, err := topology.New(nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "system")
}
