//go:build unix

package kubetest_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	rbac "k8s.io/api/rbac/v1"

	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/internal/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two servers share what they keep; each can be killed, stopped, started again and cut off from etcd.
func TestServers(t *testing.T) {
	kubetest.Skip(t)
	if !tier.Nightly() {
		fmt.Fprintf(os.Stderr, "kubetest: skipped but in the nightly tier (HOLDFAST_NIGHTLY=1): %s\n", t.Name())
	}
	tier.NightlyOnly(t, "none: servers take seconds to start")
	began := time.Now()
	c := kubetest.Start(t, kubetest.WithServers(2))
	t.Logf("two servers after %v", time.Since(began))
	a, b := c.Servers()[0], c.Servers()[1]
	require.NoError(t, c.AddNamespace(t.Context(), "app"))
	const path = "/api/v1/namespaces/app"
	read := func(s *kubetest.Server, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var ns struct{ Metadata struct{ Name string } }
		err := s.Do(ctx, http.MethodGet, path, nil, &ns)
		if err == nil {
			require.Equal(t, "app", ns.Metadata.Name)
		}
		return err
	}
	const soon, patience = 500 * time.Millisecond, time.Minute
	require.NoError(t, read(b, patience))

	require.NoError(t, a.Stop(t.Context()))
	require.Error(t, read(a, soon))
	require.NoError(t, read(b, patience))
	require.NoError(t, a.Cont())
	require.NoError(t, read(a, patience))

	require.NoError(t, a.Kill())
	require.Zero(t, a.Pid())
	require.Error(t, read(a, soon))
	began = time.Now()
	require.NoError(t, a.Restart(t.Context()))
	t.Logf("restarted after %v", time.Since(began))
	require.NoError(t, read(a, patience))

	b.Etcd().Cut()
	require.Error(t, read(b, soon))
	require.NoError(t, read(a, patience))
	b.Etcd().Heal()
	require.NoError(t, read(b, patience))

	u, err := c.AddUser(t.Context(), "app", rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}})
	require.NoError(t, err)
	require.NotEmpty(t, u.Token)
}
