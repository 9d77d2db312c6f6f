// Package lease makes sure that a piece of work runs in one place at a time,
// whatever fails. The right to do it is a lease: one name in one store, with an
// owner, a deadline and a fencing token.
//
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//	job, err := keeper.Lease("job/report")
//	err = lease.Run(ctx, job, func(ctx context.Context, t lease.Term) error {
//		return report(ctx, t.Token()) // ctx is done when the lease is lost
//	})
//
// # What it promises
//
//   - At any moment at most one holder of a name sees CheckAlive true, by the one
//     true clock, while the rates of clocks differ by less than the margin allows.
//   - Tokens of a name strictly increase with every change of its owner.
//   - A term that was once seen dead is never alive again, and CheckAlive is false
//     from the deadline on, however late anybody looks.
//   - A loss is told once, after the fact. A record that no handle claims is released.
//   - Every call is bounded: by its context and by Config.OperationTimeout.
//
// # The trust window
//
// Records belong to sessions, and a session is what is renewed: up to a thousand
// names for one request. A holder trusts by its own clock, counted from before
// the request was sent:
//
//	send renewal ─────────── reply ──────────────────────── deadline ─── margin ─── TTL ends in the store
//	|<----------------- CheckAlive is true ------------------->|<-- nobody acts -->|  another may acquire
//
// The monotonic clock and the wall clock must both be before the deadline, so a
// machine that slept knows it; a wall clock stepped ahead by more than what is
// left ends trust as well, one stepped back changes nothing. A failed renewal is
// no loss: it is repeated until the deadline.
//
// # Terms and states
//
// A handle (Keeper.Lease; one per name and Keeper) goes through terms. A Term is
// one ownership: a token, and a context that is done when it ends.
//
//	            won (new token)                 lost: OnLost
//	┌──────┐ ───────────────────▶ ┌──────┐ ───────────────────▶ ┌───────┐
//	│ free │                      │ held │                      │ ended │
//	└──────┘ ◀──┐                 └──────┘ ── given up: no ───▶ └───────┘
//	            │                    ▲         OnLost            │   │
//	            │                    └──── won (newer token) ────┘   │
//	            └──────────── settled: nothing of ours stands ───────┘
//
// In ended the record may still stand, and work may still run: it stays claimed
// until its owner calls Release or Acquire, or closes the handle. One operation
// of a handle is in flight at a time; the others wait in order.
//
// # Rules on failure
//
//   - A definite answer (the record is another's, or gone) ends a term at once;
//     silence ends it at the deadline.
//   - Trust ends before a release or a transfer is sent.
//   - An outcome that is not known is never settled by reading, since the request
//     may land after the read. Only a conditional write that yields a newer token
//     makes the handle alive again.
//   - An acquisition that wins after its caller has gone is given back.
//   - At least once per TTL, and when the watch tells of one, records of this
//     Keeper that no handle claims are released, so that a shared session keeps
//     nothing alive for nobody. A store that lists by session (SessionLister) is asked
//     for this Keeper's records; others are listed whole, where every third round
//     is enough. A request that lands long after is found too: it is looked for as
//     long as the session it was made under lives, up to 60 TTLs; what lands later
//     still is found by listing.
//   - An event of the watch is a hint: it can end a term if it is newer than the
//     term's token; it never begins one. What is won at or below a deletion that was
//     told while the acquisition was under way is won anew. Where only deletions are told of
//     (DeletionWatcher), a record that was overwritten without one, against the
//     rules of a Store, is found by listing: within four TTLs.
//
// The values of a caller's context, such as a trace, reach the requests that are made for it:
// all attempts, and a session that is opened for it. A request for several callers bears the
// values of the first; what the Keeper does of itself, as renewals, bears none. When a request
// ends is the Keeper's.
//
// A store whose history goes back (its data was lost, or an older copy put in
// place) ends every term, with ErrSetback. Nothing is acquired, and Health fails,
// until tokens are above all that were seen, or that is accepted
// (Keeper.AcceptHistory, Config.AcceptSetbacks).
//
// A lease may hang on another (WithParent): it is trusted no longer than that, and given up
// before it. Only the owner of a lease knows when the work under it has stopped, so a release of
// the parent waits until each has said so.
//
// Of a loss, in this order: CheckAlive is false, the term's context is done with
// its reason as the cause, the handlers of OnLost run, each in a goroutine of its
// own and once. Release and Transfer are no losses. Keeper.Close is one, for
// every holder: then it waits for them to call Release.
//
// # What no lease can promise
//
// Work that was already running when its deadline passed, or a process that was
// stopped between CheckAlive and the next line, acts late. This is an overrun.
// Against it stands the token: the resource remembers the highest it has seen and
// refuses lower ones (Fence, or a conditional write). A holder's first act is to
// advance the fence, and only then to read. Nor does it notice that a machine
// slept if its wall clock was stepped back, by as much, within the second before.
//
// # Defaults
//
//	TTL               10 s               renewal     TTL/3 ± 10 %
//	Margin            max(TTL/10, 100ms) retries     at most 1 s apart
//	AttemptTimeout    TTL/4, at most 5 s OperationTimeout  TTL, at most 30 s
//	NamesPerSession   1000               PollMin, PollMax  1 s, 10 s
//
// Clocks may so differ in rate by a tenth. After a crash another acquires within
// the TTL of the last renewal and, waiting with Wait, as soon as the store tells.
//
// # What calls what
//
//	Run ─▶ Handle ─▶ operations: one at a time for a handle, in batches by lane
//	                  │            ├─▶ settling: to the store, and what its answer means
//	                  │            └─▶ directly: the first attempt on the caller's own goroutine
//	                  └─▶ Term: what CheckAlive reads, without a lock
//	Keeper: one loop, one lock ─▶ sessions: opened, renewed, ended, closed
//	                            ├─▶ reconciliation: records that no handle claims; offers
//	                            ├─▶ waiters: events and looks; streams of records
//	                            └─▶ setbacks: what becomes of a store whose history goes back
//
// Loggers and meters are called on a goroutine of the Keeper's that nothing else needs, callbacks on
// goroutines of their own.
//
// Stores are tested with package leasetest; faultstore and faultclock make what
// goes wrong. TestSimulation plays random histories of it all.
package lease
