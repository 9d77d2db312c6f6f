//go:build unix

package etcd_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/churn"
	"github.com/holdfast-go/holdfast/internal/settler"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// The kit on a cluster that is never left alone. Between the kit and the store
// stands a settler: it repeats what got no answer, and settles it to the one
// outcome that it knows of, or to none. Everything the kit checks must hold of
// these outcomes: who won, which tokens, what is seen by whom and watched.
//
// Each test runs the whole kit, all cases at once, in some 25 s; and again, until
// enough has happened to the cluster. For longer, and to draw the same again:
//
//	go test ./backends/etcd -run TestConformanceWhile -etcd.rounds=50 -timeout 30m
//	go test ./backends/etcd -run TestConformanceWhile -etcd.seed=12345
//
// Left out are setup/restart, which restarts the cluster itself;
// watch/leaves-nothing, as all cases share the streams of one client, and so the
// goroutines that it counts; and deletions/…: of a deletion alone nobody can tell
// whether it was that of a record that landed when nobody waited for it any more.
// TestConformance has them all.
var (
	churnRounds = flag.Int("etcd.rounds", 1, "how often the kit runs at least on a cluster under disturbance")
	churnSeed   = flag.Uint64("etcd.seed", 0, "repeats the draws of a run on a cluster under disturbance; 0: new ones")
)

const (
	// churnTTL lets a session live through an election, between two renewals.
	churnTTL = 5 * time.Second
	// churnStall is generous for a call that meets an election, or a member that
	// is stopped, on a machine that is busy.
	churnStall = 5 * time.Second
	// mostRounds is how often the kit runs at most so that enough happens.
	mostRounds = 5
)

// hasty is the patience of settlers on a cluster under disturbance.
var hasty = settler.Patience{Attempt: 400 * time.Millisecond, Pause: 20 * time.Millisecond, All: 25 * time.Second}

// TestConformanceWhileLeadersDie: the leader is killed, and restarted up to a
// second later, all the while.
func TestConformanceWhileLeadersDie(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance restarts its server")
	t.Parallel()
	conformWhile(t, churn.Churn{
		What: "leaders killed and restarted",
		// A new leader gives every session its whole TTL anew. In every other pause
		// there is time for it to end.
		Pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2500*time.Millisecond
			}
			return churn.Between(r, time.Second, 3*time.Second)
		},
		// How many requests a leader applies and dies before it answers is chance: 2 of
		// 583 in five rounds, 4 to 10 in one.
		Least: churn.Least{Faults: 3, Settled: 50},
	}, 15*time.Second, func(ctx context.Context, c *etcdtest.Cluster, r *rand.Rand) error {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		if err := leader.Kill(); err != nil {
			return err
		}
		time.Sleep(churn.Between(r, 0, time.Second))
		return leader.Restart(ctx)
	})
}

// TestConformanceWhileFollowersStop: a follower is stopped, and continued up to
// two seconds later, all the while. What was sent to it lands then, if it lands,
// when its sender has long turned to another member.
func TestConformanceWhileFollowersStop(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance restarts its server")
	t.Parallel()
	conformWhile(t, churn.Churn{
		What:  "followers stopped and continued",
		Pause: func(_ int, r *rand.Rand) time.Duration { return churn.Between(r, time.Second, 2*time.Second) },
		Least: churn.Least{Faults: 6, Settled: 150, Evident: 8},
	}, churnTTL+2*time.Second, func(ctx context.Context, c *etcdtest.Cluster, r *rand.Rand) error {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		follower := leader
		for follower == leader {
			follower = c.Members()[r.IntN(3)]
		}
		if err := follower.Stop(ctx); err != nil {
			return err
		}
		time.Sleep(churn.Between(r, 500*time.Millisecond, 2*time.Second))
		return follower.Cont()
	})
}

// conformWhile runs the kit on a cluster of three while ch goes on, whose fault is of that cluster.
func conformWhile(t *testing.T, ch churn.Churn, slack time.Duration, fault func(context.Context, *etcdtest.Cluster, *rand.Rand) error) {
	unsteady(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	ch.Fault = func(ctx context.Context, r *rand.Rand) error { return fault(ctx, c, r) }
	ch.Rounds, ch.Most, ch.Seed, ch.SeedFlag = *churnRounds, mostRounds, *churnSeed, "etcd.seed"
	var counts settler.Tally
	client := c.Client(t)
	ch.Run(t, &counts, func(t *testing.T, seed uint64) {
		storetest.Run(t, settled(client, &counts), storetest.TTL(churnTTL), storetest.ExpirySlack(slack),
			storetest.Disturbed(churnStall), storetest.Seed(seed),
			storetest.BadRecords(settledBad(client, &counts)), storetest.Unreachable(settledCut(c, &counts)))
	})
}

// settled makes stores of which every client is a settler.
func settled(client *clientv3.Client, counts *settler.Tally) storetest.Factory {
	return func(tb storetest.TB) func() store.Store {
		prefix, known := fresh(), settler.NewLedger(counts)
		return func() store.Store {
			return settler.New(newStore(tb, client, prefix), known, hasty)
		}
	}
}

// settledBad makes such stores in which foreign values stand.
func settledBad(client *clientv3.Client, counts *settler.Tally) func(storetest.TB) (func() store.Store, func(string)) {
	return func(tb storetest.TB) (func() store.Store, func(string)) {
		clients := settled(client, counts)(tb)
		prefix := clients().(*settler.Store).Inner().(interface{ Prefix() string }).Prefix()
		return clients, func(name string) {
			for tb.Context().Err() == nil {
				ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
				_, err := client.Put(ctx, prefix+name, "garbage")
				cancel()
				if err == nil {
					return
				}
			}
		}
	}
}

// settledCut makes such stores whose requests never arrive.
func settledCut(c *etcdtest.Cluster, counts *settler.Tally) storetest.Factory {
	return func(tb storetest.TB) func() store.Store {
		route, err := c.NewRoute()
		if err != nil {
			tb.Fatalf("%v", err)
		}
		client, err := route.NewClient()
		if err != nil {
			tb.Fatalf("%v", err)
		}
		tb.Cleanup(func() { client.Close() })
		route.Cut()
		return settled(client, counts)(tb)
	}
}
