//go:build unix

package etcdstore_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/etcdstore"
	"github.com/holdfast-go/holdfast/sharding/remembertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withShared{m}) }

// withShared runs the tests and ends the server they share.
type withShared struct{ m *testing.M }

func (w withShared) Run() int {
	code := w.m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.c != nil {
		if err := shared.c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// shared is one server for all tests, each with prefixes of its own.
var shared struct {
	sync.Mutex
	c *etcdtest.Cluster
}

func server(t *testing.T) *etcdtest.Cluster {
	t.Helper()
	if os.Getenv("HOLDFAST_SKIP_ETCD") == "1" {
		return etcdtest.Start(t) // skips
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.c == nil {
		c, err := etcdtest.Run(context.Background(), etcdtest.Options{})
		require.NoError(t, err)
		shared.c = c
	}
	return shared.c
}

var prefixes atomic.Int64

// place is a fresh pair of prefixes on one server.
type place struct {
	t        *testing.T
	client   *clientv3.Client
	leases   *etcd.Store
	entities string // prefix
	store    *etcdstore.Store
	handles  map[string]*lease.Handle
	keeper   *lease.Keeper
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return newPlaceOn(t, server(t).Client(t))
}

func newPlaceOn(t *testing.T, client *clientv3.Client) *place {
	t.Helper()
	p := &place{t: t, client: client, handles: map[string]*lease.Handle{}}
	n := prefixes.Add(1)
	p.entities = fmt.Sprintf("leases-%d-entities/", n)
	var err error
	p.leases, err = etcd.New(p.client, etcd.WithPrefix(fmt.Sprintf("leases-%d/", n)))
	require.NoError(t, err)
	p.store = p.over(p.client)
	p.keeper, err = lease.NewKeeper(p.leases, lease.Config{ID: "node-1"})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for _, h := range p.handles {
			require.NoError(t, h.Release(ctx))
		}
		require.NoError(t, p.keeper.Close(ctx))
	})
	return p
}

// over returns a store of this place over another client.
func (p *place) over(client *clientv3.Client) *etcdstore.Store {
	p.t.Helper()
	s, err := etcdstore.New(client, p.leases)
	require.NoError(p.t, err)
	return s
}

// release gives name up, if it is held.
func (p *place) release(name string) {
	p.t.Helper()
	if h := p.handles[name]; h != nil {
		require.NoError(p.t, h.Release(p.t.Context()))
	}
}

// own releases and acquires the lease of name.
func (p *place) own(name string) lease.Ownership {
	p.t.Helper()
	p.release(name)
	h := p.handles[name]
	if h == nil {
		var err error
		h, err = p.keeper.Lease(name)
		require.NoError(p.t, err)
		p.handles[name] = h
	}
	ok, err := h.Acquire(p.t.Context())
	require.NoError(p.t, err)
	require.True(p.t, ok)
	term, ok := h.Term()
	require.True(p.t, ok)
	return term
}

// keys are those of the place's entities, without the prefix.
func (p *place) keys() (keys []string) {
	p.t.Helper()
	resp, err := p.client.Get(p.t.Context(), p.entities, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(p.t, err)
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key[len(p.entities):]))
	}
	return keys
}

func TestConformance(t *testing.T) {
	remembertest.Run(t, func(t *testing.T) (sharding.EntityStore, func(string) lease.Ownership) {
		p := newPlace(t)
		return p.store, p.own
	})
}

// TestReleasedLease: it takes no successor to be stale.
func TestReleasedLease(t *testing.T) {
	p := newPlace(t)
	o := p.own("shard/g/t/1")
	require.NoError(t, p.store.Update(t.Context(), o, []string{"a/b"}, nil))
	require.Equal(t, []string{"shard/g/t/1/", "shard/g/t/1/a%2Fb"}, p.keys())
	p.release("shard/g/t/1")

	err := p.store.Update(t.Context(), o, []string{"c"}, nil)
	require.ErrorIs(t, err, sharding.ErrStaleOwner)
	require.EqualError(t, err, fmt.Sprintf("etcd entities of shard/g/t/1: update: after 0 of 1 changes: "+
		"the lease has not token %d: not the owner of the shard any more", o.Token()))
	_, err = p.store.Load(t.Context(), o)
	require.ErrorIs(t, err, sharding.ErrStaleOwner)
	require.Equal(t, []string{"shard/g/t/1/", "shard/g/t/1/a%2Fb"}, p.keys(), "what is remembered outlives the lease")
}

// TestBatches: 99 changes are applied as a whole, in one revision.
func TestBatches(t *testing.T) {
	p := newPlace(t)
	o := p.own("shard/g/t/1")
	revisions := func(n int) int {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		require.NoError(t, p.store.Update(t.Context(), o, nil, nil)) // the mark is known then
		before, err := p.client.Get(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, p.store.Update(t.Context(), o, ids[:n/2], ids[n/2:]))
		after, err := p.client.Get(t.Context(), "x")
		require.NoError(t, err)
		return int(after.Header.Revision - before.Header.Revision)
	}
	require.Equal(t, 1, revisions(1))
	require.Equal(t, 1, revisions(99))
	require.Equal(t, 2, revisions(100))
	require.Equal(t, 4, revisions(3*99+1))
}

// TestForeignKey: what this store did not write is neither an id nor passed over.
func TestForeignKey(t *testing.T) {
	p := newPlace(t)
	o := p.own("shard/g/t/1")
	for _, foreign := range []string{"%", "%FF"} {
		_, err := p.client.Put(t.Context(), p.entities+"shard/g/t/1/"+foreign, "")
		require.NoError(t, err)
		_, err = p.store.Load(t.Context(), o)
		require.ErrorIs(t, err, lease.ErrBadRecord)
		require.ErrorContains(t, err, fmt.Sprintf("key %q", p.entities+"shard/g/t/1/"+foreign))
		_, err = p.client.Delete(t.Context(), p.entities+"shard/g/t/1/"+foreign)
		require.NoError(t, err)
	}
	_, err := p.store.Load(t.Context(), o)
	require.NoError(t, err)
}

type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

func TestInvalid(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer client.Close()
	leases, err := etcd.New(client)
	require.NoError(t, err)
	noSlash, err := etcd.New(client, etcd.WithPrefix("hold"))
	require.NoError(t, err)

	for want, f := range map[string]func() (*etcdstore.Store, error){
		"etcdstore.New: client: invalid: nil":             func() (*etcdstore.Store, error) { return etcdstore.New(nil, leases) },
		"etcdstore.New: store: invalid: nil":              func() (*etcdstore.Store, error) { return etcdstore.New(client, nil) },
		"etcdstore.New: client: invalid: nil or the zero": func() (*etcdstore.Store, error) { return etcdstore.New(&clientv3.Client{}, leases) },
		"etcdstore.New: store: invalid: nil or the zero":  func() (*etcdstore.Store, error) { return etcdstore.New(client, &etcd.Store{}) },
		`etcd.WithPrefix: "hold", must end with a slash`:  func() (*etcdstore.Store, error) { return etcdstore.New(client, noSlash) },
	} {
		_, err := f()
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, want)
	}

	store, err := etcdstore.New(client, leases)
	require.NoError(t, err)
	_, err = store.Load(t.Context(), owned{"shard/g/t/1", 0})
	require.ErrorIs(t, err, lease.ErrInvalid)
	err = store.Update(t.Context(), owned{"shard/g/t/1", 0}, []string{"a"}, nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.EqualError(t, err, "etcd entities of shard/g/t/1: update: token: invalid: 0, which fences nothing")

	inputtest.Contexts(t, store)
	inputtest.Zeros(t, nil, new(etcdstore.Store))

	require.NoError(t, client.Close())
	require.ErrorContains(t, store.Update(t.Context(), owned{"shard/g/t/1", 1}, []string{"a"}, nil), "the client was closed")
}
