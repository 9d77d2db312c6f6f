//go:build unix

package etcd_test

import (
	"context"
	"flag"
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
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func TestMain(m *testing.M) {
	// Most of these tests wait most of the time.
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "12"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(withShared{m})
}

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

// three is taken by tests on a cluster of three servers: several such clusters at a
// time are more than two processors can keep in step, and leaders change by
// themselves.
var three sync.RWMutex

// alone makes t wait until no other test runs such a cluster.
func alone(t *testing.T) {
	three.Lock()
	t.Cleanup(three.Unlock)
}

// unsteady makes t wait likewise, but for others to which it makes no difference that
// leaders change.
func unsteady(t *testing.T) {
	three.RLock()
	t.Cleanup(three.RUnlock)
}

// shared is one server for all tests that do it no harm, each with a prefix of
// its own.
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
		c := must(etcdtest.Run(context.Background(), etcdtest.Options{}))(t)
		shared.c = c
	}
	return shared.c
}

// prefixes gives every case its own fresh, empty store in one etcd.
var prefixes atomic.Int64

func fresh() string { return fmt.Sprintf("case-%d/", prefixes.Add(1)) }

func newStore(tb storetest.TB, client *clientv3.Client, prefix string, opts ...etcd.Option) *etcd.Store {
	tb.Helper()
	s, err := etcd.New(client, append(opts, etcd.WithPrefix(prefix))...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// eventually waits until cond holds.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// lasting is a TTL long enough to need no renewal.
const lasting = 10 * time.Minute

// session opens one for direct use of a store, with no renewals.
func session(t *testing.T, s store.Store, owner string) store.Session {
	t.Helper()
	sess := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting,
		Owner: store.Owner{ID: owner, Incarnation: fmt.Sprintf("%s-%d", owner, ids.Add(1))}}
	g := must(s.OpenSession(t.Context(), sess))(t)
	require.NoError(t, g.Err)
	sess.TTL = g.TTL
	return sess
}

// ids of sessions, incarnations and nonces: unlike any that a Keeper draws.
var ids atomic.Int64

// win acquires one name, which must be free.
func win(t *testing.T, s store.Store, sess store.Session, name string) store.Record {
	t.Helper()
	outs, err := s.Acquire(t.Context(), sess, []store.Claim{{Name: name, Nonce: uint64(ids.Add(1))}})
	require.NoError(t, err)
	require.True(t, outs[0].OK, "%+v", outs[0])
	return outs[0].Record
}

// compact drops all history before the present revision.
func compact(t *testing.T, client *clientv3.Client) {
	t.Helper()
	got := must(client.Get(t.Context(), "\x00"))(t)
	must(client.Compact(t.Context(), got.Header.Revision, clientv3.WithCompactPhysical()))(t)
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
