//go:build unix

package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/store"
)

// TestWatchOverCompaction: a watch that was interrupted while its history was
// compacted ends and says so, in place of leaving out what happened; the next one
// has it all, and a Keeper's stream of records goes on by itself.
func TestWatchOverCompaction(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t) // compacting disturbs watches of others
	route := must(c.NewRoute())(t)
	prefix := fresh()
	direct := newStore(t, c.Client(t), prefix)
	broken := newNode(t, route.Client(t), prefix, "watcher", ttl)
	sess := session(t, direct, "a")
	first := win(t, direct, sess, "w/0")

	var mu sync.Mutex
	follows, ended, synced := map[string]store.Token{}, make(chan error, 2), make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, deletions := range []bool{false, true} {
		go func() {
			for ev, err := range broken.store.Watch(ctx, store.Scope{Prefix: "w/", Deletions: deletions}) {
				if err != nil {
					ended <- err
					return
				}
				if ev.Kind == store.EventSynced {
					synced <- struct{}{}
				}
			}
		}()
	}
	stop, err := broken.keeper.Watch("w/", func(ev store.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch ev.Kind {
		case store.EventPut:
			follows[ev.Record.Name] = ev.Record.Token
		case store.EventDelete:
			delete(follows, ev.Record.Name)
		}
	})
	require.NoError(t, err)
	defer stop()
	<-synced
	<-synced
	knows := func(want map[string]store.Token) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(follows) == fmt.Sprint(want)
		}
	}
	eventually(t, soon, "the snapshot", knows(map[string]store.Token{"w/0": first.Token}))

	route.Refuse()
	outs := must(direct.Release(ctx, []store.Held{first.Held()}))(t)
	require.True(t, outs[0].OK)
	want := map[string]store.Token{}
	for i := range 5 {
		name := fmt.Sprintf("w/%d", i+1)
		want[name] = win(t, direct, sess, name).Token
	}
	compact(t, c.Client(t))
	route.Heal()
	healed := now()
	for range 2 {
		select {
		case err := <-ended:
			require.ErrorIs(t, err, rpctypes.ErrCompacted)
		case <-time.After(soon):
			t.Fatal("a watch went on over a gap")
		}
	}
	again := map[string]store.Token{}
	for ev, err := range broken.store.Watch(ctx, store.Scope{Prefix: "w/"}) {
		require.NoError(t, err)
		if ev.Kind == store.EventSynced {
			break
		}
		again[ev.Record.Name] = ev.Record.Token
	}
	require.Equal(t, want, again)
	eventually(t, soon, "the Keeper's stream has caught up", knows(want))
	t.Logf("followed again %v after the link was healed", now()-healed)
}
