//go:build unix

package open_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/lease"
)

// holds opens a URL and holds a lease in that store for a moment.
func holds(t *testing.T, url, name string) {
	t.Helper()
	store, closeStore, err := open.Open(t.Context(), url)
	require.NoError(t, err)
	k, err := lease.NewKeeper(store, lease.Config{ID: "n"})
	require.NoError(t, err)
	l, err := k.Lease(name)
	require.NoError(t, err)
	won, err := l.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, k.Close(t.Context()))
	require.NoError(t, closeStore())
}

func TestEtcdWithAUserAndAPrefix(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.WithAuth())
	require.NoError(t, c.AddUser(t.Context(), "worker", "p@ss:w", etcdtest.Permission{Prefix: "mine/", Access: etcdtest.ReadWrite}))
	holds(t, "etcd://worker:p%40ss:w@"+hosts(c)+"/mine/", "job")
	holds(t, "etcd://worker:p%40ss:w@"+hosts(c)+"/mine/more/", "job")
}

func hosts(c *etcdtest.Cluster) string { return strings.Join(c.Endpoints(), ",") }

func TestEtcdWithCertificates(t *testing.T) {
	dir := authority.New(t).Issue(t, "127.0.0.1")
	c := etcdtest.Start(t, etcdtest.WithTLS(dir))
	holds(t, "etcds://"+hosts(c)+"?ca="+dir+"/ca.pem&cert="+dir+"/cert.pem&key="+dir+"/key.pem", "job")
}
