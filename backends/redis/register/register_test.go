//go:build unix

package register_test

import (
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	_ "github.com/holdfast-go/holdfast/backends/redis/register"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	one, cluster, sentinels := redistest.Start(t), redistest.StartCluster(t), redistest.StartSentinels(t)
	nodes := cluster.Nodes[0].Addr() + "," + cluster.Nodes[2].Addr()
	var known []string
	sentinels.Client(t, func(o *goredis.UniversalOptions) { known = o.Addrs })
	_, err := one.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">a/b:c@,d", "~*", "+@all")
	require.NoError(t, err)
	for _, url := range []string{
		"redis://" + one.Addr(),
		"redis://" + one.Addr() + "/3?prefix={app}:a&read_timeout=1s&pool_size=4",
		"redis://app:a%2Fb%3Ac%40%2Cd@" + one.Addr() + "/",
		"redis://" + nodes + "?cluster=1",
		"redis://" + cluster.Nodes[1].Addr() + "/?cluster=1&prefix={b}",
		"redis://" + strings.Join(known, ",") + "/2?master=" + redistest.PrimaryName,
	} {
		s, closeStore, err := open.Open(t.Context(), url)
		require.NoError(t, err, url)
		k, err := lease.NewKeeper(s, lease.Config{ID: "n"})
		require.NoError(t, err)
		l, err := k.Lease("job")
		require.NoError(t, err)
		won, err := l.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, won, url)
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, k.Close(t.Context()))
		require.NoError(t, closeStore())
	}
	stands, err := one.Do(t.Context(), "EVAL", "redis.call('SELECT', 3) return redis.call('EXISTS', '{app}:a:rev')", 0)
	require.NoError(t, err)
	require.Equal(t, int64(1), stands)
	_, _, err = open.Open(t.Context(), "redis://app:wrong@"+one.Addr())
	require.ErrorIs(t, err, store.ErrDenied)
}

func TestBadURLs(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for url, says := range map[string]string{
		"redis:":                                    "no URL of Redis",
		"redis:///0":                                "no URL of Redis",
		"redis:host":                                "no URL of Redis",
		"redis://u:s3cret@host:x":                   "no URL of Redis",
		"redis://u:s3cret#@host":                    "no URL of Redis",
		"redis://u:s3cret/x@host":                   "no URL of Redis",
		"redis://u:s3cret?x@host":                   "no URL of Redis",
		"redis://u:x,s3cret@host":                   "no URL of Redis",
		"redis://u:s3cret%zz@host":                  "no URL of Redis",
		"redis://u:s3cret@host/s3cret":              "no URL of Redis",
		"redis://u:s3cret@host?s3cret=1":            "no URL of Redis",
		"redis://u:s3cret@host?pool_size=s3cret":    "no URL of Redis",
		"redis://a,b":                               "several hosts need",
		"redis://a,b/1?cluster=1":                   "a cluster has no databases",
		"redis://a?cluster=2":                       "setting cluster: must be 1",
		"redis://a?cluster=1&master=m":              "and without master",
		"redis://a?wait=1":                          "settings wait and wait_timeout",
		"redis://a?wait=x&wait_timeout=1s":          "settings wait and wait_timeout",
		"redis://a?wait=0&wait_timeout=1s":          "0 replicas, must be 1 to 16",
		"rediss://a?prefix=app":                     `"app", must be 3 to 128`,
		"redis://u:s3cret@a?pool_size=1":            "PoolSize 1, must be at least 2",
		"redis://a:1,b:2?cluster=1&read_timeout=-1": "ReadTimeout 0s, must be",
		"redis://a,b?master=m&read_timeout=-1&db=s": "no URL of Redis",
	} {
		s, _, err := open.Open(t.Context(), url)
		require.ErrorIs(t, err, store.ErrInvalid, url)
		require.ErrorContains(t, err, says, url)
		require.False(t, strings.Contains(err.Error(), secret), "%v", err)
		require.Nil(t, s, url)
	}
}
