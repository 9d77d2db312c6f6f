//go:build !race

package examples

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// program builds one of the examples.
func program(t *testing.T, name string) string {
	exe := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", exe, "./"+name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return exe
}

// The programs themselves, which find out whether what they show is true.
func TestTheVerdictIsGood(t *testing.T) {
	tier.NightlyOnly(t, ".ci/run runs singleton and sharding, which check themselves in the same way")
	for _, name := range []string{"leader", "cron"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			out, err := exec.Command(program(t, name)).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "verdict: GOOD", "%s", out)
		})
	}
}

// One node of each on etcd, which serves until it is told to end.
func TestOneNodeOnEtcd(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	url := "etcd://" + strings.TrimPrefix(etcdtest.Start(t).Endpoints()[0], "http://")
	programs := map[string]string{"quickstart": "{n1 "}
	if tier.Nightly() {
		programs = map[string]string{"singleton": "hosts, under token", "sharding": "accounts here: 4", "leader": "leader, under token", "cron": "job of second", "quickstart": "{n1 "}
	}
	for name, serves := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			var out output
			cmd := exec.Command(program(t, name), "-store", url)
			cmd.Env = append(os.Environ(), "STORE="+url, "NODE=n1", "LISTEN=127.0.0.1:0", "HTTP=127.0.0.1:0") // for quickstart
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool { return strings.Contains(out.String(), serves) }, 30*time.Second, 50*time.Millisecond, "%s", &out)
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
			require.NoError(t, cmd.Wait(), "%s", &out)
		})
	}
}

// output can be read while a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
