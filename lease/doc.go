// Package lease makes sure that a piece of work runs in one place at a time, whatever fails. The right
// to do it is a lease: one name in one store, with an owner, a deadline and a fencing token.
//
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//	job, err := keeper.Lease("job/report")
//	err = lease.Run(ctx, job, func(ctx context.Context, t lease.Term) error {
//		return report(ctx, t.Token()) // ctx is done when the lease is lost
//	})
//
// At any moment at most one holder of a name sees CheckAlive true, while the rates of clocks differ by
// less than the margin allows. Tokens of a name strictly increase with every change of owner. A term
// that has ended never lives again. OnLost is called once for each loss. Every call is bounded.
//
// Records belong to sessions, and sessions are renewed: one request for up to a thousand names. A
// holder trusts by its own clocks, counted from before the request was sent:
//
//	send renewal ─────────── reply ────────────────────── deadline ─── margin ─── TTL ends in the store
//	|<---------------- CheckAlive is true ------------------>|<-- no one acts -->|  another may acquire
//
// A handle (Keeper.Lease) goes through terms. In ended the record may still stand, and work may still
// run, until its owner calls Release or Acquire:
//
//	            won (new token)                 lost: OnLost
//	┌──────┐ ───────────────────▶ ┌──────┐ ───────────────────▶ ┌───────┐
//	│ free │                      │ held │                      │ ended │
//	└──────┘ ◀──┐                 └──────┘ ── given up: no ───▶ └───────┘
//	            │                    ▲         OnLost            │   │
//	            │                    └──── won (newer token) ────┘   │
//	            └──────────── settled: nothing of ours stands ───────┘
//
// A definite answer ends a term at once, silence ends it at the deadline. Trust ends before a release
// or a transfer is sent. An unknown outcome is never settled by reading, as the request may land after
// the read: only a conditional write that yields a newer token makes the handle alive again. Records of
// a Keeper that no handle claims are released, at least once per TTL.
//
// Work that was already running when its deadline passed, or a process that was stopped between
// CheckAlive and the next line, acts late. Against that the resource refuses old tokens (Fence).
//
// The values of a caller's context reach the store. docs/leases.md has more. Package store is what
// keeps leases, and leasetest tests leases of other makes.
package lease
