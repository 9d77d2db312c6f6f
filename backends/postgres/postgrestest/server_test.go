//go:build unix

package postgrestest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

func TestAServerStartsAndIsDurableUnlessToldOtherwise(t *testing.T) {
	s := Start(t, WithSetting("work_mem", "5MB"))
	require.Equal(t, "on", one[string](t, s.URL(), "SHOW fsync"))
	require.Equal(t, "on", one[string](t, s.URL(), "SHOW full_page_writes"))
	require.Equal(t, "on", one[string](t, s.URL(), "SHOW synchronous_commit"))
	require.Equal(t, "read committed", one[string](t, s.URL(), "SHOW default_transaction_isolation"))
	require.Equal(t, "UTF8", one[string](t, s.URL(), "SHOW server_encoding"))
	require.Equal(t, "5MB", one[string](t, s.URL(), "SHOW work_mem"))
}

// Each way of ending the server loses what was not committed, and nothing else.
func TestDataSurviveEveryEndOfTheServer(t *testing.T) {
	s := Start(t)
	require.NoError(t, s.Exec(t.Context(), "CREATE TABLE kept (n int)"))
	for i, end := range []func() error{s.Kill, s.KillPostmaster, s.StopImmediate, s.Stop} {
		require.NoError(t, s.Exec(t.Context(), fmt.Sprintf("INSERT INTO kept VALUES (%d)", i)))
		held := must(s.Conn(t.Context()))(t)
		_, err := held.Exec(t.Context(), "BEGIN; INSERT INTO kept VALUES (1000)")
		require.NoError(t, err)
		backends := must(childrenOf(s.proc.Pid()))(t)
		require.Greater(t, len(backends), 3)
		require.NoError(t, end())
		require.Zero(t, s.proc.Pid())
		for _, pid := range backends {
			require.False(t, present(pid), "end %d left process %d", i, pid)
		}
		require.Error(t, held.Ping(t.Context()))
		require.NoError(t, end(), "again")
		require.ErrorContains(t, s.Pause(), "is down")
		require.ErrorContains(t, s.Resume(), "is down")
		began := time.Now()
		require.NoError(t, s.Restart(t.Context()))
		t.Logf("end %d: it answers %v after Restart", i, time.Since(began).Round(time.Millisecond))
		require.Equal(t, i+1, one[int](t, s.URL(), "SELECT count(*) FROM kept"))
	}
	require.NoError(t, s.Restart(t.Context()), "one that runs")
	require.Equal(t, 4, one[int](t, s.URL(), "SELECT count(*) FROM kept"))
}

func TestAPausedServerAnswersNobodyUntilItIsResumed(t *testing.T) {
	s := Start(t)
	conn, err := s.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, s.Pause())
	require.NoError(t, s.Pause(), "again")
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(t.Context()) }()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, s.Resume())
	require.NoError(t, s.Resume(), "again")
	select {
	case err := <-answered:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("no answer after Resume")
	}
	require.NoError(t, s.Pause())
	require.NoError(t, s.Kill(), "a paused one")
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Pause())
	require.NoError(t, s.StopImmediate(), "a paused one")
}

// A test process that is killed, also with the server paused, leaves no process behind.
func TestServersDieWithTheTestProcess(t *testing.T) {
	Skip(t)
	for _, how := range []string{"running", "paused"} {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), holdEnv+"="+how)
		out := must(cmd.StdoutPipe())(t)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err, stderr.String())
		var pid int
		var dir string
		_, err = fmt.Sscan(line, &pid, &dir)
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		backends := must(childrenOf(pid))(t)
		require.NotEmpty(t, backends)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		require.Eventually(t, func() bool {
			for _, p := range append(backends, pid) {
				if present(p) {
					return false
				}
			}
			return true
		}, patience, 10*time.Millisecond, "%s: processes stay", how)
	}
}

func TestAServerThatEndsByItselfIsTold(t *testing.T) {
	Skip(t)
	s := must(Run(t.Context(), Options{}))(t)
	require.NoError(t, s.proc.Process.Kill()) // not by a verb
	require.ErrorContains(t, s.Pause(), "ended by itself")
	require.ErrorContains(t, s.Kill(), "ended by itself")
	dir := s.g.Temp
	require.ErrorContains(t, s.Close(), "ended by itself")
	require.NoError(t, s.Close(), "again")
	require.NoDirExists(t, dir)
	require.ErrorIs(t, s.Restart(t.Context()), errClosed)
	_, err := s.NewRoute()
	require.ErrorIs(t, err, errClosed)
	_, err = s.NewStandby(t.Context())
	require.ErrorIs(t, err, errClosed)
}

func TestAServerThatCannotStartSaysWhatItLogged(t *testing.T) {
	Skip(t)
	_, err := Run(t.Context(), Options{Settings: map[string]string{"max_connections": "many"}})
	require.ErrorContains(t, err, `invalid value for parameter "max_connections"`)
}
