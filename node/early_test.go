//go:build unix

package node_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// slowToMake is a store that a Keeper takes its time to be made with.
type slowToMake struct {
	store.Store
	made func()
}

func (s *slowToMake) Limits() store.Limits {
	s.made()
	return s.Store.Limits()
}

// TestASignalInTheMiddleOfStart leaves nothing of what is started after it came.
func TestASignalInTheMiddleOfStart(t *testing.T) {
	http := freeAddress(t)
	came := false
	store := &slowToMake{Store: memory.New(), made: func() {
		if !came {
			came = true
			raise(t, syscall.SIGTERM)
			time.Sleep(300 * time.Millisecond)
		}
	}}
	_, err := node.Start(t.Context(), node.Config{ID: "a", Store: store, Listen: "127.0.0.1:0", Plaintext: true, HTTP: http, Group: "bank",
		StopWithin: soon, Logger: zap.NewNop()})
	require.ErrorIs(t, err, node.ErrStopped)
	requireNobodyListens(t, http)
}

// TestAStartThatIsUndoneAtOnce ends HTTP before it has begun to be served.
func TestAStartThatIsUndoneAtOnce(t *testing.T) {
	for range 50 {
		http := freeAddress(t)
		ctx, cancel := context.WithCancel(t.Context())
		away := faultstore.Wrap(memory.New())
		away.Partition()
		store := &slowToMake{Store: away, made: cancel}
		_, err := node.Start(ctx, node.Config{ID: "a", Store: store, HTTP: http, Group: "bank", StopWithin: time.Millisecond, Logger: zap.NewNop()})
		require.ErrorIs(t, err, context.Canceled)
		requireNobodyListens(t, http)
	}
}

// TestARegionThatIsStartedAgain is what Health is about, not the one that was stopped.
func TestARegionThatIsStartedAgain(t *testing.T) {
	n := start(t, "a", memory.New())
	for range 3 {
		r := must(n.Sharded("account", adders()))(t)
		require.NoError(t, n.Health(t.Context()))
		require.NoError(t, r.Stop(t.Context()))
		require.Error(t, n.Health(t.Context()), "the type does not run")
	}
	must(n.Sharded("account", adders()))(t)
	require.NoError(t, n.Health(t.Context()))
	stop(t, n)
}

// TestStopWithAFrozenStore: whatever is asked of the store waits. The node ends within
// the time that Stop is given, and says what it left.
func TestStopWithAFrozenStore(t *testing.T) {
	for _, within := range []time.Duration{0, time.Second, 25 * time.Second} {
		t.Run(within.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { require.LessOrEqual(t, stopFrozen(t, 0, within), within+time.Second) })
		})
	}
}

// A node stops soon once no lease is held any more and the store is away: it can hand over and release
// nothing.
func TestStopWithNoLeaseLeft(t *testing.T) {
	for frozen, within := range map[time.Duration]time.Duration{0: 12 * time.Second, 15 * time.Second: 3 * time.Second} {
		t.Run(frozen.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { require.LessOrEqual(t, stopFrozen(t, frozen, 25*time.Second), within) })
		})
	}
}

// stopFrozen stops a node whose store has been frozen for a while, and returns how long that took.
func stopFrozen(t *testing.T, frozen, within time.Duration) time.Duration {
	store := faultstore.Wrap(memory.New())
	n := start(t, "a", store, func(c *node.Config) { c.Listen, c.Plaintext, c.Lease.TTL = "", false, 10*time.Second })
	for _, name := range []string{"cron", "mail"} {
		m := must(n.Singleton(name, adders()))(t)
		ask(t, func(ctx context.Context) (Sum, error) { return singleton.Ask[Sum](ctx, m, Add{1}) })
	}
	must(n.ShardedType(sharding.Type{Name: "account", Props: adders(), Shards: 4}))(t)
	time.Sleep(5 * time.Second) // it has got its shards
	store.SetRule(func(faultstore.Call) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.Delay, Delay: time.Hour}
	})
	defer func() {
		store.SetRule(nil)
		time.Sleep(30 * time.Second) // protoactor's log of dead letters ends a second after the last
		synctest.Wait()
	}()
	time.Sleep(frozen)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	began := time.Now()
	err := n.Stop(ctx)
	took := time.Since(began)
	for _, lease := range []string{"singleton/cron", "singleton/mail", `"account"`, "member/bank/a/"} {
		require.ErrorContains(t, err, lease)
	}
	require.True(t, n.System().IsStopped())
	return took
}
