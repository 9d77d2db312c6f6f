//go:build linux

package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// The clock of leases is the time since the boot, with suspends, as the kernel tells it to
// everybody: no step of the machine's wall clock moves it.
func TestTheClockIsTheTimeSinceTheBoot(t *testing.T) {
	c := must(machineClock())(t)
	before := c.now()
	b := must(os.ReadFile("/proc/uptime"))(t)
	after := c.now()
	var up float64
	must(fmt.Sscan(string(b), &up))(t)
	tick := 10 * time.Millisecond // of /proc/uptime, which rounds down
	is := time.Duration(up * float64(time.Second))
	require.GreaterOrEqual(t, is, before-2*tick)
	require.LessOrEqual(t, is, after+2*tick)
}

func init() { roles["shifted"] = shifted }

// shifted opens a file, and guards a transaction in it, and says what came of it.
func shifted() {
	s, err := New(context.Background(), os.Getenv("FILE"))
	fmt.Println("new:", errors.Is(err, store.ErrUnsupported), err)
	if err == nil {
		_ = s.Close()
	}
	err = Guard(context.Background(), nil, nil)
	fmt.Println("guard:", errors.Is(err, store.ErrUnsupported), err)
}

// A process whose clock is shifted is refused: here in a time namespace that the kernel has made.
func TestAProcessInATimeNamespaceIsRefused(t *testing.T) {
	for shift, refused := range map[string]bool{"1000": true, "0": false} {
		args := []string{"--time", "--boottime", shift}
		if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
			t.Skipf("no time namespace can be made here: %v: %s", err, out)
		}
		cmd := exec.Command("unshare", append(args, os.Args[0])...)
		cmd.Env = append(os.Environ(), roleEnv+"=shifted", "FILE="+file(t))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		lines := 0
		for l := bufio.NewScanner(strings.NewReader(string(out))); l.Scan(); lines++ {
			require.Equal(t, refused, strings.Contains(l.Text(), ": true "), l.Text())
		}
		require.Equal(t, 2, lines, "%s", out)
	}
}
