// Package postgres keeps leases in PostgreSQL, and fences transactions by them. It implements
// store.Store, store.Transferrer and store.Watcher. docs/postgres.md says how to operate it.
//
//	pool, err := pgxpool.New(ctx, url)
//	store, err := postgres.New(pool)
//	err = store.Migrate(ctx)
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//
// There is a row for each session, with the time at which it runs out by the database's clock, and a
// row for each name that points to one. A record stands while its row points to a session. The token is
// in the row: microseconds since 1970, or one more than the last if that is greater. Free rows stay for
// an hour; no later row has a token at or below theirs.
//
//	session: ends > now ──renew──▶ ends = now + TTL
//	            │
//	            └─ now ≥ ends ──▶ a call that wants one of its names, reads it or sweeps writes
//	                              ends = -infinity, under the row's lock: it is over for good,
//	                              and its names are freed one by one
//
// A renewal that is under way holds the row's lock: the session is passed over, and lives.
//
// Each call is one statement, which calls one function in the database, and so a transaction of its
// own; READ COMMITTED, as what is decided under a lock is read after it was taken. A row that another
// transaction has locked is not waited for: its name is answered as busy, and asked for again alone. So
// requests can't deadlock, a refusal writes nothing, and a name that is guarded delays only itself.
//
// Watches of a Store read a log of changes together, every 250 ms, or when a NOTIFY says so
// (WithListener). Its numbers come from a sequence; one that is missing is followed until its writer has
// ended, and does not hold up those behind it.
//
// Guard locks a lease's row for the rest of a user's transaction, so that a take-over of the lease comes
// after its commit.
package postgres
