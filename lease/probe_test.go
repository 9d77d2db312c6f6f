package lease_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
)

// muted is a store of which watches of a prefix fall silent.
type muted struct {
	*memory.Store
	prefix string
	on     atomic.Bool
	begun  atomic.Int32
}

func (m *muted) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	m.begun.Add(1)
	return func(yield func(store.Event, error) bool) {
		for ev, err := range m.Store.Watch(ctx, of) {
			if err == nil && m.on.Load() && strings.HasPrefix(of.Prefix, m.prefix) && ev.Kind != store.EventPut && ev.Kind != store.EventSynced {
				continue
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// Watches that say that they run go on, however many there are; one that has fallen
// silent is begun anew in time, and it alone.
func TestOnlyAWatchThatFellSilentIsBegunAnew(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		s := &muted{Store: db, prefix: "mute/"}
		a, b := start(t, s, "a"), start(t, db, "b")
		const watches = 20
		for i := range watches {
			_, err := a.Watch(fmt.Sprint("w/", i), func(store.Event) {})
			require.NoError(t, err)
		}
		var told told
		_, err := a.Watch("mute/", told.add)
		require.NoError(t, err)
		a.hold("job")
		require.Equal(t, []string{"synced"}, told.take())
		x := b.hold("mute/x")
		require.Equal(t, []string{"+mute/x"}, told.take())
		before := db.Stats()
		begun := s.begun.Load()
		time.Sleep(100 * ttl)
		require.Equal(t, begun, s.begun.Load())
		require.Equal(t, before.Watch, db.Stats().Watch, "no watch is begun anew")

		s.on.Store(true)
		require.NoError(t, x.Release(t.Context()))
		require.Empty(t, told.take())
		time.Sleep(3*ttl + time.Second)
		require.Equal(t, []string{"-mute/x"}, told.take())
		s.on.Store(false)
		time.Sleep(10 * ttl)
		synctest.Wait()
		require.LessOrEqual(t, s.begun.Load(), begun+2, "the others run on")
	})
}
