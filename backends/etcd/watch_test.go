//go:build unix

package etcd_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
)

// TestWatchOverCompaction: a watch that was interrupted while its history was
// compacted ends and says so, in place of leaving out what happened; the next one
// has it all, and a Keeper's stream of records goes on by itself.
func TestWatchOverCompaction(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t) // compacting disturbs watches of others
	route, err := c.NewRoute()
	require.NoError(t, err)
	prefix := fresh()
	direct := newStore(t, c.Client(t), prefix)
	broken := newNode(t, route.Client(t), prefix, "watcher", ttl)
	sess := session(t, direct, "a")
	first := win(t, direct, sess, "w/0")

	var mu sync.Mutex
	follows, ended, synced := map[string]lease.Token{}, make(chan error, 2), make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, watch := range []func(context.Context, string) iter.Seq2[lease.Event, error]{broken.store.Watch, broken.store.WatchDeletions} {
		go func() {
			for ev, err := range watch(ctx, "w/") {
				if err != nil {
					ended <- err
					return
				}
				if ev.Kind == lease.EventSynced {
					synced <- struct{}{}
				}
			}
		}()
	}
	stop, err := broken.keeper.Watch("w/", func(ev lease.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch ev.Kind {
		case lease.EventPut:
			follows[ev.Record.Name] = ev.Record.Token
		case lease.EventDelete:
			delete(follows, ev.Record.Name)
		}
	})
	require.NoError(t, err)
	defer stop()
	<-synced
	<-synced
	knows := func(want map[string]lease.Token) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(follows) == fmt.Sprint(want)
		}
	}
	eventually(t, soon, "the snapshot", knows(map[string]lease.Token{"w/0": first.Token}))

	route.Refuse()
	outs, err := direct.Release(ctx, []lease.Held{first.Held()})
	require.NoError(t, err)
	require.True(t, outs[0].OK)
	want := map[string]lease.Token{}
	for i := range 5 {
		name := fmt.Sprintf("w/%d", i+1)
		want[name] = win(t, direct, sess, name).Token
	}
	_, err = c.Compact(ctx)
	require.NoError(t, err)
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
	again := map[string]lease.Token{}
	for ev, err := range broken.store.Watch(ctx, "w/") {
		require.NoError(t, err)
		if ev.Kind == lease.EventSynced {
			break
		}
		again[ev.Record.Name] = ev.Record.Token
	}
	require.Equal(t, want, again)
	eventually(t, soon, "the Keeper's stream has caught up", knows(want))
	t.Logf("followed again %v after the link was healed", now()-healed)
}

// TestRevoked: a session revoked behind its owner's back. The holder knows by its
// watch, long before its deadline; until then another may already hold the name,
// and the token tells the two apart.
func TestRevoked(t *testing.T) {
	t.Parallel()
	c := server(t)
	prefix := fresh()
	a, b := newNode(t, c.Client(t), prefix, "a", lasting), newNode(t, c.Client(t), prefix, "b", lasting)
	h, bystander := a.lease(t, "job", lease.WithOwnSession()), a.lease(t, "other")
	losses := make(chan lease.Loss, 10)
	h.OnLost(func(l lease.Loss) { losses <- l })
	bystander.OnLost(func(l lease.Loss) { losses <- l })
	for _, h := range []*lease.Handle{h, bystander} {
		won, err := h.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, won)
	}
	term, _ := h.Term()
	rec, _, err := h.Holder(t.Context())
	require.NoError(t, err)

	require.NoError(t, c.Revoke(t.Context(), clientv3.LeaseID(rec.Session)))
	revoked := now()
	eventually(t, soon, "the holder knows", func() bool { return !h.CheckAlive() }) // no renewal is due by then
	t.Logf("the holder knew %v after the session was revoked", now()-revoked)
	loss := <-losses
	require.Equal(t, "job", loss.Name)
	require.ErrorIs(t, loss.Reason, lease.ErrRecordGone)
	require.ErrorIs(t, context.Cause(term.Context()), lease.ErrRecordGone)

	other := b.lease(t, "job")
	won, err := other.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	next, _ := other.Term()
	require.Greater(t, next.Token(), term.Token())
	require.True(t, bystander.CheckAlive(), "another session of the same Keeper was lost with it")
	require.Empty(t, losses)
	require.NoError(t, other.Release(t.Context()))
	won, err = h.Acquire(t.Context()) // in a new session
	require.NoError(t, err)
	require.True(t, won)
}

// TestForeignKeys: what is no record is reported with its name, and hides
// nothing else.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	client := server(t).Client(t)
	prefix := fresh()
	s := newStore(t, client, prefix)
	ctx := t.Context()
	sess := session(t, s, "a")
	good := win(t, s, sess, "f/2")
	bad := map[string]bool{"f/1": true, "f/3": true}
	for name := range bad {
		_, err := client.Put(ctx, prefix+name, "somebody's")
		require.NoError(t, err)
	}
	var listed, watched []string
	for r, err := range s.List(ctx, "f/") {
		require.Equal(t, bad[r.Name], err != nil, "%+v: %v", r, err)
		if err != nil {
			require.ErrorIs(t, err, lease.ErrBadRecord)
		}
		listed = append(listed, r.Name)
	}
	require.Equal(t, []string{"f/1", "f/2", "f/3"}, listed)
	recs, err := s.Get(ctx, "f/1", "f/2", "f/0")
	require.NoError(t, err)
	require.Equal(t, []lease.Record{{Name: "f/1"}, good}, recs, "it holds its name")
	for ev, err := range s.Watch(ctx, "f/") {
		require.NoError(t, err)
		switch ev.Kind {
		case lease.EventSynced: // from here on, changes
			_, err := client.Put(ctx, prefix+"f/4", "hf1 ")
			require.NoError(t, err)
			_, err = client.Delete(ctx, prefix+"f/4")
			require.NoError(t, err)
			continue
		case lease.EventBad:
			require.True(t, bad[ev.Record.Name] || ev.Record.Name == "f/4")
		case lease.EventPut:
			require.Equal(t, good, ev.Record)
		}
		if watched = append(watched, fmt.Sprint(ev.Kind, ev.Record.Name)); ev.Kind == lease.EventDelete {
			break
		}
	}
	require.Equal(t, fmt.Sprint([]string{fmt.Sprint(lease.EventBad, "f/1"), fmt.Sprint(lease.EventPut, "f/2"), fmt.Sprint(lease.EventBad, "f/3"),
		fmt.Sprint(lease.EventBad, "f/4"), fmt.Sprint(lease.EventDelete, "f/4")}), fmt.Sprint(watched))
	outs, err := s.Acquire(ctx, sess, []lease.Claim{{Name: "f/1", Nonce: 1}, {Name: "f/5", Nonce: 2}})
	require.NoError(t, err)
	require.ErrorIs(t, outs[0].Err, lease.ErrBadRecord)
	require.ErrorContains(t, outs[0].Err, prefix+"f/1")
	require.True(t, outs[1].OK)
	kv, err := client.Get(ctx, prefix+"f/1")
	require.NoError(t, err)
	require.Equal(t, "somebody's", string(kv.Kvs[0].Value))
}
