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
	out, child := stopped(t, func() { burst(t) }, 12, 150*time.Millisecond)
	if child {
		return
	}
	var published, told int
	_, err := fmt.Sscanf(out, "of %d events %d were told", &published, &told)
	require.NoError(t, err, "%s", out)
	require.Greater(t, published, 1000)
	require.Equal(t, published, told, "%s", out)
}

// stopped has a process of its own run the same test, where it calls f and returns child; it stops
// that so many times for so long, and returns what it printed.
func stopped(t *testing.T, f func(), times int, still time.Duration) (out string, child bool) {
	if os.Getenv("HOLDFAST_STOPPED") != "" {
		f()
		return "", true
	}
	t.Parallel() // it waits, mostly
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HOLDFAST_STOPPED=1")
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	for range times {
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(still)
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	}
	require.NoError(t, cmd.Wait(), "%s", &printed)
	return printed.String(), false
}
