package hosting_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
)

// Each change of a source is published once.
func TestLeadersOnTheEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		defer system.Shutdown()
		self := lease.Owner{ID: "a", Incarnation: "1", Address: "host:1"}
		var published []membership.LeaderChanged
		system.EventStream.Subscribe(func(e any) {
			if c, ok := e.(membership.LeaderChanged); ok {
				published = append(published, c)
			}
		})
		leaders, publish := membership.NewStatic(self), hosting.ToEventStream(system)
		leaders.Follow(func(c membership.LeaderChanged) { publish(c) })
		synctest.Wait()
		require.Empty(t, published, "there is no leader yet")
		for _, leader := range []lease.Owner{self, {ID: "b", Incarnation: "2"}, {}} {
			leaders.Set(leader)
			synctest.Wait()
		}
		require.Equal(t, []membership.LeaderChanged{
			{Leader: self, IsSelf: true},
			{Leader: lease.Owner{ID: "b", Incarnation: "2"}, Previous: self},
			{Previous: lease.Owner{ID: "b", Incarnation: "2"}},
		}, published)
		require.Nil(t, hosting.ToEventStream(nil))
	})
}

// The last leader of each group arrives, though the subscribers are too slow for the rest.
func TestTheLastLeaderOfEachGroupArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		defer system.Shutdown()
		last, n := map[string]string{}, 0
		system.EventStream.Subscribe(func(e any) {
			if n++; n == 1 {
				time.Sleep(time.Second)
			}
			if c, ok := e.(membership.LeaderChanged); ok {
				last[c.Group] = c.Leader.ID
			}
		})
		publish := hosting.ToEventStream(system)
		for range outlet.Limit + 2 {
			publish("noise")
		}
		publish(membership.LeaderChanged{Group: "g1", Leader: lease.Owner{ID: "a"}})
		publish(membership.LeaderChanged{Group: "g2", Leader: lease.Owner{ID: "b"}})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]string{"g1": "a", "g2": "b"}, last)
	})
}
