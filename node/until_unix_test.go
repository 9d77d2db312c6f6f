//go:build unix

package node_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/node"
)

// signalled tells a process that it is a child of TestRunUntilSignalInAProcess, and
// which.
const signalled = "HOLDFAST_TEST_SIGNALLED"

// child is a process that runs RunUntilSignal.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
	in  io.Closer
}

func startChild(t *testing.T, kind string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunUntilSignalInAProcess$")}
	c.cmd.Env = append(os.Environ(), signalled+"="+kind,
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // or it waits a second at its end
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.in, c.out = in, bufio.NewReader(out)
	require.NoError(t, c.cmd.Start())
	return c
}

// says awaits a line.
func (c *child) says(want string) {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, want, strings.TrimSpace(line))
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// ends awaits its end; by is the signal that killed it, or 0.
func (c *child) ends(by syscall.Signal) {
	c.t.Helper()
	_ = c.cmd.Wait() // what it says is in the state
	status := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if by != 0 {
		require.True(c.t, status.Signaled(), "%v", c.cmd.ProcessState)
		require.Equal(c.t, by, status.Signal())
		return
	}
	require.True(c.t, c.cmd.ProcessState.Success(), "%v", c.cmd.ProcessState)
}

func TestRunUntilSignalInAProcess(t *testing.T) {
	if kind := os.Getenv(signalled); kind != "" {
		beChild(kind)
	}
	t.Run("SIGTERM and SIGINT", func(t *testing.T) {
		for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
			c := startChild(t, "quick")
			c.says("ready")
			c.signal(s)
			c.says("stopping")
			c.says("ended: <nil>")
			require.NoError(t, c.in.Close())
			c.ends(0)
		}
	})
	t.Run("a second signal", func(t *testing.T) {
		c := startChild(t, "deaf")
		c.says("ready")
		c.signal(syscall.SIGTERM)
		c.says("stopping")
		c.signal(os.Interrupt)
		c.says("ended: stopping was interrupted by another signal, interrupt; interrupted: true")
		require.NoError(t, c.in.Close())
		c.ends(0)
	})
	t.Run("afterwards signals do what they did", func(t *testing.T) {
		c := startChild(t, "quick")
		c.says("ready")
		c.signal(syscall.SIGTERM)
		c.says("stopping")
		c.says("ended: <nil>")
		c.signal(syscall.SIGTERM) // while it waits for its input to end
		c.ends(syscall.SIGTERM)
	})
	t.Run("chosen signals only", func(t *testing.T) {
		c := startChild(t, "hup")
		c.says("ready")
		c.signal(syscall.SIGHUP)
		c.says("stopping")
		c.says("ended: <nil>")
		require.NoError(t, c.in.Close())
		c.ends(0)

		c = startChild(t, "hup")
		c.says("ready")
		c.signal(syscall.SIGTERM)
		c.ends(syscall.SIGTERM)
	})
	t.Run("what was ignored is ignored again", func(t *testing.T) {
		c := startChild(t, "ignoring")
		c.says("ready")
		c.signal(syscall.SIGTERM)
		c.says("stopping")
		c.says("ended: <nil>")
		c.signal(os.Interrupt)
		require.NoError(t, c.in.Close())
		c.says("still here")
		c.ends(0)
	})
}

// beChild is the child's main; it ends with its standard input.
func beChild(kind string) {
	stop := func(context.Context) error { fmt.Println("stopping"); return nil }
	var signals []os.Signal
	switch kind {
	case "deaf":
		stop = func(context.Context) error { fmt.Println("stopping"); select {} }
	case "hup":
		signals = []os.Signal{syscall.SIGHUP}
	case "ignoring":
		signal.Ignore(os.Interrupt)
	}
	err := node.RunUntilSignal(&tellingContext{Context: context.Background()}, 10*time.Second, stop, signals...)
	if err != nil {
		fmt.Printf("ended: %v; interrupted: %v\n", err, errors.Is(err, node.ErrInterrupted))
	} else {
		fmt.Println("ended:", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	if kind == "ignoring" {
		fmt.Println("still here")
	}
	os.Exit(0)
}

// tellingContext says "ready" when somebody first waits for its end, which
// RunUntilSignal does when it takes signals.
type tellingContext struct {
	context.Context
	once sync.Once
}

func (c *tellingContext) Done() <-chan struct{} {
	c.once.Do(func() { fmt.Println("ready") })
	return c.Context.Done()
}
