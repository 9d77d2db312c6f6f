//go:build unix

package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// TestAuth: without a user, or with one that lacks a permission, the error says
// what is missing; the right user holds leases, also over a restart that makes
// the servers forget all tokens.
func TestAuth(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.WithAuth())
	ctx := t.Context()
	prefix := fresh()
	require.NoError(t, c.AddUser(ctx, "worker", "pw", etcdtest.Permission{Prefix: prefix, Access: etcdtest.ReadWrite}))
	require.NoError(t, c.AddUser(ctx, "reader", "pw", etcdtest.Permission{Prefix: prefix, Access: etcdtest.Read}))
	require.NoError(t, c.AddUser(ctx, "nobody", "pw"))

	for _, refused := range []struct {
		name string
		as   func(*clientv3.Config)
		says []string
	}{
		{"no user", etcdtest.AsUser("", ""), []string{"user and password", "clientv3.Config.Username"}},
		{"no permission", etcdtest.AsUser("nobody", "pw"), []string{"readwrite", prefix, "grant-permission"}},
		{"read only", etcdtest.AsUser("reader", "pw"), []string{"readwrite", prefix, "grant-permission"}},
	} {
		t.Run(refused.name, func(t *testing.T) {
			n := newNode(t, c.Client(t, refused.as), prefix, "n", ttl)
			won, err := n.lease(t, "job").Acquire(ctx)
			require.False(t, won)
			require.ErrorIs(t, err, store.ErrDenied)
			require.NotErrorIs(t, err, lease.ErrUnknown)
			err = refusal(t, n.store, soon)
			require.ErrorIs(t, err, etcd.ErrPermission)
			for _, text := range refused.says {
				require.ErrorContains(t, err, text)
			}
			if refused.name != "read only" {
				for _, err = range n.store.List(ctx, store.Query{}) {
					break
				}
				require.ErrorIs(t, err, etcd.ErrPermission)
				for _, err = range n.store.Watch(ctx, store.Scope{}) {
					break
				}
				require.ErrorIs(t, err, etcd.ErrPermission)
				for _, err = range n.store.Watch(ctx, store.Scope{Deletions: true}) {
					break
				}
				require.ErrorIs(t, err, etcd.ErrPermission)
			}
		})
	}

	t.Run("allowed", func(t *testing.T) {
		n := newNode(t, c.Client(t, etcdtest.AsUser("worker", "pw")), prefix, "worker", lasting)
		names := map[string]time.Duration{"job/1": 0, "job/2": 300 * time.Millisecond}
		var j journal
		stop := j.group(t, []*node{n}, names)
		began := now()
		j.held(t, began, names)
		sess := session(t, n.store, "direct")
		renew := func() error {
			grants, err := n.store.Renew(ctx, []store.Session{sess})
			if err == nil {
				err = grants[0].Err
			}
			return err
		}
		require.NoError(t, renew())
		passwords, streams := authentications(t, c)
		const renewals = 20
		for range renewals {
			require.NoError(t, renew())
		}
		// A password check takes the server as long as hundreds of requests. Only a stream
		// that is begun anew costs one, as renewals have in common, and each watch.
		eventually(t, soon, "passwords are checked for streams alone", func() bool {
			p, s := authentications(t, c)
			return p-passwords <= s-streams
		})
		_, more := authentications(t, c)
		require.Less(t, more-streams, renewals/2.0)
		require.NoError(t, c.Members()[0].Restart(ctx)) // tokens are in memory
		back := now()
		t.Logf("held %v after a restart", j.held(t, back, names))
		eventually(t, soon, "it is renewed", func() bool { return renew() == nil })
		require.Zero(t, j.lost(began), "lost for no reason")
		stop()
		j.check(t)
	})
}

// authentications returns how many passwords were checked, and how many streams were begun.
func authentications(t *testing.T, c *etcdtest.Cluster) (passwords, streams float64) {
	m := must(c.Members()[0].Metrics(t.Context()))(t)
	of := func(metric, method string) float64 {
		n := m.Sum(metric, fmt.Sprintf("grpc_method=%q", method))
		require.NotZero(t, n, "the server does not count %s", method)
		return n
	}
	return of("grpc_server_handled_total", "Authenticate"),
		of("grpc_server_started_total", "LeaseKeepAlive") + of("grpc_server_started_total", "Watch")
}

// TestTLS: the client's certificates are all it takes.
func TestTLS(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.WithTLS(authority.New(t).Issue(t, "127.0.0.1")))
	prefix := fresh()
	names := map[string]time.Duration{"job/1": 0, "job/2": 100 * time.Millisecond}
	a, b := newNode(t, c.Client(t), prefix, "a", lasting), newNode(t, c.Client(t), prefix, "b", lasting)
	var j journal
	stop := j.group(t, []*node{a, b}, names)
	began := now()
	j.held(t, began, names)
	for _, n := range []*node{a, b} {
		j.by(t, n.id, began)
		grants := must(n.store.Renew(t.Context(), []store.Session{session(t, n.store, n.id)}))(t)
		require.NoError(t, grants[0].Err)
	}
	stop()
	require.Zero(t, j.lost(began))
	j.check(t)

	plain := must(c.NewClient(func(cfg *clientv3.Config) { cfg.TLS = nil }))(t)
	defer plain.Close()
	require.ErrorIs(t, refusal(t, newStore(t, plain, prefix), time.Second), etcd.ErrUnreachable)
}

// refusal is the error of the first step towards a name that fails.
func refusal(t *testing.T, s *etcd.Store, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	sess := store.Session{ID: store.SessionID(ids.Add(1)), TTL: ttl, Owner: store.Owner{Incarnation: "refused"}}
	_, err := s.OpenSession(ctx, sess)
	if err == nil {
		_, err = s.Acquire(ctx, sess, []store.Claim{{Name: "refused", Nonce: 1}})
	}
	require.Error(t, err)
	return err
}

// TestQuota: when etcd's quota is used up, what is held stays held and can be
// given up; new acquisitions fail and say why, until there is space again.
func TestQuota(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.WithArgs("--quota-backend-bytes=4194304"))
	ctx, client := t.Context(), c.Client(t)
	alarm := func() bool {
		st := must(client.Status(ctx, c.Endpoints()[0]))(t)
		return len(st.Errors) > 0
	}
	n := newNode(t, c.Client(t), fresh(), "n", 10*time.Second) // an attempt lasts the longer, the longer a TTL is
	kept, given, late := n.lease(t, "kept"), n.lease(t, "given"), n.lease(t, "late")
	own := n.lease(t, "own", lease.WithOwnSession())
	for _, h := range []*lease.Handle{kept, given} {
		won := must(h.Acquire(ctx))(t)
		require.True(t, won)
	}
	term, _ := kept.Term()

	sess := session(t, n.store, "direct")
	fill, much, err := "fill/", strings.Repeat("x", 512<<10), error(nil)
	for i := 0; err == nil; i++ {
		_, err = client.Put(ctx, fmt.Sprint(fill, i), much)
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	eventually(t, soon, "the alarm", alarm)
	var refused sync.WaitGroup
	for _, h := range []*lease.Handle{late, own} { // in a session that stands, and in one to be opened
		refused.Go(func() {
			won, err := h.Acquire(ctx)
			assert.False(t, won)
			assert.ErrorIs(t, err, lease.ErrUnknown)
		})
	}
	refused.Wait()
	_, inSession := n.store.Acquire(ctx, sess, []store.Claim{{Name: "direct", Nonce: 1}})
	for _, err := range []error{inSession, refusal(t, n.store, soon)} {
		require.ErrorIs(t, err, etcd.ErrNoSpace)
		require.ErrorContains(t, err, "--quota-backend-bytes")
	}
	grants := must(n.store.Renew(ctx, []store.Session{sess}))(t)
	require.NoError(t, grants[0].Err, "renewals stopped")
	require.True(t, term.CheckAlive())
	require.NoError(t, given.Release(ctx))
	recs := must(n.store.Get(ctx, "given", "kept"))(t)
	require.Len(t, recs, 1)

	must(client.Delete(ctx, fill, clientv3.WithPrefix()))(t)
	compact(t, client)
	must(client.Defragment(ctx, c.Endpoints()[0]))(t)
	must(client.AlarmDisarm(ctx, &clientv3.AlarmMember{}))(t)
	eventually(t, soon, "no alarm", func() bool { return !alarm() })
	freed := now()
	for _, h := range []*lease.Handle{given, late, own} {
		eventually(t, soon, "acquired", func() bool { won, _ := h.Acquire(ctx); return won })
	}
	t.Logf("all acquired %v after there was space", now()-freed)
	require.True(t, term.CheckAlive())
}
