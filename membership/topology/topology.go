// Package topology makes a source of leadership of protoactor-go's cluster
// membership. It is a hint and no more: nodes learn of each other at different
// times, a partition has a leader on each side, and nothing here has a lease, so
// no single activation follows from it. A singleton that follows it is still
// guarded by its own lease, and only placed by the hint.
//
//	source, err := topology.New(system) // before the cluster starts
//	m, err := singleton.Start(system, keeper, "scheduler", props, singleton.WithLeadership(source))
//
// The leader is the member with the lowest ID that is not blocked. Protoactor's
// members carry no time of joining, so "the oldest" can't be told; a member that
// joins with a lower ID takes leadership over. IDs are drawn at random by each
// actor system: that of a leader's Owner, its ID and its Incarnation, is
// ActorSystem.ID, and not a Keeper's.
package topology

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// Source is a membership.Leadership that follows cluster.ClusterTopology events of
// one actor system. There is no leader before the first of them. Safe for concurrent
// use.
type Source struct {
	leaders *membership.Static
	stop    func()
}

var _ membership.Leadership = (*Source)(nil)

// New makes a source for the node of system: its ID, ActorSystem.ID, is what
// cluster providers call the member. Make it before the cluster starts, as an
// event that was published earlier is not told again. Changes are published on the
// EventStream too, as membership.LeaderChanged without a Group. An error is
// lease.ErrInvalid: system is nil. Close it.
func New(system *actor.ActorSystem) (*Source, error) {
	if system == nil {
		return nil, fmt.Errorf("topology.New: system: %w: nil", lease.ErrInvalid)
	}
	s := &Source{leaders: membership.NewStatic(lease.Owner{ID: system.ID, Incarnation: system.ID})}
	// The event is published under the lock of the cluster's member list: nothing
	// may be called back from here, and Set makes no calls.
	sub := system.EventStream.Subscribe(func(ev any) {
		if t, ok := ev.(*cluster.ClusterTopology); ok {
			s.leaders.Set(leader(t))
		}
	})
	publish := hosting.ToEventStream(system)
	unfollow := s.leaders.Follow(func(c membership.LeaderChanged) { publish(c) })
	s.stop = sync.OnceFunc(func() { system.EventStream.Unsubscribe(sub); unfollow() })
	return s, nil
}

// Follow implements membership.Leadership.
func (s *Source) Follow(f func(membership.LeaderChanged)) (stop func()) {
	if s.leaders == nil { // New did not make it: it never has a leader
		return func() {}
	}
	return s.leaders.Follow(f)
}

// Close ends the source; followers are not called any more.
func (s *Source) Close() {
	if s.stop != nil {
		s.stop()
	}
}

// leader picks the same member on every node that sees the same topology; zero if
// it has none.
func leader(t *cluster.ClusterTopology) lease.Owner {
	alive := slices.DeleteFunc(slices.Clone(t.Members), func(m *cluster.Member) bool {
		return m == nil || m.Id == "" || slices.Contains(t.Blocked, m.Id)
	})
	if len(alive) == 0 {
		return lease.Owner{}
	}
	m := slices.MinFunc(alive, func(a, b *cluster.Member) int { return cmp.Compare(a.Id, b.Id) })
	return lease.Owner{ID: m.Id, Incarnation: m.Id, Address: net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port)))}
}
