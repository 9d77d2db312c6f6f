package sharding_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/pername"
	"github.com/holdfast-go/holdfast/sharding"
)

// names is a backend of package pername that lists: keys with a TTL each. It has no sessions,
// can't transfer a key and does not tell of changes.
type names struct {
	mu      sync.Mutex
	counter lease.Token
	records map[string]record
}

type record struct {
	lease.Record
	until time.Time
}

func (b *names) standsLocked(name string) (record, bool) {
	r, ok := b.records[name]
	return r, ok && time.Now().Before(r.until)
}

func (b *names) Acquire(_ context.Context, s lease.Session, c lease.Claim) (lease.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, held := b.standsLocked(c.Name)
	if held && (old.Owner.Incarnation != s.Owner.Incarnation || old.Token != c.Supersedes) {
		return lease.Outcome{Record: old.Record}, nil
	}
	b.counter++
	r := lease.Record{Name: c.Name, Owner: s.Owner, Session: s.ID, Token: b.counter, Nonce: c.Nonce, TTL: s.TTL, Metadata: c.Metadata}
	b.records[c.Name] = record{r, time.Now().Add(s.TTL)}
	return lease.Outcome{OK: true, Record: r}, nil
}

func (b *names) Renew(_ context.Context, s lease.Session, h lease.Held) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.standsLocked(h.Name)
	if ok = ok && r.Held() == h; ok {
		b.records[h.Name] = record{r.Record, time.Now().Add(s.TTL)}
	}
	return ok, nil
}

func (b *names) Release(_ context.Context, h lease.Held) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.standsLocked(h.Name)
	if ok = ok && r.Held() == h; ok {
		delete(b.records, h.Name)
	}
	return ok, nil
}

func (b *names) Get(_ context.Context, name string) (lease.Record, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.standsLocked(name)
	return r.Record, ok, nil
}

func (b *names) List(_ context.Context, prefix string) iter.Seq2[lease.Record, error] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []lease.Record
	for _, name := range slices.Sorted(maps.Keys(b.records)) {
		if r, ok := b.standsLocked(name); ok && strings.HasPrefix(name, prefix) {
			found = append(found, r.Record)
		}
	}
	return func(yield func(lease.Record, error) bool) {
		for _, r := range found {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// overNames runs a test whose nodes each have a store of their own over one backend of names.
func overNames(t *testing.T, f func(c *cluster, start func(id string) *node)) {
	t.Helper()
	bubble(t, func(c *cluster) {
		b := &names{records: map[string]record{}}
		f(c, func(id string) *node {
			var err error
			c.front, err = pername.New(b)
			require.NoError(t, err)
			return c.node(id)
		})
	})
}

// Over a store that can't transfer, a shard that is to move is released, and taken by the node
// that was to have it: no other has it meanwhile. Mail comes once; its order is kept only while
// the moves are heard of in time, which a store that does not tell of changes can't promise.
func TestShardsMoveWithoutTransfers(t *testing.T) {
	overNames(t, func(c *cluster, start func(string) *node) {
		ns := []*node{start("a"), start("b")}
		for _, n := range ns {
			n.start(12)
		}
		c.settled(20*time.Second, ns...)
		d := start("d")
		var hosted atomic.Int32
		for _, n := range append(ns, d) {
			n.system.EventStream.Subscribe(func(e any) {
				if e, ok := e.(sharding.Event); ok && e.Kind == sharding.Hosted {
					hosted.Add(1)
				}
			})
		}
		f := c.traffic(20*time.Millisecond, ns[1])
		d.start(12)
		ns = append(ns, d)
		c.settled(10*time.Second, ns...)
		require.EqualValues(t, 4, hosted.Load(), "each once, by the node that joined")
		time.Sleep(ttl)
		require.EqualValues(t, 4, hosted.Load())
		c.settled(0, ns...)

		began := time.Now()
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.Less(t, time.Since(began), 5*time.Second, "its shards are moved, not left to the end")
		require.NoError(t, ns[0].group.Leave(context.Background()))
		c.settled(10*time.Second, ns[1:]...)
		f.endAnyOrder()
	})
}

// endAnyOrder is end where order is not kept.
func (f *traffic) endAnyOrder() {
	f.c.t.Helper()
	close(f.stop)
	f.wg.Wait()
	time.Sleep(15 * time.Second)
	synctest.Wait()
	f.c.log.check()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, n := range f.sent {
		sender, id, _ := strings.Cut(key, ">")
		got := f.c.log.of(sender, id)
		slices.Sort(got)
		require.Len(f.c.t, got, n, key)
		for i := range got {
			require.Equal(f.c.t, i+1, got[i], key)
		}
	}
}
