//go:build unix

package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// impatient makes a client give up once, and soon.
func impatient(o *redis.UniversalOptions) {
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestServerIsKilledAndRestarted(t *testing.T) {
	for _, aof := range []bool{true, false} {
		s := Start(t, func(o *Options) { o.AOF = aof })
		addr, pid := s.Addr(), s.proc.Pid()
		require.NoError(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
		require.NoError(t, s.Kill())
		require.NoError(t, s.Kill())
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		require.ErrorContains(t, s.Pause(t.Context()), "s1 is down")
		require.ErrorContains(t, s.Resume(), "s1 is down")
		require.Error(t, s.Client(t, impatient).Get(t.Context(), "k").Err())

		require.NoError(t, s.Restart(t.Context()))
		require.Equal(t, addr, s.Addr())
		got, err := s.Client(t).Get(t.Context(), "k").Result()
		if aof {
			require.NoError(t, err)
			require.Equal(t, "v", got)
		} else {
			require.ErrorIs(t, err, redis.Nil)
		}
	}
}

func TestPausedServerAnswersNothing(t *testing.T) {
	s := Start(t)
	c := s.Client(t, impatient)
	require.NoError(t, c.Ping(t.Context()).Err())
	require.NoError(t, s.Pause(t.Context()))
	require.NoError(t, s.Pause(t.Context()))
	require.ErrorContains(t, c.Ping(within(t, 100*time.Millisecond)).Err(), "timeout")
	require.NoError(t, s.Resume())
	require.NoError(t, c.Ping(within(t, soon)).Err())
	require.NoError(t, s.Pause(t.Context()))
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Client(t).Ping(within(t, soon)).Err())
}

func TestFaultsOnOneRouteSpareTheOthers(t *testing.T) {
	s := Start(t)
	own, err := s.NewRoute()
	require.NoError(t, err)
	mine, theirs := own.Client(t, impatient), s.Client(t, impatient)
	require.NoError(t, mine.Ping(t.Context()).Err())
	own.Cut()
	require.Error(t, mine.Ping(within(t, 100*time.Millisecond)).Err())
	require.NoError(t, theirs.Ping(t.Context()).Err())
	_, err = s.Do(t.Context(), "PING")
	require.NoError(t, err)
	own.Heal()
	require.NoError(t, mine.Ping(t.Context()).Err())
}

func TestClockIsStepped(t *testing.T) {
	s := Start(t, WithFaketime())
	c := s.Client(t)
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		require.NoError(t, s.SetClock(step))
		before := time.Now().Add(step - time.Millisecond)
		is, err := c.Time(t.Context()).Result()
		require.NoError(t, err)
		require.True(t, is.After(before) && is.Before(before.Add(soon)), "%v: %v", step, is)
		inside, err := c.Eval(t.Context(), "return redis.call('TIME')[1]", nil).Int64()
		require.NoError(t, err)
		require.InDelta(t, is.Unix(), inside, soon.Seconds())
	}
	require.ErrorContains(t, Start(t).SetClock(0), "Options.Faketime is not set")
}

func TestReplicaFollows(t *testing.T) {
	s := Start(t, WithConfig("maxmemory-policy noeviction"))
	c := s.Client(t)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	r, err := s.NewReplica(t.Context())
	require.NoError(t, err)
	require.Equal(t, "v", r.Client(t).Get(t.Context(), "k").Val())
	require.ErrorContains(t, r.Client(t, impatient).Set(t.Context(), "k", "w", 0).Err(), "READONLY")
	s.Cut() // the replica is fed over the route that is announced
	_, err = s.Do(t.Context(), "SET", "k", "w")
	require.NoError(t, err)
	require.Equal(t, "v", r.Client(t).Get(t.Context(), "k").Val())
	s.Heal()
	require.Eventually(t, func() bool { return r.Client(t).Get(t.Context(), "k").Val() == "w" }, soon, 10*time.Millisecond)
}

func TestServerThatEndsByItselfIsReported(t *testing.T) {
	Skip(t)
	s, err := Run(t.Context(), Options{})
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(s.proc.Pid(), syscall.SIGKILL)) // behind its back
	<-s.proc.Done()
	require.ErrorContains(t, s.Pause(t.Context()), "ended by itself")
	err = s.Close()
	require.ErrorContains(t, err, "s1 ended by itself: signal: killed")
	require.ErrorContains(t, err, "The server is now ready to accept connections") // of its log
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Restart(t.Context()), errClosed)
	_, err = s.NewRoute()
	require.ErrorIs(t, err, errClosed)
	require.NoDirExists(t, s.g.Temp)

	_, err = Run(t.Context(), Options{Config: []string{"no-such-setting 1"}})
	require.ErrorContains(t, err, "no-such-setting")
}

func TestServersEndWithTheTestProcess(t *testing.T) {
	Skip(t)
	if runtime.GOOS != "linux" {
		t.Skip("as documented")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var pid int
	var temp string
	_, err = fmt.Sscan(line, &pid, &temp)
	require.NoError(t, err)
	defer os.RemoveAll(temp)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(err, os.ErrNotExist) || bytes.Contains(stat, []byte(") Z "))
	}, soon, time.Millisecond, "server %d lives on", pid)
}
