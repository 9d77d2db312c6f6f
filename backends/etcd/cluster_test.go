//go:build unix

package etcd_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// TestCluster: three nodes churn over a cluster of three, to which everything
// that happens to a cluster happens. Never two believe at once, tokens only
// grow, and after every fault all names are held again.
func TestCluster(t *testing.T) {
	tier.NightlyOnly(t, "TestOutage kills and restarts one server under holders")
	t.Parallel()
	alone(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	prefix := fresh()
	names := map[string]time.Duration{"long/1": 0, "long/2": 0, "long/3": 0,
		"short/1": 200 * time.Millisecond, "short/2": 300 * time.Millisecond, "short/3": 500 * time.Millisecond}
	var nodes []*node
	for i := range 3 {
		nodes = append(nodes, newNode(t, c.Client(t), prefix, fmt.Sprintf("node-%d", i), ttl))
	}
	var j journal
	stop := j.group(t, nodes, names)
	j.held(t, now(), names)
	ctx := t.Context()

	leader := func(not ...*etcdtest.Member) *etcdtest.Member {
		m := must(c.Leader(ctx, not...))(t)
		return m
	}
	follower := func() *etcdtest.Member {
		l := leader()
		others := make([]*etcdtest.Member, 0, 2)
		for _, m := range c.Members() {
			if m != l {
				others = append(others, m)
			}
		}
		return others[rand.IntN(len(others))]
	}
	last := func(d time.Duration) { // the fault, with the load going on
		began := now()
		eventually(t, d+soon, "time passes", func() bool { return now() >= began+d })
	}

	for _, fault := range []struct {
		name  string
		times int
		do    func()
	}{
		{"leader killed and restarted", 3, func() {
			l := leader()
			require.NoError(t, l.Kill())
			leader(l)
			require.NoError(t, l.Restart(ctx))
		}},
		{"follower stopped and continued", 3, func() {
			f := follower()
			require.NoError(t, f.Stop(ctx))
			last(1500 * time.Millisecond)
			require.NoError(t, f.Cont()) // what was sent to it lands now
		}},
		{"leader stopped and continued", 1, func() {
			l := leader()
			require.NoError(t, l.Stop(ctx))
			leader(l)
			last(ttl)
			j.mayRob()
			require.NoError(t, l.Cont())
		}},
		{"leader moved", 3, func() {
			old, to := leader(), follower()
			_, err := c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{old.Direct()} }).MoveLeader(ctx, to.ID())
			require.NoError(t, err)
			eventually(t, soon, "it leads", func() bool { return leader() == to })
		}},
		{"follower isolated", 1, func() {
			f := follower()
			require.NoError(t, f.Isolate())
			last(3 * time.Second)
			require.NoError(t, f.Rejoin())
		}},
		{"leader isolated", 1, func() {
			l := leader()
			require.NoError(t, l.Isolate())
			leader(l)
			last(ttl)
			require.NoError(t, l.Rejoin())
		}},
	} {
		began := now()
		var worst time.Duration
		for range fault.times {
			fault.do()
			worst = max(worst, j.held(t, now(), names))
		}
		t.Logf("%s: all held at most %v later; %d lost in %v", fault.name, worst.Round(time.Millisecond), j.lost(began),
			(now() - began).Round(time.Millisecond))
		j.check(t)
	}
	stop()
	j.check(t)
	require.Greater(t, len(j.all()), 50, "hardly anything happened")
}
