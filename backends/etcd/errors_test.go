//go:build unix

package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
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
		_, err = s.Acquire(ctx, sess, []lease.Claim{{Name: "a", Nonce: 1}})
		return err, ctx.Err() == nil
	}
	var err error
	eventually(t, soon, "the member noticed", func() bool {
		var answered bool
		err, answered = ask()
		return errors.Is(err, etcd.ErrNoLeader) && answered
	})
	require.ErrorContains(t, err, "etcd acquire")
	grants, err := s.Renew(t.Context(), []lease.Session{sess})
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
		route, err := c.NewRoute()
		require.NoError(t, err)
		route.Cut()
		endpoints = append(endpoints, route.Endpoints()...)
	}
	endpoints = append(endpoints, c.Endpoints()...)
	s := newStore(t, c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = endpoints }), fresh())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := s.OpenSession(ctx, lease.Session{ID: lease.SessionID(ids.Add(1)), TTL: ttl, Owner: lease.Owner{Incarnation: "x"}})
	require.NoError(t, err)
}

// TestErrorsOfLeases: a session that is gone is told from everything else.
func TestErrorsOfLeases(t *testing.T) {
	t.Parallel()
	c := server(t)
	client, err := c.NewClient()
	require.NoError(t, err)
	s := newStore(t, client, fresh())
	gone, stands := session(t, s, "a"), session(t, s, "b")
	a := win(t, s, stands, "a")
	require.NoError(t, s.CloseSession(t.Context(), gone))
	require.NoError(t, s.CloseSession(t.Context(), gone), "closing twice")
	_, err = s.Acquire(t.Context(), gone, []lease.Claim{{Name: "b", Nonce: 1}})
	require.ErrorIs(t, err, lease.ErrSessionGone)
	grants, err := s.Renew(t.Context(), []lease.Session{gone, stands})
	require.NoError(t, err)
	require.ErrorIs(t, grants[0].Err, lease.ErrSessionGone)
	require.NoError(t, grants[1].Err)
	offer := lease.Offer{Name: "a", Owner: gone.Owner, Session: gone.ID, TTL: ttl, Nonce: 2}
	outs, err := s.Transfer(t.Context(), []lease.Transfer{{Held: a.Held(), To: offer}})
	require.NoError(t, err)
	require.ErrorIs(t, outs[0].Err, lease.ErrSessionGone)
	require.Equal(t, a, outs[0].Record)

	// A client that its owner closed: errors, without an end of the context, and no panic.
	require.NoError(t, client.Close())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	defer func() { require.NoError(t, ctx.Err()) }()
	for range 2 {
		_, err = s.Get(ctx, "a")
		require.Error(t, err)
		_, err = s.Acquire(ctx, stands, []lease.Claim{{Name: "b", Nonce: 1}})
		require.Error(t, err)
		_, err = s.Renew(ctx, []lease.Session{stands})
		require.Error(t, err)
		_, err = s.OpenSession(ctx, lease.Session{ID: 12, TTL: ttl, Owner: stands.Owner})
		require.Error(t, err)
		for _, err = range s.Watch(ctx, "") {
			break
		}
		require.Error(t, err)
	}
}
