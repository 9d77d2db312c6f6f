// Package mutant plants known bugs, to see that the checks find them.
//
// Each is a mistake that a system of this kind has made somewhere. A build without
// the tag holdfast_mutants, which is every build but that of test/mutants, has none of
// them: On is false there, and what depends on it is not compiled in.
package mutant

// The bugs, by name, and what they do.
const (
	DeadlineFromReply = "deadline-from-reply"  // a session is trusted for a TTL from the reply on
	FlagOnly          = "flag-only-checkalive" // CheckAlive does not look at the clock
	LateWinKept       = "late-win-kept"        // what is won after its caller went is kept
	SettledByReadBack = "settled-by-read-back" // what is not known is settled by reading the record
	NoReconciliation  = "no-reconciliation"    // records that nobody claims are left
	OldEventBelieved  = "old-event-believed"   // a deletion of an earlier term ends the present one
	ReleaseBeforeStop = "release-before-stop"  // the lease is given up while the work still runs
	GateIgnoresLoss   = "gate-ignores-loss"    // messages pass though the lease is lost
	BacklogDropped    = "backlog-dropped"      // what a child or an entity had not taken is forgotten at a hand-off
	MarkerIgnored     = "marker-ignored"       // mail takes the new way at once
	RelayForgotten    = "relay-forgotten"      // relays are not kept until they are taken up
	BlindTransfer     = "blind-transfer"       // the store transfers without a condition
	TokensRestart     = "tokens-restart"       // tokens begin anew when a name was free
	StaleCoordinator  = "stale-coordinator"    // a node obeys whoever says it coordinates, about any time
	StartWithoutLease = "start-without-lease"  // a shard is opened without its lease being acquired
	PassivationLoses  = "passivation-loses"    // mail that comes while an entity stops is forgotten
	MembershipIgnored = "membership-ignored"   // shards are kept when the membership is lost
	UnboundedBuffer   = "unbounded-buffer"     // the buffer of a name has no bound
)

// All lists them.
var All = []string{DeadlineFromReply, FlagOnly, LateWinKept, SettledByReadBack, NoReconciliation, OldEventBelieved, ReleaseBeforeStop,
	GateIgnoresLoss, BacklogDropped, MarkerIgnored, RelayForgotten, BlindTransfer, TokensRestart, StaleCoordinator, StartWithoutLease,
	PassivationLoses, MembershipIgnored, UnboundedBuffer}
