package register_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	_ "github.com/holdfast-go/holdfast/backends/kubernetes/register"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const config = `
apiVersion: v1
kind: Config
clusters:
- {name: a, cluster: {server: "https://a.example:6443"}}
- {name: b, cluster: {server: "https://b.example:6443"}}
contexts:
- {name: a, context: {cluster: a, user: u, namespace: of-a}}
- {name: b, context: {cluster: b, user: u, namespace: Not_Valid}}
current-context: a
users:
- {name: u, user: {token: secret}}
`

func TestURLs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	t.Setenv("KUBECONFIG", path)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for url, endpoint := range map[string]string{
		"k8s://app": "a.example:6443", "k8s://": "a.example:6443", "k8s://app?context=b": "b.example:6443", "k8s://app/": "a.example:6443",
	} {
		s, closeStore, err := open.Open(t.Context(), url)
		require.NoError(t, err, url)
		require.IsType(t, (*kubernetes.Store)(nil), s)
		require.Equal(t, []string{endpoint}, s.Limits().Endpoints, url)
		require.NoError(t, closeStore())
	}
	for url, says := range map[string]string{
		"k8s:app":                      "want k8s://namespace",
		"k8s://u:p@app":                "want k8s://namespace",
		"k8s://app/leases":             "want k8s://namespace",
		"k8s://app#x":                  "want k8s://namespace",
		"k8s://app?x=y":                "there is context",
		"k8s://app?context=":           "there is context",
		"k8s://app?%zz":                "there is context",
		"k8s://App_1":                  "namespace",
		"k8s://?context=b":             "namespace",
		"k8s://app?context=not-there":  "not-there",
		"k8s://?context=not-there":     "not-there",
		"k8s://app?context=a&context=": "there is context",
	} {
		_, _, err := open.Open(t.Context(), url)
		require.ErrorIs(t, err, store.ErrInvalid, url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "secret", url)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	_, _, err := open.Open(t.Context(), "k8s://app")
	require.ErrorIs(t, err, store.ErrInvalid)
}
