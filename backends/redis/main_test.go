//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sock := filepath.Join(dir, "s")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", sock, "--save", "", "--daemonize", "no", "--dir", dir)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 500 {
		if _, err := os.Stat(sock); err == nil {
			return sock
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no server")
	return ""
}

var prefixes atomic.Int64

func TestConformance(t *testing.T) {
	sock := serve(t)
	client := goredis.NewClient(&goredis.Options{Network: "unix", Addr: sock, PoolSize: 100})
	t.Cleanup(func() { client.Close() })
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		prefix := fmt.Sprintf("case%d:{t}", prefixes.Add(1))
		return func() store.Store {
			s, err := redis.New(context.Background(), client, redis.WithPrefix(prefix))
			if err != nil {
				tb.Fatalf("%v", err)
			}
			tb.Cleanup(func() { _ = s.Close() })
			return s
		}
	}, storetest.TTL(time.Second))
}
