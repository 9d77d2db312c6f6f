package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/controllers"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

const ttl = 10 * time.Second

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

// since returns the events since the last call.
func (h *history) since() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

// replica is one process with a manager, on fake time.
type replica struct {
	manager.Manager
	name  string
	store *faultstore.Store
	lease *lease.Handle
	stop  context.CancelFunc
	ended chan error // what Start of the manager returned
}

// replicaOf makes one whose manager is started by run. change may change the manager's options.
func replicaOf(t *testing.T, shared store.Store, name string, change func(*manager.Options)) *replica {
	t.Helper()
	forever := time.Duration(-1)
	options := manager.Options{
		Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: &forever,
	}
	if change != nil {
		change(&options)
	}
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, options)
	require.NoError(t, err)
	r := &replica{Manager: m, name: name, store: faultstore.Wrap(shared), ended: make(chan error, 1)}
	k, err := lease.NewKeeper(r.store, lease.Config{ID: name, TTL: ttl, Logger: zap.NewNop()})
	require.NoError(t, err)
	r.lease, err = k.Lease("operator")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	t.Cleanup(func() {
		r.stop()
		for range r.ended {
		}
		r.store.Heal()
		closing, closed := context.WithTimeout(context.Background(), time.Second)
		defer closed()
		_ = k.Close(closing)
		r.store.Wait()
	})
	r.run(ctx)
	return r
}

// run starts the manager a moment later, when its Runnables have been added.
func (r *replica) run(ctx context.Context) {
	go func() {
		time.Sleep(time.Millisecond)
		r.ended <- r.Start(ctx)
		close(r.ended)
	}()
}

func (r *replica) held(t *testing.T) bool {
	t.Helper()
	_, held, err := r.lease.Holder(t.Context())
	require.NoError(t, err)
	return held
}

// work is a Runnable that notes its beginning, and its end, which comes so long after it was asked
// for.
type work struct {
	name   string
	h      *history
	lasts  time.Duration
	leader bool
}

func (w work) NeedLeaderElection() bool { return w.leader }

func (w work) Start(ctx context.Context) error {
	w.h.add("%s begins", w.name)
	<-ctx.Done()
	w.h.add("%s is to end", w.name)
	time.Sleep(w.lasts)
	w.h.add("%s ends", w.name)
	return nil
}

func bubble(t *testing.T, f func(t *testing.T, store store.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
}

func TestReplicasLeadInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, store store.Store) {
		var h history
		var tokens []lease.Token
		var replicas []*replica
		for _, name := range []string{"a", "b"} {
			r := replicaOf(t, store, name, nil)
			require.NoError(t, controllers.AddUnder(r, r.lease, func(leading manager.Manager, term lease.Term) error {
				tokens = append(tokens, term.Token())
				return leading.Add(work{name, &h, 100 * time.Millisecond, true})
			}))
			replicas = append(replicas, r)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		a, b := replicas[0], replicas[1]
		require.Equal(t, []string{"a begins"}, h.since())

		// The store is away for a, for longer than the TTL: b leads, and a again after b.
		a.store.Partition()
		time.Sleep(2 * ttl)
		synctest.Wait()
		require.Equal(t, []string{"a is to end", "a ends", "b begins"}, h.since())
		a.store.Heal()
		b.store.Partition()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"b is to end", "b ends", "a begins"}, h.since())
		b.store.Heal()
		time.Sleep(time.Minute) // b waits again
		require.Len(t, tokens, 3)
		require.IsIncreasing(t, tokens)

		// A planned end: released when the work has ended, and the other leads at once.
		a.stop()
		require.NoError(t, <-a.ended)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"a is to end", "a ends", "b begins"}, h.since())
		require.Empty(t, b.ended)
	})
}

// The manager of a term waits for its Runnables for longer than the 30 s that controller-runtime
// gives them, and the lease is held until they have ended.
func TestReleaseComesAfterTheLastRunnable(t *testing.T) {
	bubble(t, func(t *testing.T, store store.Store) {
		var h history
		r := replicaOf(t, store, "a", nil)
		require.NoError(t, controllers.AddUnder(r, r.lease, func(leading manager.Manager, _ lease.Term) error {
			return leading.Add(work{"work", &h, 3 * time.Minute, true})
		}))
		time.Sleep(time.Second)
		r.stop()
		time.Sleep(179 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"work begins", "work is to end"}, h.since())
		require.True(t, r.held(t))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"work ends"}, h.since())
		require.False(t, r.held(t))
		require.NoError(t, <-r.ended)
	})
}

// controller-runtime ends Runnables that need no leader first, and the others once those have
// ended: reconcilers would go on without the lease.
func TestContextsEndTogether(t *testing.T) {
	bubble(t, func(t *testing.T, store store.Store) {
		var h history
		r := replicaOf(t, store, "a", nil)
		require.NoError(t, controllers.AddUnder(r, r.lease, func(leading manager.Manager, _ lease.Term) error {
			return errors.Join(leading.Add(work{"any", &h, time.Hour, false}), leading.Add(work{"leader", &h, 0, true}))
		}))
		time.Sleep(time.Second)
		synctest.Wait()
		require.ElementsMatch(t, []string{"any begins", "leader begins"}, h.since())
		r.store.Partition()
		time.Sleep(ttl)
		synctest.Wait()
		require.ElementsMatch(t, []string{"any is to end", "leader is to end", "leader ends"}, h.since())
		time.Sleep(2 * time.Hour)
	})
}

func TestErrors(t *testing.T) {
	bubble(t, func(t *testing.T, store store.Store) {
		r := replicaOf(t, store, "a", nil)
		calls := 0
		require.NoError(t, controllers.AddUnder(r, r.lease, func(leading manager.Manager, _ lease.Term) error {
			calls++
			switch calls {
			case 1:
				return errors.New("of setup")
			case 2:
				return leading.Add(manager.RunnableFunc(func(context.Context) error { return errors.New("of a Runnable") }))
			}
			return fmt.Errorf("no use: %w", lease.ErrStop)
		}))
		require.ErrorIs(t, <-r.ended, lease.ErrStop)
		require.Equal(t, 3, calls)
		require.False(t, r.held(t))

		// A manager that elects a leader starts it on every replica.
		setup := func(manager.Manager, lease.Term) error { return nil }
		var a adder
		require.NoError(t, controllers.AddUnder(&a, r.lease, setup))
		require.False(t, a.added.(manager.LeaderElectionRunnable).NeedLeaderElection())

		require.ErrorIs(t, controllers.AddUnder(nil, r.lease, setup), lease.ErrInvalid)
		require.ErrorIs(t, controllers.AddUnder(r, (*lease.Handle)(nil), setup), lease.ErrInvalid)
		require.ErrorIs(t, controllers.AddUnder(r, r.lease, nil), lease.ErrInvalid)
	})
}

// adder is a manager that only takes Runnables.
type adder struct {
	manager.Manager
	added manager.Runnable
}

func (a *adder) Add(r manager.Runnable) error {
	a.added = r
	return nil
}

// informers is a cache of one object, which counts event handlers. While stuck is open it gets no
// further in sync, once it has been closed before.
type informers struct {
	cache.Cache
	cache.Informer
	mu       sync.Mutex
	handlers map[*registration]bool
	indexes  map[string]bool
	stuck    chan struct{}
}

type registration struct {
	toolscache.ResourceEventHandlerRegistration
}

func (*registration) HasSynced() bool { return true }

func (i *informers) Start(ctx context.Context) error { <-ctx.Done(); return nil }

func (i *informers) WaitForCacheSync(ctx context.Context) bool {
	i.mu.Lock()
	stuck := i.stuck
	i.mu.Unlock()
	select {
	case <-stuck:
		return true
	case <-ctx.Done():
		return false
	}
}

func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return i, nil
}

func (i *informers) IndexField(_ context.Context, obj client.Object, field string, _ client.IndexerFunc) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := fmt.Sprintf("%T %s", obj, field)
	if i.indexes[key] {
		return errors.New("indexer conflict")
	}
	i.indexes[key] = true
	return nil
}

func (i *informers) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := &registration{}
	i.handlers[r] = true
	go h.OnAdd(&core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "config"}}, true)
	return r, nil
}

func (i *informers) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.handlers, r.(*registration))
	return nil
}

func (i *informers) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.handlers)
}

// The setup of a controller, with an index, is run in each term, over the cache of the manager
// outside.
func TestACacheOfManyTerms(t *testing.T) {
	bubble(t, func(t *testing.T, store store.Store) {
		open := make(chan struct{})
		close(open)
		i := &informers{handlers: map[*registration]bool{}, indexes: map[string]bool{}, stuck: open}
		r := replicaOf(t, store, "a", func(o *manager.Options) {
			o.NewCache = func(*rest.Config, cache.Options) (cache.Cache, error) { return i, nil }
			o.NewClient = func(*rest.Config, client.Options) (client.Client, error) { return fake.NewFakeClient(), nil }
			o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil }
		})
		var h history
		require.NoError(t, controllers.AddUnder(r, r.lease, func(leading manager.Manager, term lease.Term) error {
			require.Equal(t, r.GetClient(), leading.GetClient())
			extract := func(client.Object) []string { return nil }
			for _, field := range []string{"one", "two"} {
				if err := leading.GetFieldIndexer().IndexField(term.Context(), &core.ConfigMap{}, field, extract); err != nil {
					return err
				}
			}
			return builder.ControllerManagedBy(leading).For(&core.ConfigMap{}).Complete(
				reconcile.Func(func(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
					h.add("%s", q.Name)
					return reconcile.Result{}, ctx.Err()
				}))
		}))
		lose := func() {
			r.store.Partition()
			time.Sleep(2 * ttl)
			synctest.Wait()
			require.Zero(t, i.count(), "handlers end with the term")
			require.Empty(t, r.ended)
			r.store.Heal()
		}
		for range 3 {
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []string{"config"}, h.since(), "once in each term")
			require.Equal(t, 1, i.count())
			lose()
		}

		// A cache that does not get in sync does not keep a manager from its end.
		i.mu.Lock()
		i.stuck = make(chan struct{})
		i.mu.Unlock()
		time.Sleep(time.Minute)
		lose()
		i.mu.Lock()
		close(i.stuck)
		i.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"config"}, h.since())
		r.stop()
		require.NoError(t, <-r.ended)
	})
}
