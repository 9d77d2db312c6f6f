//go:build unix

package outside_test

import (
	"errors"
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

	"github.com/holdfast-go/holdfast/internal/outside"
)

// encode calls a codec for a while, from several goroutines of one processor, and says how often
// and how many calls were given up.
func encode() {
	runtime.GOMAXPROCS(1)
	var codecs outside.Codecs
	var called, refused atomic.Int64
	var all sync.WaitGroup
	until := time.Now().Add(6 * time.Second)
	for range 8 {
		all.Go(func() {
			for time.Now().Before(until) {
				called.Add(1)
				if _, err := outside.Code(&codecs, "type", errors.New("refused"), func() (int, error) { return 1, nil }); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("of %d calls %d were given up\n", called.Load(), refused.Load())
}

// A process that is stopped for a while takes no codec for one that hangs.
func TestStopsOfTheProcessGiveUpNoCodec(t *testing.T) {
	if os.Getenv("HOLDFAST_ENCODE") != "" {
		encode()
		return
	}
	t.Parallel() // it waits, mostly
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HOLDFAST_ENCODE=1")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	for range 4 {
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(1100 * time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	}
	require.NoError(t, cmd.Wait(), "%s", &out)
	var called, refused int
	_, err := fmt.Sscanf(out.String(), "of %d calls %d were given up", &called, &refused)
	require.NoError(t, err, "%s", &out)
	require.Greater(t, called, 1000)
	require.Zero(t, refused, "%s", &out)
}
