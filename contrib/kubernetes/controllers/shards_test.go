package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
)

// Every namespace is reconciled by one replica: when it gets the namespace, and at each event. A
// replica that stops keeps what it reconciles until the reconciler has returned.
func TestShardsByNamespace(t *testing.T) {
	bubble(t, func(t *testing.T, store store.Store) {
		var objects []client.Object
		for i := range 20 {
			objects = append(objects, &apps.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns-", i), Name: "app"}})
		}
		api := fake.NewClientBuilder().WithObjects(objects...).Build()
		var h history
		var slow atomic.Bool
		var informers []*controllertest.FakeInformer
		start := func(name string) *replica {
			cached := &informertest.FakeInformers{}
			i, err := cached.FakeInformerFor(t.Context(), &apps.Deployment{})
			require.NoError(t, err)
			informers = append(informers, i)
			r := replicaOf(t, store, name, func(o *manager.Options) {
				o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return cached, nil }
				o.NewClient = func(*rest.Config, client.Options) (client.Client, error) { return api, nil }
				o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil }
				o.Controller.SkipNameValidation = new(true)
			})
			group, err := membership.Join(t.Context(), r.lease.Keeper(), "operators")
			require.NoError(t, err)
			t.Cleanup(func() {
				r.store.Heal()
				r.stop()
				for range r.ended {
				}
				require.NoError(t, group.Leave(context.Background()))
			})
			require.NoError(t, addSharded(r, group, reconcile.Func(func(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
				h.add("%s %s", q.Namespace, name)
				if slow.CompareAndSwap(true, false) {
					select {
					case <-ctx.Done():
					case <-time.After(2 * time.Minute):
					}
					h.add("%s %s is asked to end", q.Namespace, name)
					time.Sleep(3 * time.Second)
					h.add("%s %s ends", q.Namespace, name)
				}
				return reconcile.Result{}, nil
			})))
			return r
		}
		event := func() {
			for _, i := range informers {
				for _, o := range objects {
					i.Add(o)
				}
			}
		}
		settled := func() []string {
			time.Sleep(time.Minute)
			synctest.Wait()
			return slices.Sorted(slices.Values(h.since()))
		}
		a := start("a")
		start("b")
		first := settled()
		require.Len(t, first, 20, "each once: %v", first)
		event()
		require.Equal(t, first, settled())

		// moves has a reconcile a namespace while it gives that up, and says what must come in this order.
		moves := func(giveUp func(), order ...string) {
			t.Helper()
			event()
			onA := slices.DeleteFunc(settled(), func(e string) bool { return strings.HasSuffix(e, " b") })
			require.NotEmpty(t, onA)
			require.Less(t, len(onA), 20)
			ns := strings.TrimSuffix(onA[0], " a")
			slow.Store(true)
			informers[0].Add(objects[slices.IndexFunc(objects, func(o client.Object) bool { return o.GetNamespace() == ns })])
			time.Sleep(time.Second)
			giveUp()
			time.Sleep(time.Minute)
			synctest.Wait()
			got, last := h.since(), -1
			for _, what := range order {
				at := slices.Index(got, ns+what)
				require.Greater(t, at, last, "%q in %q", ns+what, got)
				last = at
			}
		}
		moves(a.store.Partition, " a", " a is asked to end", " b") // a loss
		a.store.Heal()
		settled()
		moves(a.stop, " a", " a is asked to end", " a ends", " b")
		require.NoError(t, <-a.ended)
		informers = informers[1:]
		event()
		require.Len(t, settled(), 20)
	})
}
