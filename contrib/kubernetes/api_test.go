//go:build unix

package kubernetes_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/controllers"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/deletioncost"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/traffic"
	"github.com/holdfast-go/holdfast/lease"
)

// operator is a replica of a program with a controller of ConfigMaps, and a way to the API of its
// own.
type operator struct {
	name   string
	route  *kubetest.Route
	lease  *lease.Handle
	stop   context.CancelFunc
	ended  chan error // what the manager's Start returned
	tokens chan lease.Token
}

// lingers is how long a reconciler of "slow" goes on when its context is done.
const lingers = 3 * time.Second

// start makes one. Its reconciler writes its name into each ConfigMap, but stays with one that is
// called slow-… until its context is done.
func start(t *testing.T, s *kubetest.Server, name string, h *history) *operator {
	t.Helper()
	route, err := s.NewRoute()
	require.NoError(t, err)
	forever := time.Duration(-1)
	mgr, err := manager.New(route.Config(), manager.Options{
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}}, GracefulShutdownTimeout: &forever,
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	require.NoError(t, err)
	_, err = mgr.GetCache().GetInformer(t.Context(), &core.ConfigMap{}) // on standbys too
	require.NoError(t, err)
	l, err := keeper(t, route.Config(), name).Lease("operator")
	require.NoError(t, err)
	o := &operator{name: name, route: route, lease: l, ended: make(chan error, 1), tokens: make(chan lease.Token, 100)}
	require.NoError(t, controllers.AddUnder(mgr, l, func(leading manager.Manager, term lease.Term) error {
		h.add("%s leads", name)
		o.tokens <- term.Token()
		return builder.ControllerManagedBy(leading).For(&core.ConfigMap{}).WithOptions(controller.Options{MaxConcurrentReconciles: 2}).Complete(
			reconcile.Func(func(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
				if q.Name == "slow-"+name {
					h.add("%s begins", q.Name)
					<-ctx.Done()
					h.add("%s is to end", q.Name)
					time.Sleep(lingers)
					h.add("%s ends", q.Name)
					return reconcile.Result{}, ctx.Err()
				}
				cm := core.ConfigMap{ObjectMeta: meta.ObjectMeta{Namespace: q.Namespace, Name: q.Name}}
				patch := fmt.Appendf(nil, `{"data":{"by":%q}}`, name)
				err := leading.GetClient().Patch(ctx, &cm, client.RawPatch("application/merge-patch+json", patch))
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}))
	}))
	ctx, cancel := context.WithCancel(context.Background())
	o.stop = cancel
	go func() {
		o.ended <- mgr.Start(ctx)
		close(o.ended)
	}()
	t.Cleanup(func() {
		cancel()
		for range o.ended {
		}
	})
	return o
}

// handlers counts the event handlers of informers in this process.
func handlers(t *testing.T) int {
	t.Helper()
	var all bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&all, 2))
	return strings.Count(all.String(), "(*processorListener).run(")
}

func configMaps() string { return "/api/v1/namespaces/" + ns + "/configmaps" }

func create(t *testing.T, s *kubetest.Server, name string) {
	t.Helper()
	require.NoError(t, s.Do(t.Context(), http.MethodPost, configMaps(), map[string]any{"metadata": map[string]any{"name": name}}, nil))
}

// by waits until a ConfigMap was reconciled, and returns by which operator.
func by(t *testing.T, s *kubetest.Server, name string) string {
	t.Helper()
	var cm core.ConfigMap
	eventually(t, name+" is reconciled", func() bool {
		require.NoError(t, s.Do(t.Context(), http.MethodGet, configMaps()+"/"+name, nil, &cm))
		return cm.Data["by"] != ""
	})
	return cm.Data["by"]
}

func TestControllers(t *testing.T) {
	_, s := cluster(t)
	var h history
	a := start(t, s, "a", &h)
	create(t, s, "first")
	require.Equal(t, "a", by(t, s, "first"))
	b := start(t, s, "b", &h)

	// a is cut off while a reconciler is at work: its context ends, and then b leads.
	create(t, s, "slow-a")
	h.await(t, "slow-a begins")
	a.route.Cut()
	led := h.await(t, "b leads")
	require.Less(t, h.await(t, "slow-a is to end"), led)
	create(t, s, "second")
	require.Equal(t, "b", by(t, s, "second"))
	require.Empty(t, a.ended, "the process goes on")
	a.route.Heal()

	// b ends while a reconciler is at work: a leads, in the same process, when that has returned.
	create(t, s, "slow-b")
	h.await(t, "slow-b begins")
	require.Less(t, <-a.tokens, <-b.tokens)
	h.mu.Lock()
	h.events = h.events[:0]
	h.mu.Unlock()
	b.stop()
	led = h.await(t, "a leads")
	require.Less(t, h.at("slow-b is to end"), h.at("slow-b ends"))
	require.Less(t, h.await(t, "slow-b ends"), led)
	require.NoError(t, <-b.ended)

	// The API is away for longer than the TTL: a stops, waits, and leads again.
	create(t, s, "third")
	require.Equal(t, "a", by(t, s, "third"))
	require.NoError(t, s.Kill())
	h.await(t, "slow-a ends")
	require.False(t, a.lease.CheckAlive())
	require.NoError(t, s.Restart(t.Context()))
	create(t, s, "fourth")
	require.Equal(t, "a", by(t, s, "fourth"))
	require.Less(t, <-a.tokens, <-a.tokens)
	require.Empty(t, a.ended)
	eventually(t, "one event handler, of a's last term", func() bool { return handlers(t) == 1 })
	a.stop()
	require.NoError(t, <-a.ended)
}

// term is an Ownership with nothing behind it.
type term lease.Token

func (term) Name() string         { return "app" }
func (t term) Token() lease.Token { return lease.Token(t) }

func service(t *testing.T, client *kubernetes.Clientset, address string) *traffic.Service {
	t.Helper()
	port := int32(8080)
	s, err := traffic.New(client.DiscoveryV1(), traffic.Config{
		Namespace: ns, Service: "app", Ports: []discovery.EndpointPort{{Port: &port}}, Address: address, Pod: "app-1", Node: "node-1",
	})
	require.NoError(t, err)
	return s
}

// slice reads the EndpointSlice, past all; nil: there is none.
func slice(t *testing.T, s *kubetest.Server) *discovery.EndpointSlice {
	t.Helper()
	var list discovery.EndpointSliceList
	require.NoError(t, s.Do(t.Context(), http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/"+ns+"/endpointslices", nil, &list))
	require.LessOrEqual(t, len(list.Items), 1)
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// names reports whether the EndpointSlice names an address.
func names(t *testing.T, s *kubetest.Server, address string) bool {
	t.Helper()
	x := slice(t, s)
	return x != nil && len(x.Endpoints) == 1 && x.Endpoints[0].Addresses[0] == address
}

func TestTraffic(t *testing.T) {
	_, s := cluster(t)
	serve := func(address string, token term) (end func(), ended chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		ended = make(chan error, 1)
		go func() {
			ended <- service(t, clientset(t, s.Config()), address).Serve(ctx, token, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		return cancel, ended
	}
	end, ended := serve("10.0.0.1", 5)
	eventually(t, "named", func() bool { return names(t, s, "10.0.0.1") })
	require.Equal(t, "app-1", slice(t, s).Endpoints[0].TargetRef.Name)
	require.Equal(t, "node-1", *slice(t, s).Endpoints[0].NodeName)
	version := slice(t, s).ResourceVersion
	time.Sleep(35 * time.Second)
	require.Equal(t, version, slice(t, s).ResourceVersion, "what the server filled in is not written again")

	// A higher token takes it over, and a lower one changes nothing.
	other, otherEnded := serve("10.0.0.2", 7)
	eventually(t, "named", func() bool { return names(t, s, "10.0.0.2") })
	_, late := serve("10.0.0.3", 6)
	require.ErrorIs(t, <-late, lease.ErrStale)
	end()
	require.NoError(t, <-ended)
	require.True(t, names(t, s, "10.0.0.2"))
	other()
	require.NoError(t, <-otherEnded)
	require.NotNil(t, slice(t, s))
	require.Empty(t, slice(t, s).Endpoints)
	require.Equal(t, "7", slice(t, s).Annotations[traffic.TokenAnnotation])
}

// What the files allow is enough, and all of it is needed.
func TestPermissions(t *testing.T) {
	c, s := cluster(t)
	const slices = "/apis/discovery.k8s.io/v1/namespaces/" + ns + "/endpointslices"
	permitted(t, c, "traffic/rbac.yaml", func(lacks string, client *kubernetes.Clientset) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		named := false
		serve := func() error {
			return service(t, client, "10.0.0.1").Serve(ctx, term(1), func(ctx context.Context) error {
				for named = names(t, s, "10.0.0.1"); !named && ctx.Err() == nil; named = names(t, s, "10.0.0.1") {
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			})
		}
		err := serve()
		if lacks == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "cannot "+lacks+" resource")
		}
		require.Equal(t, lacks == "" || lacks == "update", named, "without %q", lacks)
		if lacks == "create" { // is not needed where there is one
			require.NoError(t, s.Do(t.Context(), http.MethodPost, slices, map[string]any{
				"metadata": map[string]any{"name": "app-holder"}, "addressType": "IPv4", "endpoints": []any{},
			}, nil))
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, serve())
			require.True(t, named)
		}
		if slice(t, s) != nil {
			require.NoError(t, s.Do(t.Context(), http.MethodDelete, slices+"/app-holder", nil, nil))
		}
	})

	const pods = "/api/v1/namespaces/" + ns
	require.NoError(t, s.Do(t.Context(), http.MethodPost, pods+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "default"}}, nil))
	require.NoError(t, s.Do(t.Context(), http.MethodPost, pods+"/pods", core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: "app-1"}, Spec: core.PodSpec{Containers: []core.Container{{Name: "app", Image: "app"}}},
	}, nil))
	cost := func() string {
		var p core.Pod
		require.NoError(t, s.Do(t.Context(), http.MethodGet, pods+"/pods/app-1", nil, &p))
		return p.Annotations[core.PodDeletionCost]
	}
	number := 0
	permitted(t, c, "deletioncost/rbac.yaml", func(lacks string, client *kubernetes.Clientset) {
		number++
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, deletioncost.Run(ctx, client.CoreV1().Pods(ns), "app-1", func() int { return number }))
		require.Equal(t, lacks == "", cost() == fmt.Sprint(number), "without %q", lacks)
	})
}
