//go:build unix

package etcdtest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func others(c *Cluster, not *Member) []*Member {
	return slices.DeleteFunc(c.Members(), func(m *Member) bool { return m == not })
}

// only makes a client of one member.
func only(t *testing.T, c *Cluster, m *Member) *clientv3.Client {
	t.Helper()
	return c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{m.Addr()} })
}

// lead makes a member the leader, in an orderly way.
func lead(t *testing.T, c *Cluster, to *Member) {
	t.Helper()
	old := must(c.Leader(t.Context()))(t)
	_, err := only(t, c, old).MoveLeader(t.Context(), to.ID())
	require.NoError(t, err)
	_, err = c.Leader(t.Context(), others(c, to)...)
	require.NoError(t, err)
}

func TestThreeMembersOutliveTheLossOfTheLeader(t *testing.T) {
	t.Parallel()
	c := Start(t, WithMembers(3))
	require.Len(t, c.Endpoints(), 3)
	ids := map[uint64]bool{}
	for _, m := range c.Members() {
		ids[m.ID()] = true
	}
	require.Len(t, ids, 3)
	require.NotContains(t, ids, uint64(0))
	leader := must(c.Leader(t.Context()))(t)

	to := others(c, leader)[0]
	lead(t, c, to)
	require.NoError(t, to.Kill())
	next := must(c.Leader(t.Context()))(t)
	require.NotEqual(t, to.Name(), next.Name())
	put(t, c, "k", "v")

	require.NoError(t, next.Stop(t.Context())) // no majority now
	_, err := c.Leader(within(t, 2*time.Second))
	require.ErrorContains(t, err, "no leader")
	require.NoError(t, next.Cont())
	_, err = c.Leader(t.Context())
	require.NoError(t, err)

	require.NoError(t, to.Restart(t.Context()))
	got := must(only(t, c, to).Get(t.Context(), "k"))(t)
	require.Equal(t, int64(1), got.Count)
}

func TestAllMembersRestart(t *testing.T) {
	t.Parallel()
	c := Start(t, WithMembers(3))
	put(t, c, "k", "v")
	for _, m := range c.Members() {
		require.NoError(t, m.Kill())
	}
	for _, m := range c.Members() {
		require.NoError(t, m.Restart(t.Context())) // the first can't wait for a quorum
	}
	for _, m := range c.Members() {
		got := must(only(t, c, m).Get(within(t, patience), "k"))(t)
		require.Equal(t, int64(1), got.Count)
	}
}

func TestIsolatedMemberHearsNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	if !canTellPeers {
		t.Log("links between members need Linux")
		require.Error(t, (&Member{c: &Cluster{members: []*Member{{}}}}).Isolate())
		return
	}
	c := Start(t, WithMembers(3))
	old := must(c.Leader(t.Context()))(t)
	follower := others(c, old)[0]
	alone := only(t, c, follower)
	l := must(alone.Grant(t.Context(), 60))(t)
	_, err := alone.KeepAliveOnce(t.Context(), l.ID)
	require.NoError(t, err)

	// A follower that is cut off is reached, and reaches nobody: no linearizable
	// read, and no renewal, which it would send on to the leader by itself.
	require.NoError(t, follower.Isolate())
	_, err = alone.Get(within(t, patience), "k", clientv3.WithSerializable())
	require.NoError(t, err)
	_, err = alone.Get(within(t, 5*silence), "k")
	require.Error(t, err)
	_, err = alone.KeepAliveOnce(within(t, 5*silence), l.ID)
	require.Error(t, err)
	_, err = only(t, c, old).Put(t.Context(), "k", "1")
	require.NoError(t, err)
	got := must(alone.Get(within(t, patience), "k", clientv3.WithSerializable()))(t)
	require.Zero(t, got.Count, "heard of a write")
	require.NoError(t, follower.Rejoin())
	require.Eventually(t, func() bool {
		got, err := alone.Get(within(t, time.Second), "k")
		return err == nil && got.Count == 1
	}, patience, 10*time.Millisecond)

	// A leader that is cut off is replaced; writes at it fail.
	old = must(c.Leader(t.Context()))(t)
	require.NoError(t, old.Isolate())
	next := must(c.Leader(t.Context(), old))(t)
	_, err = only(t, c, next).Put(within(t, patience), "k", "2")
	require.NoError(t, err)
	_, err = only(t, c, old).Put(within(t, 5*silence), "k", "3")
	require.Error(t, err)
	require.NoError(t, old.Rejoin())
	require.Eventually(t, func() bool {
		got, err := only(t, c, old).Get(within(t, time.Second), "k", clientv3.WithSerializable())
		return err == nil && got.Count == 1 && string(got.Kvs[0].Value) != "1"
	}, patience, 50*time.Millisecond)

	c.between[[2]*Member{old, next}].Delay(time.Millisecond)
	lead(t, c, old)
}

func TestLeaderNeedsAMajority(t *testing.T) {
	old, now := view{leader: 1, term: 2}, view{leader: 2, term: 3}
	for _, views := range [][]view{{old}, {old, old, old}, {old, old, {}}, {old, now, old}} {
		require.True(t, majority(views, old), views)
	}
	for _, views := range [][]view{{old, now, now}, {old, {}, {}}, {old, {leader: 1, term: 3}, {}}} {
		require.False(t, majority(views, old), views)
	}
	require.False(t, majority([]view{{}, {}, {}}, view{}))
}
