package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// This file has the recipe of a singleton that follows the sun.

// followTheSun has leader say, until ctx ends, that the first living one of the preferred nodes
// at the time leads; another if none of them lives.
func followTheSun(ctx context.Context, group *membership.Group, leader *membership.Static, preferred func(time.Time) []string) {
	changed := make(chan struct{}, 1)
	defer group.Follow(func(membership.MembersChanged) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	look := time.NewTicker(time.Minute)
	defer look.Stop()
	for {
		if best, ok := first(group.Members().Members, preferred(time.Now().UTC())); ok {
			leader.Set(best.Owner())
		}
		select {
		case <-changed:
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// first is the member that is preferred to all others: by ids, then by its name.
func first(members []membership.Member, ids []string) (best membership.Member, ok bool) {
	for _, id := range ids {
		for _, m := range members {
			if m.ID == id && !m.Leaving {
				return m, true
			}
		}
	}
	for _, m := range members { // in the order of their IDs
		if !m.Leaving {
			return m, true
		}
	}
	return best, false
}

// byHour says which node is awake, or wakes next.
func byHour(now time.Time) []string {
	switch h := now.Hour(); {
	case h < 8:
		return []string{"tokyo", "berlin"}
	case h < 16:
		return []string{"berlin", "denver"}
	default:
		return []string{"denver", "tokyo"}
	}
}

func TestRecipeFollowTheSun(t *testing.T) {
	require.Equal(t, []string{"berlin", "denver"}, byHour(time.Date(2026, 1, 1, 8, 0, 0, 0, time.UTC)))
	require.Equal(t, []string{"denver", "tokyo"}, byHour(time.Date(2026, 1, 1, 23, 59, 0, 0, time.UTC)))
	require.Equal(t, []string{"tokyo", "berlin"}, byHour(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)))

	bubble(t, func(t *testing.T, c *cluster) {
		// Days of an hour, so that the test need not play the renewals of a whole one.
		short := func(now time.Time) []string {
			return byHour(time.Date(2026, 1, 1, now.Minute()*24/60, 0, 0, 0, time.UTC))
		}
		managers, nodes := map[string]*singleton.Manager{}, map[string]*node{}
		join := func(id string) {
			n := c.node(id)
			g, err := membership.Join(t.Context(), n.keeper, "office", membership.WithEvents(hosting.ToEventStream(n.system)))
			require.NoError(t, err)
			leader := membership.NewStatic(n.keeper.Owner())
			ctx, cancel := context.WithCancel(t.Context())
			go followTheSun(ctx, g, leader, short)
			c.leaves(g)
			c.atEnd(cancel)
			nodes[id], managers[id] = n, n.run("desk", singleton.WithLeadership(leader))
		}
		for _, id := range []string{"berlin", "denver", "tokyo"} {
			join(id)
		}
		hosts := func(id string) {
			t.Helper()
			until(t, 21*time.Minute+ttl, id+" hosts", active(managers[id]))
		}
		for _, id := range []string{"tokyo", "berlin", "denver", "tokyo"} {
			hosts(id)
		}
		nodes["berlin"].crash()
		hosts("denver") // in its place, and at its own time
		time.Sleep(30 * time.Minute)
		require.True(t, active(managers["denver"])())
		hosts("tokyo")
		c.log.check()
	})
}
