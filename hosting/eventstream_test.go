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

// Each change of a source is published once, and followed as it was published.
func TestLeadersOnTheEventStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		defer system.Shutdown()
		self := lease.Owner{ID: "a", Incarnation: "1", Address: "host:1"}
		var published, followed []membership.LeaderChanged
		system.EventStream.Subscribe(func(e any) {
			if c, ok := e.(membership.LeaderChanged); ok {
				published = append(published, c)
			}
		})
		source := hosting.FromEventStream(system)
		require.Same(t, source, hosting.FromEventStream(system))
		stop := source.Follow(func(c membership.LeaderChanged) { followed = append(followed, c) })
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
		require.Equal(t, published, followed)

		// What a program publishes by itself: again, and by an address alone.
		followed = nil
		here := lease.Owner{ID: "a", Address: system.Address()}
		for _, e := range []any{
			membership.LeaderChanged{Group: "g", Leader: here, Skipped: 3}, membership.LeaderChanged{Group: "g", Leader: here, IsSelf: true},
			&membership.LeaderChanged{}, "something else",
			membership.LeaderChanged{Group: "g", Leader: lease.Owner{ID: "a", Incarnation: "before", Address: system.Address()}},
		} {
			system.EventStream.Publish(e)
			synctest.Wait()
		}
		require.Equal(t, []membership.LeaderChanged{
			{Group: "g", Leader: here, IsSelf: true},
			{Group: "g", Leader: lease.Owner{ID: "a", Incarnation: "before", Address: system.Address()}, Previous: here},
		}, followed)
		stop()
		system.EventStream.Publish(membership.LeaderChanged{})
		synctest.Wait()
		require.Len(t, followed, 2)
		require.Nil(t, hosting.FromEventStream(nil))
		require.Nil(t, hosting.ToEventStream(nil))
	})
}

// The same leader published again is no change, for a slow follower either.
func TestALeaderThatIsPublishedAgainIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		defer system.Shutdown()
		var followed []membership.LeaderChanged
		hosting.FromEventStream(system).Follow(func(c membership.LeaderChanged) { followed = append(followed, c); time.Sleep(time.Second) })
		for range 3 {
			system.EventStream.Publish(membership.LeaderChanged{Leader: lease.Owner{ID: "b", Incarnation: "2"}})
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, followed, 1)
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
