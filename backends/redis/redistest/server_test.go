//go:build unix

package redistest

import (
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

func TestServerThatCanNotStartShowsItsLog(t *testing.T) {
	Skip(t)
	_, err := Run(t.Context(), Options{Config: []string{"no-such-setting 1"}})
	require.ErrorContains(t, err, "no-such-setting")
}
