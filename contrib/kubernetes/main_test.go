//go:build unix

package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	store "github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// cluster runs an API for a test, with a namespace, which is called ns.
func cluster(t *testing.T) (*kubetest.Cluster, *kubetest.Server) {
	t.Helper()
	if !tier.Nightly() {
		fmt.Fprintf(os.Stderr, "contrib/kubernetes: skipped but in the nightly tier (HOLDFAST_NIGHTLY=1): %s\n", t.Name())
	}
	tier.NightlyOnly(t, "the tests of each package have what the API may say")
	c := kubetest.Start(t)
	require.NoError(t, c.AddNamespace(t.Context(), ns))
	return c, c.Servers()[0]
}

const ns = "app"

// keeper makes one over the API, that is closed with the test.
func keeper(t *testing.T, config *rest.Config, id string) *lease.Keeper {
	t.Helper()
	s, err := store.New(config, ns)
	require.NoError(t, err)
	k, err := lease.NewKeeper(s, lease.Config{ID: id, TTL: 15 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = k.Close(ctx)
		_ = s.Close()
	})
	return k
}

// permitted calls f with a client that may do what a file's Role says, and with clients that lack
// one verb each.
func permitted(t *testing.T, c *kubetest.Cluster, file string, f func(lacks string, client *kubernetes.Clientset)) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var role rbac.Role
	require.NoError(t, yaml.Unmarshal([]byte(strings.Split(string(text), "\n---\n")[0]), &role))
	lacks := []string{""}
	for _, r := range role.Rules {
		lacks = append(lacks, r.Verbs...) // each verb is in one rule
	}
	for _, lack := range lacks {
		var may []rbac.PolicyRule
		for _, r := range role.Rules {
			r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool { return v == lack })
			if len(r.Verbs) > 0 {
				may = append(may, r)
			}
		}
		u, err := c.AddUser(t.Context(), ns, may...)
		require.NoError(t, err)
		config := c.Servers()[0].Config()
		config.BearerToken = u.Token
		f(lack, clientset(t, config))
	}
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

// history is what happened, in order.
type history struct {
	mu     sync.Mutex
	events []string
}

func (h *history) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

// at is where an event stands; -1: nowhere.
func (h *history) at(event string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Index(h.events, event)
}

// await waits until an event stands, and returns where.
func (h *history) await(t *testing.T, event string) int {
	t.Helper()
	eventually(t, event, func() bool { return h.at(event) >= 0 })
	return h.at(event)
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}
