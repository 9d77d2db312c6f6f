//go:build unix

package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withShared{m}) }

// withShared runs the tests and ends the cluster that they share.
type withShared struct{ m *testing.M }

func (w withShared) Run() int {
	code := w.m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.c != nil {
		if err := shared.c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// shared is one cluster for all tests that do it no harm, each with a namespace of its own.
var shared struct {
	sync.Mutex
	c *kubetest.Cluster
}

func cluster(t *testing.T) *kubetest.Cluster {
	t.Helper()
	nightly(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.c == nil {
		c := must(kubetest.Run(context.Background(), kubetest.Options{}))(t)
		shared.c = c
	}
	return shared.c
}

// nightly ends a test that needs a server in the commit tier, and says so.
func nightly(t *testing.T) {
	t.Helper()
	kubetest.Skip(t)
	if !tier.Nightly() {
		fmt.Fprintf(os.Stderr, "kubernetes: skipped but in the nightly tier (HOLDFAST_NIGHTLY=1): %s\n", t.Name())
	}
	tier.NightlyOnly(t, "TestAnswers has what the API may say")
}

var namespaces, ids atomic.Int64

// namespace makes one.
func namespace(tb storetest.TB, c *kubetest.Cluster) string {
	tb.Helper()
	name := fmt.Sprint("case-", namespaces.Add(1))
	if err := c.AddNamespace(tb.Context(), name); err != nil {
		tb.Fatalf("%v", err)
	}
	return name
}

// open makes a Store that is closed with the test.
func open(tb storetest.TB, config *rest.Config, namespace string) *kubernetes.Store {
	tb.Helper()
	s, err := kubernetes.New(config, namespace)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// as is config for another user.
func as(config *rest.Config, u kubetest.User) *rest.Config {
	config.BearerToken = u.Token
	return config
}

// keeper makes one that is closed with the test.
func keeper(t *testing.T, s store.Store, ttl time.Duration) *lease.Keeper {
	t.Helper()
	k := must(lease.NewKeeper(s, lease.Config{ID: fmt.Sprint("node-", ids.Add(1)), TTL: ttl, Logger: zap.NewNop()}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = k.Close(ctx) // what is not released yet is given up
	})
	return k
}

// held is a lease that k holds.
func held(t *testing.T, k *lease.Keeper, name string) *lease.Handle {
	t.Helper()
	h := must(k.Lease(name))(t)
	require.NoError(t, h.Wait(t.Context()))
	won := must(h.Acquire(t.Context()))(t)
	require.True(t, won)
	return h
}

// session opens one, with no renewals.
func session(t *testing.T, s store.Store, ttl time.Duration) store.Session {
	t.Helper()
	id := ids.Add(1)
	x := store.Session{ID: store.SessionID(id), TTL: ttl, Owner: store.Owner{ID: fmt.Sprint("node-", id), Incarnation: fmt.Sprint("i-", id)}}
	_, err := s.OpenSession(t.Context(), x)
	require.NoError(t, err)
	return x
}

// claim asks for a free name.
func claim(t *testing.T, s store.Store, x store.Session, name string) store.Outcome {
	t.Helper()
	outs := must(s.Acquire(t.Context(), x, []store.Claim{{Name: name, Nonce: uint64(ids.Add(1))}}))(t)
	require.Len(t, outs, 1)
	return outs[0]
}

// leasesPath is where the Leases of a namespace are.
func leasesPath(namespace string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
}

// leaseOf reads the Lease of a key, past the Store.
func leaseOf(t *testing.T, c *kubetest.Cluster, namespace, key string) (l coordination.Lease) {
	t.Helper()
	require.NoError(t, c.Servers()[0].Do(t.Context(), http.MethodGet, leasesPath(namespace)+"/"+kubernetes.NameOf(key), nil, &l))
	return l
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// front stands before an API, counts requests, and answers some by itself.
type front struct {
	*httptest.Server
	mu     sync.Mutex
	counts map[string]int
	answer func(w http.ResponseWriter, r *http.Request) bool
	to     http.Handler
}

// newFront makes one. Without an API to pass requests on to it has answer alone.
func newFront(t *testing.T, of *rest.Config) *front {
	f := &front{counts: map[string]int{}, to: http.NotFoundHandler()}
	if of != nil {
		f.lead(t, of)
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// lead has requests passed on to an API.
func (f *front) lead(t *testing.T, of *rest.Config) {
	t.Helper()
	u := must(url.Parse(of.Host))(t)
	p := httputil.NewSingleHostReverseProxy(u)
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	p.FlushInterval = -1
	p.ErrorLog = zap.NewStdLog(zap.NewNop())
	trip := must(rest.TransportFor(of))(t)
	p.Transport = trip
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = p
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	what := r.Method
	switch {
	case r.URL.Query().Has("watch"):
		what = "WATCH"
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases"):
		what = "LIST"
	}
	f.counts[what]++
	answer, to := f.answer, f.to
	f.mu.Unlock()
	if answer == nil || !answer(w, r) {
		to.ServeHTTP(w, r)
	}
}

// answers has f answer what it does not pass on: where do is true.
func (f *front) answers(do func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = do
}

// since returns the requests since the last call, by what they are.
func (f *front) since() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := f.counts
	f.counts = map[string]int{}
	return counts
}

func (f *front) config() *rest.Config { return &rest.Config{Host: f.URL} }

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
