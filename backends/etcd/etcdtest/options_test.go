//go:build unix

package etcdtest

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestOptionsOutOfBoundsAreRefused(t *testing.T) {
	for field, opts := range map[string][]Option{
		"Members":   {WithMembers(2)},
		"Heartbeat": {WithTimes(time.Second, -1)},
		"Election":  {WithTimes(time.Second, 300*time.Millisecond)},
		"Quota":     {WithQuota(1)},
	} {
		var o Options
		for _, opt := range opts {
			opt(&o)
		}
		_, err := Run(context.Background(), o)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, field)
	}
	_, err := Options{Election: time.Minute, Heartbeat: time.Second}.complete()
	require.ErrorContains(t, err, "Election")
}

// tbStub stands for a test of our users' that Start ends.
type tbStub struct {
	testing.TB
	skipped, failed bool
}

func (s *tbStub) Skip(...any)  { s.skipped = true; runtime.Goexit() }
func (s *tbStub) Fatal(...any) { s.failed = true; runtime.Goexit() }

func TestSkippingIsExplicit(t *testing.T) {
	start := func(env string) *tbStub {
		t.Setenv("HOLDFAST_SKIP_ETCD", env)
		s := &tbStub{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Start(s, WithMembers(2)) // never comes to run a process
		}()
		<-done
		return s
	}
	require.True(t, start("1").skipped)
	for _, env := range []string{"", "0", "perhaps"} {
		s := start(env)
		require.False(t, s.skipped, env)
		require.True(t, s.failed, env)
	}
}
