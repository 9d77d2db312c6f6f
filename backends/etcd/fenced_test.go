//go:build unix

package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
)

type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

// TestGuardByNobody: a server applies what an ownership stands behind, and nothing
// else, also while the name is free.
func TestGuardByNobody(t *testing.T) {
	t.Parallel()
	client, prefix := server(t).Client(t), fresh()
	s := newStore(t, client, prefix)
	write := func(o lease.Ownership) bool {
		resp, err := client.Txn(t.Context()).If(s.Guard(o)).Then(clientv3.OpPut("data-of-"+prefix, "17")).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	nobody := func() {
		t.Helper()
		for _, o := range []lease.Ownership{nil, owned{"job", 0}, owned{"", 0}, owned{"other", 0}, owned{"job", 1 << 63}, owned{"job", 1}} {
			require.False(t, write(o), "%v was let in", o)
		}
	}
	nobody()
	a := session(t, s, "a")
	r := win(t, s, a, "job")
	nobody()
	require.True(t, write(owned{"job", r.Token}))
	require.NoError(t, s.CloseSession(t.Context(), a))
	require.False(t, write(owned{"job", r.Token}))
	nobody()
}

// TestGRPCProxy: a session is not opened through etcd's grpc-proxy, and one that was
// opened past it is not renewed through it.
func TestGRPCProxy(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t)
	endpoint, err := c.GRPCProxy(t.Context())
	require.NoError(t, err)
	proxied := c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{endpoint} })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err = proxied.Get(ctx, "a")
	require.NoError(t, err, "it works")

	prefix := fresh()
	through := newStore(t, proxied, prefix)
	_, err = through.OpenSession(ctx, lease.Session{ID: 12, TTL: 2 * time.Second, Owner: lease.Owner{ID: "a", Incarnation: "a"}})
	require.ErrorIs(t, err, etcd.ErrProxied)
	require.ErrorContains(t, err, endpoint)
	sess := session(t, newStore(t, c.Client(t), prefix), "a")
	grants, err := through.Renew(ctx, []lease.Session{sess})
	require.NoError(t, err)
	require.ErrorIs(t, grants[0].Err, etcd.ErrProxied)
	require.NotErrorIs(t, grants[0].Err, lease.ErrSessionGone)
	require.Zero(t, grants[0].TTL)
}
