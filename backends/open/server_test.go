//go:build unix

package open_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/open"
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
	c := etcdtest.Start(t, etcdtest.WithTLS())
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	mine := c.ClientConfig().TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(mine.PrivateKey)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", strings.Split(hosts(c), ",")[0], c.ClientConfig().TLS)
	require.NoError(t, err)
	chain := conn.ConnectionState().VerifiedChains[0]
	require.NoError(t, conn.Close())
	ca := write("ca.pem", "CERTIFICATE", chain[len(chain)-1].Raw)
	holds(t, "etcds://"+hosts(c)+"?ca="+ca+"&cert="+write("cert.pem", "CERTIFICATE", mine.Certificate[0])+"&key="+write("key.pem", "PRIVATE KEY", key), "job")
}
