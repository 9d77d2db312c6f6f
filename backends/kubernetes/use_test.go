//go:build unix

package kubernetes_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordination "k8s.io/api/coordination/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/lease/runlock"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

type (
	where  struct{ N int }
	answer struct{ Node string }
)

// Everything that is a lease, once: a singleton and shards of two nodes, run locks, a Provider.
func TestEverythingOnce(t *testing.T) {
	if tier.Racing {
		t.Skip("protoactor sets the logger of gRPC unguarded when a node starts beside another")
	}
	c := cluster(t)
	ns := namespace(t, c)
	type running struct {
		*node.Node
		single *singleton.Manager
		shards *sharding.Region
	}
	start := func(id string) running {
		n, err := node.Start(t.Context(), node.Config{
			ID: id, Store: open(t, c.Servers()[0].Config(), ns), Group: "g", Listen: "127.0.0.1:0", Plaintext: true,
			Messages: node.Types(where{}, answer{}), Lease: lease.Config{TTL: 15 * time.Second}, Logger: zap.NewNop(),
		})
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = n.Stop(ctx)
		})
		props := actor.PropsFromFunc(func(c actor.Context) {
			if _, ok := c.Message().(where); ok {
				c.Respond(answer{id})
			}
		})
		r := running{Node: n}
		r.single, err = n.Singleton("scheduler", props)
		require.NoError(t, err)
		r.shards, err = n.ShardedType(sharding.Type{Name: "account", Props: props, Shards: 8})
		require.NoError(t, err)
		return r
	}
	a, b := start("a"), start("b")
	asked := func(of func(ctx context.Context) (answer, error)) (got answer) {
		t.Helper()
		eventually(t, "an answer", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var err error
			got, err = of(ctx)
			return err == nil
		})
		return got
	}
	of := func(r running) answer {
		return asked(func(ctx context.Context) (answer, error) { return singleton.Ask[answer](ctx, r.single, where{}) })
	}
	require.Equal(t, of(a), of(b))
	hosts := map[string]bool{}
	for i := range 20 {
		id := fmt.Sprint("account-", i)
		at := func(r running) answer {
			return asked(func(ctx context.Context) (answer, error) { return sharding.Ask[answer](ctx, r.shards, id, where{}) })
		}
		hosts[at(a).Node] = true
	}
	require.NotEmpty(t, hosts)

	locks := must(runlock.New(a.Keeper()))(t)
	lock := must(locks.Try(t.Context(), "workflow", "1"))(t)
	other := must(runlock.New(b.Keeper()))(t)
	_, err := other.Try(t.Context(), "workflow", "1")
	var held *lease.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "a", held.Record.Owner.ID)
	require.NoError(t, lock.Close(t.Context()))

	p := must(provider.New(open(t, c.Servers()[0].Config(), ns)))(t)
	q := must(provider.New(open(t, c.Servers()[0].Config(), ns)))(t)
	got, err := p.Acquire(t.Context(), "order/1", "x", time.Minute)
	require.NoError(t, err)
	require.True(t, got.Acquired)
	got = must(q.Acquire(t.Context(), "order/1", "y", time.Minute))(t)
	require.False(t, got.Acquired)
	require.Equal(t, "x", got.Owner)
	require.NoError(t, p.Release(t.Context(), "order/1", "x"))
}

// leadUnderBoth is the release between one that elects by client-go and one that has leases alone: who
// works has both. The elector does not wait for the work: l is released when that has ended, and the
// elector's Lease is left to run out.
func leadUnderBoth(ctx context.Context, l lease.Lease, lock resourcelock.Interface, work func(context.Context)) error {
	return lease.Run(ctx, l, func(ctx context.Context, _ lease.Term) error {
		var mu sync.Mutex // held by the work
		ended := false
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: false,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}, OnStartedLeading: func(ctx context.Context) {
				mu.Lock()
				defer mu.Unlock()
				if !ended {
					work(ctx)
				}
			}},
		})
		mu.Lock()
		defer mu.Unlock()
		ended = true
		return ctx.Err()
	})
}

// Processes of three releases, one after the other, never work at once: the first elects by client-go,
// the second has both, the third has leases alone.
func TestComingFromClientGo(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	client := must(coordinationclient.NewForConfig(c.Servers()[0].Config()))(t)
	lock := func(id string) resourcelock.Interface {
		return &resourcelock.LeaseLock{
			LeaseMeta: meta.ObjectMeta{Namespace: ns, Name: "job"}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		}
	}
	var working atomic.Int32
	began := make(chan string)
	work := func(id string) func(context.Context) {
		return func(ctx context.Context) {
			if working.Add(1) != 1 {
				t.Errorf("%s works beside another", id)
			}
			defer working.Add(-1)
			select {
			case began <- id:
				<-ctx.Done()
				if id != "first" { // whose elector lets the next one begin, whatever its work does
					time.Sleep(3 * time.Second)
				}
			case <-ctx.Done():
			}
		}
	}
	type process struct {
		stop func()
		done chan struct{}
	}
	run := func(f func(ctx context.Context)) process {
		ctx, cancel := context.WithCancel(t.Context())
		p := process{cancel, make(chan struct{})}
		go func() { defer close(p.done); f(ctx) }()
		return p
	}
	first := run(func(ctx context.Context) {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock("first"), ReleaseOnCancel: true,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: work("first"), OnStoppedLeading: func() {}},
		})
	})
	require.Equal(t, "first", <-began)
	leaseOf := func() lease.Lease {
		return must(keeper(t, open(t, c.Servers()[0].Config(), ns), 15*time.Second).Lease("job"))(t)
	}
	second := run(func(ctx context.Context) { _ = leadUnderBoth(ctx, leaseOf(), lock("second"), work("second")) })
	first.stop()
	<-first.done
	require.Equal(t, "second", <-began)
	third := run(func(ctx context.Context) {
		_ = lease.Run(ctx, leaseOf(), func(ctx context.Context, _ lease.Term) error { work("third")(ctx); return nil })
	})
	second.stop()
	<-second.done
	require.Equal(t, "third", <-began)
	third.stop()
	<-third.done
}

// A Lease says who holds the name, and since when, and has nothing by which an elector of client-go or a
// tool for these takes it for one of theirs.
func TestWhatALeaseSays(t *testing.T) {
	c := cluster(t)
	ns := namespace(t, c)
	s := open(t, c.Servers()[0].Config(), ns)
	x := session(t, s, time.Hour)
	won := claim(t, s, x, "singleton/billing")
	require.True(t, won.OK)
	l := leaseOf(t, c, ns, "records/singleton_2fbilling")
	require.Equal(t, x.Owner.ID, *l.Spec.HolderIdentity)
	require.WithinDuration(t, won.Record.Granted, l.Spec.AcquireTime.Time, 0)
	require.Equal(t, "records", l.Labels["holdfast-go.github.io/kind"])
	require.Equal(t, fmt.Sprint(won.Record.Token), l.ResourceVersion)
	of := leaseOf(t, c, ns, fmt.Sprint("sessions/", x.ID))
	require.Equal(t, x.Owner.ID, *of.Spec.HolderIdentity)
	for _, l := range []coordination.Lease{l, of} {
		require.Nil(t, l.Spec.RenewTime)
		require.Nil(t, l.Spec.LeaseDurationSeconds)
	}
}
