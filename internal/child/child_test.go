//go:build unix

package child

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
