package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// A name that is freed with many others is told of after a pause; the handle may have
// been closed meanwhile.
func TestOnFreeIsNotCalledAfterClose(t *testing.T) {
	for what, end := range map[string]func(*node, *lease.Handle) error{
		"the handle's": func(_ *node, h *lease.Handle) error { return h.Close(context.Background()) },
		"the keeper's": func(n *node, _ *lease.Handle) error { return n.Close(context.Background()) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				const n = 300
				var mine []*lease.Handle
				var closed atomic.Bool
				var before, after atomic.Int32
				var theirs []*lease.Handle
				for i := range n {
					name := fmt.Sprint("job/", i)
					mine = append(mine, a.hold(name))
					h := b.lease(name)
					theirs = append(theirs, h)
					h.OnFree(func() {
						if closed.Load() {
							after.Add(1)
						}
						before.Add(1)
					})
				}
				time.Sleep(time.Second)
				for _, h := range mine {
					require.NoError(t, h.Release(t.Context()))
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.Less(t, before.Load(), int32(n), "a herd is spread")
				for _, h := range theirs {
					require.NoError(t, end(b, h))
				}
				synctest.Wait()
				closed.Store(true)
				time.Sleep(2 * time.Second)
				require.Zero(t, after.Load())
			})
		})
	}
}
