package singleton_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

var newest = membership.Prefer("version", membership.Newest)

// versioned makes a node that is a member with that version.
func (c *cluster) versioned(id, version string, opts ...membership.Option) (*node, *membership.Group) {
	c.t.Helper()
	n := c.node(id)
	g, err := membership.Join(c.t.Context(), n.keeper, "shop",
		append(opts, membership.WithLabels(map[string]string{"version": version}))...)
	require.NoError(c.t, err)
	c.leaves(g)
	return n, g
}

func (c *cluster) hosted() (nodes []string) {
	for _, l := range c.log.snapshot() {
		nodes = append(nodes, l.node)
	}
	return nodes
}

// In a rollout a singleton moves once: to the first node of the new version, and by a hand-over.
func TestASingletonMovesOnceInARollout(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		var old []*singleton.Manager
		var groups []*membership.Group
		for _, id := range []string{"a", "b", "c"} {
			n, g := c.versioned(id, "1.9")
			old, groups = append(old, n.run("x", singleton.WithPreference(g, newest))), append(groups, g)
			time.Sleep(time.Second)
		}
		until(t, time.Second, "hosts", active(old[0]))
		for i, id := range []string{"f", "e", "d"} {
			n, g := c.versioned(id, "1.10")
			m := n.run("x", singleton.WithPreference(g, newest))
			if i == 0 {
				until(t, 2*time.Second, "moves", active(m))
			}
			time.Sleep(30 * time.Second)
			require.NoError(t, old[i].Stop(t.Context()))
			require.NoError(t, groups[i].Leave(t.Context()))
			time.Sleep(30 * time.Second)
		}
		require.Equal(t, []string{"a", "f"}, c.hosted())
		c.log.check()
	})
}

// When the host has died the newest of the waiting nodes is first, and one that learns of the version
// of a node later moves then.
func TestTheNewestOfWaitingNodesIsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		host, g := c.versioned("host", "3")
		host.hosts("x", singleton.WithPreference(g, newest))
		for _, id := range []string{"o1", "o2", "o3"} {
			n, g := c.versioned(id, "1")
			n.run("x", singleton.WithPreference(g, newest))
		}
		n, g := c.versioned("second", "2")
		m := n.run("x", singleton.WithPreference(g, newest))
		time.Sleep(time.Second)
		host.crash()
		until(t, 2*ttl, "hosts", active(m))
		require.Equal(t, []string{"host", "second"}, c.hosted())

		late := c.node("late") // that hosts before it is a member
		later, err := membership.Join(t.Context(), late.keeper, "another", membership.WithLabels(map[string]string{"version": "4"}))
		require.NoError(t, err)
		c.leaves(later)
		ml := late.run("x", singleton.WithPreference(later, newest))
		time.Sleep(20 * time.Second)
		require.True(t, active(m)(), "nothing is known of late")
		joined, err := membership.Join(t.Context(), late.keeper, "shop", membership.WithLabels(map[string]string{"version": "4"}))
		require.NoError(t, err)
		c.leaves(joined)
		until(t, time.Second, "moves", active(ml))
	})
}

// A host that is no member for a moment stays the host.
func TestAHostThatLostItsMembershipStays(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		host, g := c.versioned("host", "1", membership.WithLeaseOptions(lease.WithTTL(time.Second)))
		m := host.hosts("x", singleton.WithPreference(g, newest))
		other, g2 := c.versioned("other", "1")
		other.run("x", singleton.WithPreference(g2, newest))
		time.Sleep(time.Second)
		lost := make(chan lease.Loss, 1)
		g.OnLost(func(l lease.Loss) { lost <- l })
		host.store.Partition()
		<-lost
		time.Sleep(time.Second)
		host.store.Heal()
		time.Sleep(time.Minute)
		require.True(t, active(m)())
		require.Equal(t, []string{"host"}, c.hosted())
		require.True(t, slices.ContainsFunc(g2.Members().Members, func(m membership.Member) bool { return m.ID == "host" }))
	})
}

// While nodes disagree about who is preferred, as when that is changed node by node, nothing moves.
func TestNodesThatPreferOthersDoNotFlap(t *testing.T) {
	for what, preferred := range map[string][2]singleton.Option{
		"each the other": {singleton.WithPreferred("b", "a"), singleton.WithPreferred("a", "b")},
		"each itself":    {singleton.WithPreferred("a", "b"), singleton.WithPreferred("b", "a")},
	} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			c.node("a").hosts("x", preferred[0])
			c.node("b").run("x", preferred[1])
			time.Sleep(2 * time.Minute)
			require.Equal(t, []string{"a"}, c.hosted())
		})
	}
}

func TestAPreferenceIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n, g := c.versioned("a", "1")
		for text, opts := range map[string][]singleton.Option{
			"WithPreference: invalid: nil":            {singleton.WithPreference(nil, newest)},
			"WithPreference":                          {singleton.WithPreference(new(membership.Group), newest)},
			"preferences: invalid: 0, must be 1 to 8": {singleton.WithPreference(g)},
			`order "best"`:                            {singleton.WithPreference(g, membership.Prefer("x", "best"))},
			"only one of them can decide":             {singleton.WithPreference(g, newest), singleton.WithPreferred("a")},
		} {
			_, err := singleton.Start(n.system, n.keeper, "x", n.worker(), opts...)
			require.ErrorIs(t, err, lease.ErrInvalid, text)
			require.ErrorContains(t, err, text)
		}
	})
}
