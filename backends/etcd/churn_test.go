//go:build unix

package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/settler"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
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
	// longest is what a disturbance takes, its end included, on a machine that is not
	// busy with other things.
	longest = 2500 * time.Millisecond
	// mostRounds is how often the kit runs at most so that enough happens.
	mostRounds = 5
)

// hasty is the patience of settlers on a cluster under disturbance.
var hasty = settler.Patience{Attempt: 400 * time.Millisecond, Pause: 20 * time.Millisecond, All: 25 * time.Second}

// TestConformanceWhileLeadersDie: the leader is killed, and restarted up to a
// second later, all the while.
func TestConformanceWhileLeadersDie(t *testing.T) {
	t.Parallel()
	conformWhile(t, churn{
		what: "leaders killed and restarted",
		fault: func(ctx context.Context, c *etcdtest.Cluster, r *rand.Rand) error {
			leader, err := c.Leader(ctx)
			if err != nil {
				return err
			}
			if err := leader.Kill(); err != nil {
				return err
			}
			time.Sleep(between(r, 0, time.Second))
			return leader.Restart(ctx)
		},
		// A new leader gives every session its whole TTL anew. In every other pause
		// there is time for it to end.
		pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2500*time.Millisecond
			}
			return between(r, time.Second, 3*time.Second)
		},
		slack: 15 * time.Second,
		// How many requests a leader applies and dies before it answers is chance: 2 of
		// 583 in five rounds, 4 to 10 in one.
		least: figures{faults: 3, settled: 50},
	})
}

// TestConformanceWhileFollowersStop: a follower is stopped, and continued up to
// two seconds later, all the while. What was sent to it lands then, if it lands,
// when its sender has long turned to another member.
func TestConformanceWhileFollowersStop(t *testing.T) {
	t.Parallel()
	conformWhile(t, churn{
		what: "followers stopped and continued",
		fault: func(ctx context.Context, c *etcdtest.Cluster, r *rand.Rand) error {
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
			time.Sleep(between(r, 500*time.Millisecond, 2*time.Second))
			return follower.Cont()
		},
		pause: func(_ int, r *rand.Rand) time.Duration { return between(r, time.Second, 2*time.Second) },
		slack: churnTTL + 2*time.Second,
		least: figures{faults: 6, settled: 150, evident: 8},
	})
}

// churn is what happens to a cluster all the while.
type churn struct {
	what  string
	fault func(context.Context, *etcdtest.Cluster, *rand.Rand) error // and its end
	pause func(n int, r *rand.Rand) time.Duration                    // before the n-th fault, from 0
	slack time.Duration                                              // leasetest.ExpirySlack
	least figures
}

// figures are the least that must have happened for the run to mean something.
type figures struct {
	faults  int64 // that the cluster met
	settled int64 // calls that met them
	evident int64 // requests that were applied, and got no answer
}

func (f figures) reached(faults int64, t *settler.Tally) bool {
	return faults >= f.faults && t.Settled.Load() >= f.settled && t.Evident.Load() >= f.evident
}

func between(r *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(r.Int64N(int64(b-a)+1))
}

func conformWhile(t *testing.T, ch churn) {
	unsteady(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	seed := *churnSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-etcd.seed repeats it)", seed)

	began := time.Now()
	ended, stop := make(chan struct{}), make(chan struct{})
	var faults atomic.Int64
	go func() {
		defer close(ended)
		r := rand.New(rand.NewPCG(seed, 0))
		slow := 1.0 // a machine on which it takes the cluster long to recover gets longer pauses
		for n := 0; ; n++ {
			select {
			case <-time.After(time.Duration(slow * float64(ch.pause(n, r)))):
			case <-stop:
				return
			}
			at := time.Since(began)
			if err := ch.fault(context.WithoutCancel(t.Context()), c, r); err != nil {
				t.Errorf("after %v: %v", at, err)
				return
			}
			t.Logf("disturbed from %v to %v", at.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			faults.Add(1)
			slow = min(max((time.Since(began)-at).Seconds()/longest.Seconds(), 1), 4)
		}
	}()

	var counts settler.Tally
	client := c.Client(t)
	for i := 0; i < *churnRounds || i < mostRounds && !ch.least.reached(faults.Load(), &counts); i++ {
		ok := t.Run(fmt.Sprintf("round-%d", i), func(t *testing.T) {
			leasetest.Run(t, settled(client, &counts), leasetest.TTL(churnTTL), leasetest.ExpirySlack(ch.slack),
				leasetest.Disturbed(churnStall), leasetest.Seed(seed+uint64(i)),
				leasetest.BadRecords(settledBad(client, &counts)), leasetest.Unreachable(settledCut(c, &counts)))
		})
		if !ok {
			break
		}
	}
	close(stop)
	<-ended
	t.Logf("%d %s in %v; %s", faults.Load(), ch.what, time.Since(began).Round(time.Second), &counts)
	if !t.Failed() {
		require.True(t, ch.least.reached(faults.Load(), &counts), "hardly anything happened to the cluster, or hardly any request met it: want %+v", ch.least)
	}
}

// settled makes stores of which every client is a settler.
func settled(client *clientv3.Client, counts *settler.Tally) leasetest.Factory {
	return func(tb leasetest.TB) func() lease.Store {
		prefix, known := fresh(), settler.NewLedger(counts)
		return func() lease.Store {
			return settler.New(newStore(tb, client, prefix), known, hasty)
		}
	}
}

// settledBad makes such stores in which foreign values stand.
func settledBad(client *clientv3.Client, counts *settler.Tally) func(leasetest.TB) (func() lease.Store, func(string)) {
	return func(tb leasetest.TB) (func() lease.Store, func(string)) {
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
func settledCut(c *etcdtest.Cluster, counts *settler.Tally) leasetest.Factory {
	return func(tb leasetest.TB) func() lease.Store {
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
