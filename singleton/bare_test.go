package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/barelease"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
)

// ownTeam is nodes whose singleton obeys a lease of the four methods, of a store of its own, and
// follows a leader.
type ownTeam struct {
	ns      []*node
	links   []*barelease.Node // to that store
	leases  []*barelease.Lease
	leaders []*membership.Static
	ms      []*singleton.Manager
}

func newOwnTeam(c *cluster, ids ...string) *ownTeam {
	c.t.Helper()
	x, book := &ownTeam{ns: c.nodes(ids...)}, barelease.NewBook()
	for _, n := range x.ns {
		link := barelease.NewNode(book, n.clock)
		l, err := link.Lease("x", ttl)
		require.NoError(c.t, err)
		c.atEnd(link.Heal)
		x.links, x.leases = append(x.links, link), append(x.leases, l)
		x.leaders = append(x.leaders, membership.NewStatic(n.keeper.Owner()))
	}
	x.lead(0)
	for i, n := range x.ns {
		x.ms = append(x.ms, n.run("x", singleton.WithLease(x.leases[i]), singleton.WithLeadership(x.leaders[i])))
	}
	return x
}

func (x *ownTeam) lead(i int) {
	for _, l := range x.leaders {
		l.Set(x.ns[i].keeper.Owner())
	}
}

// hosts waits until a node hosts, and asks it from every node.
func (x *ownTeam) hosts(t *testing.T, c *cluster, i int, number int) {
	t.Helper()
	until(t, 30*time.Second, "hosts", active(x.ms[i]))
	require.True(t, x.leases[i].CheckAlive())
	for j, n := range x.ns {
		d := n.mustAsk(x.ms[j].PID(), 10*number+j)
		require.Equal(t, x.ns[i].id, d.Node)
		require.Zero(t, d.Token, "the lease has none")
	}
	require.Equal(t, 1, c.log.running())
}

// The host follows the leader, though its lease can neither be transferred nor tell who holds
// it: it is released, and won by the leader.
func TestABareLeaseFollowsTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newOwnTeam(c, "a", "b")
		for round := range 6 {
			x.lead(round % 2)
			x.hosts(t, c, round%2, round)
			time.Sleep(2 * ttl) // it is renewed
			x.hosts(t, c, round%2, 10+round)
		}
		require.Equal(t, 1, c.log.most, "never two")
		require.Len(t, c.log.snapshot(), 6)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i, m := range x.ms {
			require.NoError(t, m.Stop(ctx))
			require.False(t, x.leases[i].CheckAlive())
		}
	})
}

// A leader that can't renew its bare lease is shut off by its deadline, whoever leads; the next
// leader hosts when the record has run out, and what the first has begun has ended before.
func TestABareLeaseIsLostInTime(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newOwnTeam(c, "a", "b")
		x.hosts(t, c, 0, 0)
		time.Sleep(2 * ttl)
		x.links[0].Cut()
		x.leaders[1].Set(x.ns[1].keeper.Owner()) // the first does not hear of it
		x.hosts(t, c, 1, 1)
		lives := c.log.snapshot()
		require.Len(t, lives, 2)
		require.False(t, lives[0].to.IsZero() || lives[0].to.After(lives[1].from), "the first has ended before")
		require.Error(t, causeOf(lives[0].ctx))
		x.links[0].Heal()
		time.Sleep(2 * ttl)
		require.Len(t, c.log.snapshot(), 2, "who was cut off does not come back beside the leader")
		x.lead(0)
		x.hosts(t, c, 0, 2)
		require.Equal(t, 1, c.log.most, "never two")
	})
}

// Without a leader's help: a crash of the host, and the other takes over after the TTL.
func TestABareLeaseIsTakenAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		book := barelease.NewBook()
		var links []*barelease.Node
		var ms []*singleton.Manager
		for _, n := range []*node{a, b} {
			link := barelease.NewNode(book, n.clock)
			l, err := link.Lease("x", ttl)
			require.NoError(t, err)
			c.atEnd(link.Heal)
			links = append(links, link)
			m := n.run("x", singleton.WithLease(lease.Lease(l)))
			ms = append(ms, m)
			time.Sleep(time.Second)
		}
		require.Equal(t, "a", b.mustAsk(ms[1].PID(), 1).Node)
		links[0].Cut()
		c.log.crashed(a)
		a.crash()
		began := time.Now()
		until(t, 2*ttl+10*time.Second, "takes over", active(ms[1]))
		require.Greater(t, time.Since(began), ttl/2)
		require.Equal(t, "b", b.mustAsk(ms[1].PID(), 2).Node)
	})
}

// How soon another hosts, where the lease does not say that it is free, is for the user to choose.
func TestABareLeaseIsTriedAsOftenAsChosen(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		book := barelease.NewBook()
		var ms []*singleton.Manager
		for _, n := range []*node{a, b} {
			l, err := barelease.NewNode(book, n.clock).Lease("x", ttl)
			require.NoError(t, err)
			ms = append(ms, n.run("x", singleton.WithLease(lease.Lease(l)), singleton.WithRetries(time.Second, 300*time.Millisecond)))
			time.Sleep(time.Minute)
		}
		require.NoError(t, ms[0].Stop(t.Context()))
		until(t, 400*time.Millisecond, "takes over", active(ms[1]))
	})
}

// ownLease is a lease that no other node asks for.
func ownLease(t *testing.T) lease.Lease {
	t.Helper()
	l, err := barelease.NewNode(barelease.NewBook(), nil).Lease("x", time.Minute)
	require.NoError(t, err)
	return l
}
