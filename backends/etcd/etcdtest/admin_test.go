//go:build unix

package etcdtest

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestCompactDropsHistory(t *testing.T) {
	c := Start(t)
	client := c.Client(t)
	first, err := client.Put(t.Context(), "k", "1")
	require.NoError(t, err)
	second, err := client.Put(t.Context(), "k", "2")
	require.NoError(t, err)
	rev, err := c.Compact(t.Context())
	require.NoError(t, err)
	require.Equal(t, second.Header.Revision, rev)
	_, err = client.Get(t.Context(), "k", clientv3.WithRev(first.Header.Revision))
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	w := <-client.Watch(t.Context(), "k", clientv3.WithRev(first.Header.Revision))
	require.Equal(t, rev, w.CompactRevision)
}

func TestRevokeTakesLeaseAndKeys(t *testing.T) {
	c := Start(t)
	client := c.Client(t)
	l, err := client.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "k", "v", clientv3.WithLease(l.ID))
	require.NoError(t, err)
	require.NoError(t, c.Revoke(t.Context(), l.ID))
	_, err = client.KeepAliveOnce(t.Context(), l.ID)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
	got, err := client.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Zero(t, got.Count)
	require.ErrorIs(t, c.Revoke(t.Context(), l.ID), rpctypes.ErrLeaseNotFound)
}

func TestFillQuotaRefusesWritesUntilFreed(t *testing.T) {
	require.ErrorContains(t, (&Cluster{}).FillQuota(t.Context()), "Quota")
	c := Start(t, WithQuota(4<<20))
	client := c.Client(t)
	l, err := client.Grant(t.Context(), 60)
	require.NoError(t, err)
	put(t, c, "mine", "v")

	require.NoError(t, c.FillQuota(t.Context()))
	_, err = client.Put(t.Context(), "k", "v")
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = client.Grant(t.Context(), 60)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = client.KeepAliveOnce(t.Context(), l.ID)
	require.NoError(t, err)
	_, err = client.Delete(t.Context(), "mine")
	require.NoError(t, err)

	require.NoError(t, c.FreeQuota(t.Context()))
	_, err = client.Put(t.Context(), "k", "v")
	require.NoError(t, err)
	left, err := client.Get(t.Context(), FillPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, left.Count)
	alarm, err := c.Members()[0].hasAlarm(t.Context())
	require.NoError(t, err)
	require.False(t, alarm)
}

func TestAuthGivesUsersWhatTheyWereGranted(t *testing.T) {
	c := Start(t)
	stranger := c.Client(t)
	require.NoError(t, c.EnableAuth(t.Context()))
	require.NoError(t, c.EnableAuth(t.Context()))
	_, err := stranger.Get(t.Context(), "k")
	require.ErrorIs(t, err, rpctypes.ErrUserEmpty)

	put(t, c, "ours/k", "v") // as root
	require.NoError(t, c.AddUser(t.Context(), "u", "pw",
		Permission{"ours/", ReadWrite}, Permission{"theirs/", Read}))
	u := c.Client(t, AsUser("u", "pw"))
	_, err = u.Put(t.Context(), "ours/x", "v")
	require.NoError(t, err)
	_, err = u.Get(t.Context(), "theirs/x")
	require.NoError(t, err)
	_, err = u.Put(t.Context(), "theirs/x", "v")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = u.Get(t.Context(), "else")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	require.NoError(t, c.AddUser(t.Context(), "reader", "pw", Permission{"", Read}))
	r := c.Client(t, AsUser("reader", "pw"))
	all, err := r.Get(t.Context(), "", clientv3.WithFromKey())
	require.NoError(t, err)
	require.Equal(t, int64(2), all.Count)
	_, err = r.Put(t.Context(), "a", "v")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	_, err = c.NewClient(AsUser("u", "wrong"))
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	// What this package does itself goes on.
	require.NoError(t, c.Members()[0].Restart(t.Context()))
	_, err = c.Compact(t.Context())
	require.NoError(t, err)
}

func TestTLSAsksClientsForCertificates(t *testing.T) {
	c := Start(t, WithTLS(), WithAuth())
	put(t, c, "k", "v")
	for name, change := range map[string]func(*clientv3.Config){
		"plain":          func(cfg *clientv3.Config) { cfg.TLS = nil },
		"no certificate": func(cfg *clientv3.Config) { cfg.TLS.Certificates = nil },
		"unknown server": func(cfg *clientv3.Config) { cfg.TLS.RootCAs = nil },
		"foreign authority": func(cfg *clientv3.Config) {
			ca, err := newAuthority()
			require.NoError(t, err)
			cert, err := ca.issue("etcdtest", false)
			require.NoError(t, err)
			cfg.TLS.Certificates = []tls.Certificate{cert}
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := c.NewClient(change, func(cfg *clientv3.Config) {
				cfg.Username, cfg.Password = "", "" // so that nothing is asked of it yet
			})
			require.NoError(t, err)
			defer client.Close()
			_, err = client.Get(within(t, 5*silence), "k")
			require.Error(t, err)
			var answer rpctypes.EtcdError
			require.False(t, errors.As(err, &answer), "it got through: %v", err)
		})
	}
	certified := c.Client(t, AsUser("", ""))
	_, err := certified.Get(within(t, patience), "k")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied) // it got through, as nobody we know
	require.NoError(t, c.AddUser(t.Context(), CertUser, "pw", Permission{"k", Read}))
	_, err = certified.Get(within(t, patience), "k")
	require.NoError(t, err) // the certificate says who it is
	m := c.Members()[0]
	require.NoError(t, m.Restart(t.Context()))
	put(t, c, "k", "again")
	got, err := m.Metrics(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1.0, got["etcd_server_is_leader"])
}
