//go:build unix

package etcdtest

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCertificatesThatAreMissingAreSaid(t *testing.T) {
	_, err := Run(t.Context(), Options{TLS: t.TempDir()})
	require.ErrorContains(t, err, "TLS")
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
			Start(s, WithTLS(t.TempDir())) // never comes to run a process
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
