package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(calm{m}) }

// calm waits for what protoactor counts of dead letters: a goroutine goes on for
// a second after the first, and the examples, which run last, are on real time.
type calm struct{ *testing.M }

func (m calm) Run() int {
	code := m.M.Run()
	time.Sleep(1100 * time.Millisecond)
	return code
}

func TestEveryNodeReachesEveryEntity(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 16)
		for _, n := range ns {
			for i := range 50 {
				require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{n.id, 1}))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, n := range ns {
			for i := range 50 {
				c.log.complete(n.id, fmt.Sprint("id", i), 1)
			}
		}
		c.log.check()
		got, err := sharding.Ask[done](context.Background(), ns[0].region, "id7", job{"ask", 1})
		require.NoError(t, err)
		require.Equal(t, "id7", got.ID)
	})
}

// expelled has an operator take the node's membership away, and returns the lease's name.
func expelled(n *node) string {
	n.c.t.Helper()
	time.Sleep(time.Second) // it watches its record
	term, member := n.group.Term()
	require.True(n.c.t, member)
	n.store.SetRule(func(c faultstore.Call) faultstore.Fault { // it does not begin anew at once
		if c.Op == faultstore.Acquire && slices.Contains(c.Names, term.Name()) {
			return faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second}
		}
		return faultstore.Fault{}
	})
	recs, err := n.c.store.Get(context.Background(), term.Name())
	require.NoError(n.c.t, err)
	_, err = n.c.store.Release(context.Background(), []store.Held{recs[0].Held()})
	require.NoError(n.c.t, err)
	for began := time.Now(); member; _, member = n.group.Term() { // it is noticed
		require.Less(n.c.t, time.Since(began), 2*ttl)
		time.Sleep(time.Millisecond)
	}
	return term.Name()
}

// usurps has another node lose its membership, and holds the lease of that.
func (n *node) usurps(from *node) *lease.Handle {
	n.c.t.Helper()
	h, err := n.keeper.Lease(expelled(from))
	require.NoError(n.c.t, err)
	won, err := h.Acquire(context.Background())
	require.NoError(n.c.t, err)
	require.True(n.c.t, won)
	return h
}

// A membership that was lost begins again by itself: a Start in between waits for it. What the node
// is to host goes by the roles that it joined with.
func TestStartBetweenMembershipsHostsByRoles(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a", membership.WithRoles("worker"))
		expelled(n)
		n.start(8, asRole("worker", n)...)
		_, member := n.group.Term()
		require.True(t, member)
		c.settled(30*time.Second, n)
		_, err := ask(n, "x", 1)
		require.NoError(t, err)
	})
}

// One that does not, and one that was given up, is an error.
func TestStartWithoutAMembership(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		start := func() (time.Duration, error) {
			began := time.Now()
			_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
			return time.Since(began), err
		}
		other := c.node("b").usurps(n)
		took, err := start()
		require.ErrorIs(t, err, lease.ErrParentLost)
		require.NotErrorIs(t, err, lease.ErrClosed)
		require.InDelta(t, 10, took.Seconds(), 0.1)
		require.NoError(t, other.Release(context.Background()))
		time.Sleep(ttl)
		require.NoError(t, n.group.Leave(context.Background()))
		took, err = start()
		require.ErrorIs(t, err, lease.ErrClosed)
		require.Less(t, took, time.Second)
	})
}

// One that is given up while Start waits for it is the end of that.
func TestStartWhileTheGroupIsLeft(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		c.node("b").usurps(n)
		after(time.Second, func() { _ = n.group.Leave(context.Background()) })
		began := time.Now()
		_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorIs(t, err, lease.ErrParentLost)
		require.Less(t, time.Since(began), 3*time.Second)
		_, err = sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: n.props(), Shards: 4})
		require.ErrorIs(t, err, lease.ErrClosed, "and at once")
	})
}
