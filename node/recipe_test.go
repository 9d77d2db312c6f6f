package node_test

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) {
	// The first Notify of a process begins a goroutine that serves all later ones. It must not be
	// one of a bubble of synctest: those end with their bubble.
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	signal.Stop(c)
	// protoactor counts dead letters of a second, on a goroutine that ends after it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// after returns a count after d, and after all that is due by then.
func after(d time.Duration, count *atomic.Int32) int32 {
	time.Sleep(d)
	synctest.Wait()
	return count.Load()
}

// A program's test: no node works while its store is away for longer than the lease lasts, and one does
// once it is back.
func TestNobodyCountsWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all that waits does so on fake time
		store := faultstore.Wrap(memory.New())
		var nodes []*node.Node
		var hosts atomic.Int32
		for _, id := range []string{"a", "b"} {
			n, err := node.Start(t.Context(), node.Config{ID: id, Store: store, Logger: zap.NewNop()})
			require.NoError(t, err)
			nodes = append(nodes, n)
			_, err = n.Singleton("counter", actor.PropsFromFunc(func(c actor.Context) { // yours
				switch c.Message().(type) {
				case *actor.Started:
					hosts.Add(1)
				case *actor.Stopped:
					hosts.Add(-1)
				}
			}))
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, after(time.Second, &hosts))
		store.Partition()
		require.EqualValues(t, 0, after(15*time.Second, &hosts), "the lease lasts 10 s")
		store.Heal()
		require.EqualValues(t, 1, after(15*time.Second, &hosts))
		for _, n := range nodes {
			require.NoError(t, n.Stop(context.Background()))
		}
		time.Sleep(2 * time.Second) // protoactor counts dead letters of a second
	})
}
