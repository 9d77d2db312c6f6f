//go:build unix

package outside_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// burst publishes for a while, from several goroutines of one processor, and says how many
// events there were and how many were told.
func burst(t *testing.T) {
	runtime.GOMAXPROCS(1)
	var published, told atomic.Int64
	w := stream(t, func(e any) { told.Add(1) })
	var all sync.WaitGroup
	until := time.Now().Add(4 * time.Second)
	for range 8 {
		all.Go(func() {
			for time.Now().Before(until) {
				published.Add(1)
				w.Publish(1)
			}
		})
	}
	all.Wait()
	for end := time.Now().Add(5 * time.Second); told.Load() < published.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("of %d events %d were told\n", published.Load(), told.Load())
}

// A process that is stopped for a while takes no subscriber for one that hangs.
func TestStopsOfTheProcessDropNothing(t *testing.T) {
	if os.Getenv("HOLDFAST_BURST") != "" {
		burst(t)
		return
	}
	t.Parallel() // it waits, mostly
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HOLDFAST_BURST=1")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	for range 12 {
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(150 * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	}
	require.NoError(t, cmd.Wait(), "%s", &out)
	var published, told int
	_, err := fmt.Sscanf(out.String(), "of %d events %d were told", &published, &told)
	require.NoError(t, err, "%s", &out)
	require.Greater(t, published, 1000)
	require.Equal(t, published, told, "%s", &out)
}
