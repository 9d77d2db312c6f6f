// Package controllers runs controllers of controller-runtime under a lease.
//
//	mgr, err := manager.New(config, options) // no leader election
//	err = controllers.AddUnder(mgr, l, func(leading manager.Manager, t lease.Term) error {
//		return builder.ControllerManagedBy(leading).For(&apps.Deployment{}).Complete(reconciler)
//	})
//	err = mgr.Start(ctx)
//
// There is a manager for each term, inside one that lasts:
//
//	mgr      cache, webhooks, metrics, probes; on every replica, for the life of the process
//	leading  controllers; on the holder, from setup until the last reconciler has returned
//
//	acquired ── setup ── leading.Start ── reconcile … ctx ends … the last returns ── released
//
// With the leader election of controller-runtime a process has to exit when it loses the lead, as it
// does in an outage of the API that outlasts its lease. Here the contexts of all reconcilers end,
// the process goes on with warm caches, and leads again when it can.
//
// A reconciler that is at work when the lease is lost learns of it by its context, and nothing
// stops it: the API refuses no write by a token. Writes that fail on an old resourceVersion are
// refused as ever.
package controllers
