//go:build unix

package etcdtest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/authority"
)

func TestAuthGivesUsersWhatTheyWereGranted(t *testing.T) {
	t.Parallel()
	c := Start(t)
	stranger := c.Client(t)
	require.NoError(t, c.enableAuth(t.Context()))
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
	all := must(r.Get(t.Context(), "", clientv3.WithFromKey()))(t)
	require.Equal(t, int64(2), all.Count)
	_, err = r.Put(t.Context(), "a", "v")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	_, err = c.NewClient(AsUser("u", "wrong"))
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	// What this package does itself goes on.
	require.NoError(t, c.Members()[0].Restart(t.Context()))
	_, err = c.Leader(t.Context())
	require.NoError(t, err)
}

func TestTLSAsksClientsForCertificates(t *testing.T) {
	t.Parallel()
	c := Start(t, WithTLS(authority.New(t).Issue(t, "127.0.0.1")), WithAuth())
	put(t, c, "k", "v")
	for name, change := range map[string]func(*clientv3.Config){
		"plain":          func(cfg *clientv3.Config) { cfg.TLS = nil },
		"no certificate": func(cfg *clientv3.Config) { cfg.TLS.Certificates = nil },
		"unknown server": func(cfg *clientv3.Config) { cfg.TLS.RootCAs = nil },
		"foreign authority": func(cfg *clientv3.Config) {
			foreign := must(clientTLS(authority.New(t).Issue(t, "127.0.0.1")))(t)
			cfg.TLS.Certificates = foreign.Certificates
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
	require.NoError(t, c.AddUser(t.Context(), "node", "pw", Permission{"k", Read}))
	_, err = certified.Get(within(t, patience), "k")
	require.NoError(t, err) // the certificate says who it is
	m := c.Members()[0]
	require.NoError(t, m.Restart(t.Context()))
	put(t, c, "k", "again")
	got := must(m.Metrics(t.Context()))(t)
	require.Equal(t, 1.0, got["etcd_server_is_leader"])
}
