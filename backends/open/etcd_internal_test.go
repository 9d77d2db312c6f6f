package open

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd"
)

func TestWhatAnEtcdURLSays(t *testing.T) {
	u, err := parseEtcd("//user:p%40ss:w@a:2379,[::1]:2380/services/a%20b/?server-name=etcd", true)
	require.NoError(t, err)
	require.Equal(t, "user", u.config.Username)
	require.Equal(t, "p@ss:w", u.config.Password)
	require.Equal(t, []string{"https://a:2379", "https://[::1]:2380"}, u.config.Endpoints)
	require.Equal(t, "services/a b/", u.prefix)
	require.Equal(t, "etcd", u.config.TLS.ServerName)

	u, err = parseEtcd("//us er:p^ss{1} é%20\"|@a:2379", false)
	require.NoError(t, err, "what another URL must escape")
	require.Equal(t, "us er", u.config.Username)
	require.Equal(t, "p^ss{1} é \"|", u.config.Password)

	u, err = parseEtcd("//a:2379", false)
	require.NoError(t, err)
	require.Equal(t, []string{"http://a:2379"}, u.config.Endpoints)
	require.Equal(t, etcd.DefaultPrefix, u.prefix)
	require.Nil(t, u.config.TLS)
}
