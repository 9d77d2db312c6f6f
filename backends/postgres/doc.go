// Package postgres keeps leases in PostgreSQL, and fences transactions by them. It implements
// lease.Store, lease.TransferStore, lease.Watcher, lease.DeletionWatcher, lease.Prober,
// lease.SessionLister and lease.Limiter.
//
//	pool, err := pgxpool.New(ctx, url)
//	store, err := postgres.New(pool)
//	err = store.Migrate(ctx)
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
package postgres
