//go:build unix

package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// holdEnv makes the test binary start a child, print its pid and wait to be killed: what a process does
// that never comes to its clean-up.
const holdEnv = "CHILD_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdEnv) != "" {
		p, err := Start(exec.Command("sleep", "60"))
		fmt.Println(p.Pid(), err)
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestAChildIsStoppedResumedAndKilled(t *testing.T) {
	p, err := Start(exec.Command("sleep", "60"))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Kill()) }()
	require.False(t, p.Exited())
	for _, s := range []struct {
		signal syscall.Signal
		halted bool
	}{{syscall.SIGSTOP, true}, {syscall.SIGCONT, false}, {syscall.SIGSTOP, true}} {
		require.NoError(t, p.Signal(s.signal))
		require.Eventually(t, func() bool {
			is, err := Halted(p.Pid())
			return err == nil && is == s.halted
		}, 10*time.Second, time.Millisecond, s.signal)
	}
	require.NoError(t, p.Kill(), "a stopped child")
	require.True(t, p.Exited())
	require.ErrorContains(t, p.Err(), "killed")
	require.NoError(t, p.Kill(), "again")
	require.ErrorContains(t, p.Signal(syscall.SIGCONT), "has ended")
}

func TestAChildThatEndsByItselfSaysHow(t *testing.T) {
	p, err := Start(exec.Command("sh", "-c", "exit 3"))
	require.NoError(t, err)
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("still there")
	}
	require.True(t, p.Exited())
	require.ErrorContains(t, p.Err(), "exit status 3")
	_, err = Start(exec.Command("/nonexistent/program"))
	require.Error(t, err)
}

func TestAChildDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("as documented")
	}
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), holdEnv+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var pid int
	_, err = fmt.Fscan(out, &pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool { // gone, or a zombie until the process that adopted it notices
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(err, os.ErrNotExist) || bytes.Contains(stat, []byte(") Z "))
	}, 10*time.Second, time.Millisecond)
}
