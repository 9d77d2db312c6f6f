package singleton_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// The singleton follows the leader that the group's lease elects: it is handed
// over when the leader leaves, and comes up again at the next leader when the
// leader dies; one host all the while, and nothing lost by the hand-over.
func TestASingletonFollowsTheLeaderOfItsGroup(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		var ns []*node
		var groups []*membership.Group
		var elections []*membership.Election
		var ms []*singleton.Manager
		for i := range 3 {
			n := c.node(fmt.Sprint("n", i))
			g, err := membership.Join(t.Context(), n.keeper, "shop", membership.WithEvents(hosting.ToEventStream(n.system)))
			require.NoError(t, err)
			c.leaves(g)
			e, err := g.Leadership()
			require.NoError(t, err)
			ns, groups, elections = append(ns, n), append(groups, g), append(elections, e)
			ms = append(ms, n.run("x", singleton.WithLeadership(e)))
			time.Sleep(time.Second)
		}
		leader := func() (found int) {
			found = -1
			for i, e := range elections {
				if _, self := e.Leader(); self && !ns[i].dead {
					found = i
				}
			}
			return found
		}
		x := &team{cluster: c, ns: ns, ms: ms, sent: map[string]int{}}
		until(t, 5*time.Second, "the leader hosts", func() bool { i := leader(); return i >= 0 && active(ms[i])() })

		// The leader leaves the group, and so hands over.
		first := leader()
		left := make(chan error, 1)
		go func() { left <- groups[first].Leave(t.Context()) }()
		for range 3000 {
			x.send()
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, <-left)
		until(t, 5*time.Second, "the next leader hosts", func() bool { i := leader(); return i >= 0 && i != first && active(ms[i])() })
		time.Sleep(time.Second)
		x.all()

		// The leader dies.
		second := leader()
		ns[second].crash()
		until(t, ttl+5*time.Second, "the last leads and hosts", func() bool {
			i := leader()
			return i >= 0 && i != first && i != second && active(ms[i])()
		})
		c.log.check()
	})
}
