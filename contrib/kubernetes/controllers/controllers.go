package controllers

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// AddUnder adds a Runnable to mgr that leads while l is held. For each term it makes a manager, has
// setup add controllers and Runnables to it, starts it, and releases l after its Start has
// returned, which is when the last of them has. After a loss, an outage included, it waits and
// leads again, as lease.RunForever does. mgr itself runs on every replica, with the caches,
// webhooks, metrics and probes, and needs no leader election.
//
// setup is called in each term, and may be what is usually called once with the only manager.
// leading shares what mgr has: configuration, scheme, cache, client, REST mapper, logger and
// controllers' options; names of controllers may come again. It serves no metrics and no probes;
// webhooks belong to mgr. The contexts of all that leading runs end together, when the term or mgr
// does. A reconciler that ignores its context keeps l from being released, until the process ends.
//
// An error of setup, or of leading, releases l, is logged, and after a pause this replica or
// another tries again. One that is lease.ErrStop, or lease.ErrClosed of l, ends mgr.
//
// Errors: lease.ErrInvalid if an argument is nil; those of mgr.Add.
func AddUnder(mgr manager.Manager, l lease.Lease, setup func(leading manager.Manager, t lease.Term) error) error {
	if input.Nil(mgr) || input.Nil(l) || setup == nil {
		return fmt.Errorf("controllers.AddUnder: %w: the manager, the lease and setup must not be nil", lease.ErrInvalid)
	}
	return mgr.Add(&under{outer: mgr, lease: l, setup: setup, indexed: map[index]bool{}})
}

// under is the Runnable that leads.
type under struct {
	outer manager.Manager
	lease lease.Lease
	setup func(leading manager.Manager, t lease.Term) error

	mu      sync.Mutex
	indexed map[index]bool // in the cache of outer, by terms until now
}

type index struct {
	kind  schema.GroupVersionKind
	field string
}

// NeedLeaderElection is false: the lease decides.
func (u *under) NeedLeaderElection() bool { return false }

// Start leads until ctx is done.
func (u *under) Start(ctx context.Context) error {
	return lease.RunForever(ctx, u.lease, func(ctx context.Context, t lease.Term) error {
		leading, err := u.manager(ctx)
		if err != nil {
			return err
		}
		if err := u.setup(leading, t); err != nil {
			return err
		}
		return leading.Start(ctx)
	})
}

// manager makes the one of a term, which ends with ctx.
func (u *under) manager(ctx context.Context) (manager.Manager, error) {
	yes, forever := true, time.Duration(-1)
	controllers := u.outer.GetControllerOptions()
	controllers.SkipNameValidation = &yes // names stay taken for the life of a process
	return manager.New(u.outer.GetConfig(), manager.Options{
		Scheme:         u.outer.GetScheme(),
		Logger:         u.outer.GetLogger(),
		Controller:     controllers,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return u.outer.GetRESTMapper(), nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return u.outer.GetClient(), nil },
		NewCache: func(*rest.Config, cache.Options) (cache.Cache, error) {
			return &termCache{Cache: u.outer.GetCache(), under: u, ctx: ctx}, nil
		},
		Metrics: metricsserver.Options{BindAddress: "0"},
		// By default Start returns after 30 s, whatever runs on.
		GracefulShutdownTimeout: &forever,
		// By default Start first waits for Runnables that need no leader, and then tells the others
		// to end.
		BaseContext: func() context.Context { return ctx },
	})
}

// termCache is the cache of the outer manager for one term.
type termCache struct {
	cache.Cache
	under *under
	ctx   context.Context // the term's
}

// Start has nothing to start.
func (c *termCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// WaitForCacheSync is also true when ctx is done: a manager whose cache is not in sync by then
// would not return from Start.
func (c *termCache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) || ctx.Err() != nil
}

func (c *termCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	return termInformer{i, c.ctx}, nil
}

func (c *termCache) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformerForKind(ctx, kind, opts...)
	if err != nil {
		return nil, err
	}
	return termInformer{i, c.ctx}, nil
}

// IndexField leaves an index be that an earlier term has made: informers refuse a second one.
func (c *termCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	kind, err := apiutil.GVKForObject(obj, c.under.outer.GetScheme())
	if err != nil {
		return err
	}
	c.under.mu.Lock()
	defer c.under.mu.Unlock()
	if c.under.indexed[index{kind, field}] {
		return nil
	}
	err = c.Cache.IndexField(ctx, obj, field, extract)
	c.under.indexed[index{kind, field}] = err == nil
	return err
}

// termInformer removes event handlers at the end of the term: controllers never do.
type termInformer struct {
	cache.Informer
	ctx context.Context
}

func (i termInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

func (i termInformer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

func (i termInformer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	r, err := i.Informer.AddEventHandlerWithOptions(h, o)
	if err == nil {
		context.AfterFunc(i.ctx, func() { _ = i.RemoveEventHandler(r) })
	}
	return r, err
}
