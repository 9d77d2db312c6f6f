// Package postgres keeps leases in PostgreSQL, and fences transactions by them. It implements
// lease.Store, lease.TransferStore, lease.Watcher, lease.DeletionWatcher, lease.Prober,
// lease.SessionLister, lease.Limiter and lease.Located.
//
//	pool, err := pgxpool.New(ctx, url)
//	store, err := postgres.New(pool)
//	err = store.Migrate(ctx)
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//
// What it cannot promise, what a DBA wants to know, and what to do when is in docs/postgres.md.
//
// # What stands in the database
//
// A row for each session, with the time at which it runs out by the database's clock, and a row
// for each name that points to one. A record stands while its row points to a session. The token is
// in the row: microseconds since 1970, or one more than the last, whichever is greater. Free rows
// stay for an hour; what they had as a token no later row falls below.
//
//	session: ends > now ──renew──▶ ends = now + TTL
//	            │
//	            └─ now ≥ ends ──▶ who wants a name of it, reads it or sweeps writes
//	                              ends = -infinity, under the row's lock: it is over for good,
//	                              and its names are freed one by one
//
// A renewal that is under way holds the row's lock: the session is passed over, and lives.
//
// # What is sent
//
// One statement for each call, which is one call of a function in the database, and so a
// transaction of its own; READ COMMITTED, as what is decided under a lock is read after it was
// taken. No row is waited for that another request or a transaction of a user has locked: such a
// name is answered as busy, and asked for again alone. So requests can't deadlock, a refusal writes
// nothing, and a name that is guarded delays only itself.
//
// Watches of a Store read a log of changes together, every 250 ms, or when a NOTIFY says so
// (WithListener). Its numbers come from a sequence; one that is missing is followed until its
// writer has ended, and does not hold up those behind it.
//
// # Guard
//
// Guard is what other stores can't have: it locks a lease's row for the rest of a transaction of
// the user's, so that a take-over of the lease comes after its commit.
package postgres
