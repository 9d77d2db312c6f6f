//go:build unix

package etcd_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/store"
)

// TestErrorsWithoutMajority: the one member that is left says that there is no
// leader, at once; without any, the endpoints are named.
func TestErrorsWithoutMajority(t *testing.T) {
	t.Parallel()
	alone(t)
	c := etcdtest.Start(t, etcdtest.WithMembers(3))
	client := c.Client(t)
	s := newStore(t, client, fresh())
	sess := session(t, s, "a")
	for _, m := range c.Members()[:2] {
		require.NoError(t, m.Kill())
	}
	ask := func() (err error, answered bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Acquire(ctx, sess, []store.Claim{{Name: "a", Nonce: 1}})
		return err, ctx.Err() == nil
	}
	var err error
	eventually(t, soon, "the member noticed", func() bool {
		var answered bool
		err, answered = ask()
		return errors.Is(err, etcd.ErrNoLeader) && answered
	})
	require.ErrorContains(t, err, "etcd acquire")
	grants, err := s.Renew(t.Context(), []store.Session{sess})
	if err == nil {
		err = grants[0].Err
	}
	require.ErrorIs(t, err, etcd.ErrNoLeader)
	require.NoError(t, c.Members()[2].Kill())
	eventually(t, soon, "no endpoint", func() bool { err, _ = ask(); return errors.Is(err, etcd.ErrUnreachable) })
	for _, endpoint := range c.Endpoints() {
		require.ErrorContains(t, err, endpoint)
	}
}

// TestSilentEndpoints: endpoints that do not answer do not keep a store from
// opening sessions at another.
func TestSilentEndpoints(t *testing.T) {
	t.Parallel()
	c := server(t)
	var endpoints []string
	for range 5 {
		route := must(c.NewRoute())(t)
		route.Cut()
		endpoints = append(endpoints, route.Endpoints()...)
	}
	endpoints = append(endpoints, c.Endpoints()...)
	s := newStore(t, c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = endpoints }), fresh())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := s.OpenSession(ctx, store.Session{ID: store.SessionID(ids.Add(1)), TTL: ttl, Owner: store.Owner{Incarnation: "x"}})
	require.NoError(t, err)
}

// TestClosedClient: a client that its owner closed gives errors, before the context ends, and no panic.
func TestClosedClient(t *testing.T) {
	t.Parallel()
	client, err := server(t).NewClient()
	require.NoError(t, err)
	s := newStore(t, client, fresh())
	stands := session(t, s, "b")
	require.NoError(t, client.Close())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	defer func() { require.NoError(t, ctx.Err()) }()
	for range 2 {
		_, err = s.Get(ctx, "a")
		require.Error(t, err)
		_, err = s.Acquire(ctx, stands, []store.Claim{{Name: "b", Nonce: 1}})
		require.Error(t, err)
		_, err = s.Renew(ctx, []store.Session{stands})
		require.Error(t, err)
		_, err = s.OpenSession(ctx, store.Session{ID: 12, TTL: ttl, Owner: stands.Owner})
		require.Error(t, err)
		for _, err = range s.Watch(ctx, store.Scope{}) {
			break
		}
		require.Error(t, err)
	}
}

// TestGRPCProxy: a session is not opened through etcd's grpc-proxy, and one that was
// opened past it is not renewed through it.
func TestGRPCProxy(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	endpoint := grpcProxy(t, c)
	proxied := c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{endpoint} })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := proxied.Get(ctx, "a")
	require.NoError(t, err, "it works")

	prefix := fresh()
	through := newStore(t, proxied, prefix)
	_, err = through.OpenSession(ctx, store.Session{ID: 12, TTL: 2 * time.Second, Owner: store.Owner{ID: "a", Incarnation: "a"}})
	require.ErrorIs(t, err, etcd.ErrProxied)
	require.ErrorContains(t, err, endpoint)
	sess := session(t, newStore(t, c.Client(t), prefix), "a")
	grants := must(through.Renew(ctx, []store.Session{sess}))(t)
	require.ErrorIs(t, grants[0].Err, etcd.ErrProxied)
	require.NotErrorIs(t, grants[0].Err, store.ErrSessionGone)
	require.Zero(t, grants[0].TTL)
}

// grpcProxy runs etcd's own grpc-proxy before a cluster and returns where it listens.
func grpcProxy(t *testing.T, c *etcdtest.Cluster) (endpoint string) {
	t.Helper()
	etcd := must(etcdtest.Binary(t.Context()))(t)
	var p *child.Process
	eventually(t, soon, "it listens", func() bool {
		if p == nil || p.Exited() { // another process may have had its port
			ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
			endpoint = ln.Addr().String()
			require.NoError(t, ln.Close())
			cmd := exec.Command(etcd, "grpc-proxy", "start", "--listen-addr="+endpoint, "--advertise-client-url="+endpoint,
				"--endpoints="+strings.Join(c.Endpoints(), ","))
			cmd.Dir = t.TempDir()
			started := must(child.Start(cmd))(t)
			t.Cleanup(func() { require.NoError(t, started.Kill()) })
			p = started
		}
		conn, err := net.Dial("tcp", endpoint)
		return err == nil && conn.Close() == nil
	})
	return endpoint
}
