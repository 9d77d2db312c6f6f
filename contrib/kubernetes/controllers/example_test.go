package controllers_test

import (
	"context"
	"os"
	"time"

	apps "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/contrib/kubernetes/controllers"
	"github.com/holdfast-go/holdfast/lease"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// reconciler is what an operator has anyway.
type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, ctx.Err()
}

func (r reconciler) SetupWithManager(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).For(&apps.Deployment{}).Complete(r)
}

// An operator whose controllers run under a lease.
func ExampleAddUnder() {
	ctx := signals.SetupSignalHandler()
	cfg := config.GetConfigOrDie()
	store, err := kubernetes.New(cfg, "leases")
	check(err)
	keeper, err := lease.NewKeeper(store, lease.Config{ID: os.Getenv("POD_NAME"), TTL: 15 * time.Second})
	check(err)
	l, err := keeper.Lease("operator")
	check(err)
	mgr, err := manager.New(cfg, manager.Options{}) // no leader election; webhooks and probes as ever
	check(err)
	_, err = mgr.GetCache().GetInformer(ctx, &apps.Deployment{}) // standbys have them cached, too
	check(err)
	check(controllers.AddUnder(mgr, l, func(leading manager.Manager, t lease.Term) error {
		return reconciler{leading.GetClient()}.SetupWithManager(leading)
	}))
	err = mgr.Start(ctx)
	check(keeper.Close(context.Background()))
	check(err)
}
