// Package runlock has one worker at a time work on a run of a workflow: a lease of a Keeper for each
// pair of a workflow and a run, held for long and renewed seldom. It is for engines that resume and
// restart runs, perhaps from several processes at once.
//
//	locks, err := runlock.New(keeper)
//	err = locks.Around(ctx, "order", "run-42", func(ctx context.Context, t lease.Term) error {
//		return engine.Resume(ctx, "order", "run-42") // ctx is done when the lock is lost
//	})
//	if errors.Is(err, lease.ErrHeld) {
//		// another worker has the run: skip it
//	}
//
// # How long
//
// A lock's TTL is 30 minutes, and it is renewed every 10, plus or minus the Keeper's jitter. A worker
// that crashed so keeps its run for 20 to 30 minutes: WithTTL. A worker that lives renews until it
// releases, so a run may take as long as it likes. Locks share sessions: thousands cost a few
// renewals.
//
// A long TTL is no reason to wait for long: each call to the store takes at most the
// lease.Config.OperationTimeout of the Keeper, whatever the TTL of the locks.
//
// # Rules
//
// They are those of lease.Run: what is lost ends the context, a lock is released only after the work
// has returned, and what the work writes should bear the token of its term, which the resource
// refuses when it is old (lease.Fence).
//
// Within one process, too, a run has one worker. An Around within the f of an Around of the same run,
// by the context that f was given, is no other worker: it runs at once under the same lock. So hooks
// around restart and resume may both use it, though a restart resumes.
package runlock
