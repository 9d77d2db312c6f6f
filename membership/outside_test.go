package membership_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/membership"
)

// asking is a core that calls f to know whether it takes a line.
type asking struct {
	zapcore.Core
	f func()
}

func (c asking) Enabled(l zapcore.Level) bool { c.f(); return c.Core.Enabled(l) }

func (c asking) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return c.Core.Check(e, ce)
}

// A logger may ask the group, where it writes and where it says which lines it takes: no lock of
// the group's is held then.
func TestALoggerMayCallTheGroup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var group atomic.Pointer[membership.Group]
		ask := func() {
			if g := group.Load(); g != nil {
				_ = g.Health(context.Background())
			}
		}
		core, _ := observer.New(zap.InfoLevel)
		log := zap.New(asking{core, ask}, zap.Hooks(func(zapcore.Entry) error { ask(); return nil }))
		a := w.node("a").join(membership.WithLogger(log))
		group.Store(a.group)
		b := w.node("b").join()
		// A record that can't be read is told of.
		h := must(b.keeper.Lease("member/g/x/y"))(t)
		won := must(h.Acquire(t.Context()))(t)
		require.True(t, won)
		synctest.Wait()
		require.Equal(t, 1, a.group.Members().Unreadable)
		require.NoError(t, h.Release(t.Context()))
		// And so is another life of its ID.
		a.store.Partition()
		two := must(membership.Join(t.Context(), w.node("a", at("two:1")).keeper, "g"))(t)
		a.store.Heal()
		time.Sleep(ttl)
		require.ErrorIs(t, a.group.Superseded(), membership.ErrIDInUse)
		require.NoError(t, two.Leave(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		require.NoError(t, a.group.Leave(ctx))
	})
}
