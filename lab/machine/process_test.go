//go:build linux

package machine

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func started(t *testing.T) *Process[report] {
	p, err := Start[report](nil, "", "child", childEnv, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	_, err = p.Await(t.Context(), 10*time.Second, "up", func(r report) bool { return r.What == "up" && r.Heap > 0 })
	require.NoError(t, err)
	return p
}

func TestAProcessTakesOrdersAndReports(t *testing.T) {
	p := started(t)
	require.NoError(t, p.Tell("hello"))
	_, err := p.Await(t.Context(), 10*time.Second, "its answer", func(r report) bool { return r.What == `"hello"` })
	require.NoError(t, err)
	require.Len(t, p.Said(), 2)
	_, err = p.Await(t.Context(), 10*time.Millisecond, "more", func(r report) bool { return r.What == "more" })
	require.ErrorIs(t, err, ErrNever)
	require.Greater(t, p.RSS(), uint64(1<<20))
}

func TestTheEndOfAProcessEndsItsWaiters(t *testing.T) {
	p := started(t)
	require.NoError(t, p.Signal(syscall.SIGSTOP)) // one that is stopped can be killed as well
	go func() { _ = p.Kill() }()
	_, err := p.Await(t.Context(), 10*time.Second, "more", func(r report) bool { return r.What == "more" })
	require.ErrorContains(t, err, "child ended by itself: signal: killed")
	require.Zero(t, p.RSS())
}

func TestBurnersUseTheProcessorUntilTheyAreEnded(t *testing.T) {
	end, err := Burners(1)
	require.NoError(t, err)
	require.NoError(t, end())
}
