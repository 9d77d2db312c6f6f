package storetest

// rule is one promise of the store.Store contract, in the words a backend's
// author reads when it is broken.
type rule string

// safety are the rules that keep a name from having two holders at once, or a token from being used
// twice.
var safety = map[rule]bool{
	ruleHeld: true, ruleOneWinner: true, ruleSupersedeBy: true, ruleSupersedeOf: true, ruleLinear: true,
	ruleToken: true, ruleTokenZero: true, ruleReleaseToken: true, ruleReleaseNonce: true, ruleBatchTwice: true,
	ruleEarly: true, ruleRevive: true, ruleGoneAcquire: true, ruleTransferRefused: true, ruleTransferAtomic: true,
	ruleTransferOnce: true,
}

// Who wins.
const (
	ruleFree        rule = "a name that is free is won by the first valid claim"
	ruleHeld        rule = "a name that stands under a live record is not won by a claim without its token"
	ruleOneWinner   rule = "of all who claim a free name at once, exactly one wins"
	ruleHolder      rule = "a refused claim reports the record that stands: the holder's"
	ruleRecord      rule = "the record of a success is the caller's: its name, owner, session, nonce, metadata and granted TTL"
	ruleSupersede   rule = "a claim that supersedes a record of its own incarnation by exactly its token succeeds"
	ruleSupersedeBy rule = "a claim supersedes a record only by exactly its present token"
	ruleSupersedeOf rule = "a claim never supersedes a record of another incarnation"
	ruleReplaced    rule = "a claim that won tells as replaced at most the token it superseded, and nothing when the name was free"
	ruleLinear      rule = "operations on a name are linearizable: each seems to happen at one moment between request and reply"
)

// Names.
const (
	ruleAlike rule = "names are compared byte by byte: those that differ in one are two"
)

// Leases under leases.
const (
	ruleWhile      rule = "a claim with a While is won only while exactly that ownership stands; else it is answered with ErrParentLost, also if another has the name, and nothing is applied"
	ruleWhileStays rule = "what was won while another ownership stood stays when that ends"
)

// Tokens.
const (
	ruleToken     rule = "every success issues a new token, higher than any token the name ever had"
	ruleTokenZero rule = "a token is never 0"
)

// Release.
const (
	ruleRelease      rule = "a release with token and nonce of the record removes it, and says so"
	ruleReleaseToken rule = "a release with another token removes nothing"
	ruleReleaseNonce rule = "a release with another nonce removes nothing"
	ruleReleaseOnly  rule = "a release touches no other name"
	ruleReleaseOnce  rule = "of several releases of one ownership, exactly one removes it"
)

// Batches.
const (
	ruleOrder      rule = "outcomes, grants and only they come in the order of the arguments"
	ruleBatchTwice rule = "one name claimed twice in a batch is won at most once"
	ruleBatchAll   rule = "a batch within the store's Limits is taken whole"
	ruleEmpty      rule = "a call about nothing succeeds and changes nothing"
)

// Sessions.
const (
	ruleGrant       rule = "a session is granted at least the TTL asked for"
	ruleReopen      rule = "opening a session again is a renewal: its records stay and live on"
	ruleRenew       rule = "a renewed session keeps every record under it"
	ruleEarly       rule = "a record does not expire before the granted TTL since its last renewal was sent has passed"
	ruleLate        rule = "a record that is not renewed is gone soon after its granted TTL"
	ruleGoneRenew   rule = "renewing a session that is gone answers ErrSessionGone for that session, and for no other"
	ruleRevive      rule = "a session that expired is never revived, nor are its records"
	ruleGoneAcquire rule = "a claim under a session that is gone is answered with ErrSessionGone, and nothing is applied"
	ruleClose       rule = "closing a session removes every record under it"
	ruleCloseOnly   rule = "closing a session removes no record of another session"
	ruleCloseTwice  rule = "closing a session that is gone is no error"
)

// Transfer.
const (
	ruleTransfer        rule = "a transfer by token and nonce moves the record to the offer's owner, session and nonce"
	ruleTransferRefused rule = "a transfer by a token or nonce that is not the record's is refused, and nothing is applied"
	ruleTransferGone    rule = "a transfer to a session that is gone is refused with ErrSessionGone, and the record stays as it was"
	ruleTransferAtomic  rule = "a transfer is atomic: there is no moment in which a third sees the name free or wins it"
	ruleTransferExpiry  rule = "a transferred record lives and ends with the target's session, not with the mover's"
	ruleTransferMeta    rule = "a transfer keeps the metadata when given none, and replaces it when given some"
	ruleTransferOnce    rule = "one ownership can be given away once: of several transfers and releases exactly one is applied"
)

// Contexts.
const (
	ruleContextDone  rule = "a call with a context that is done fails promptly and applies nothing"
	ruleDeadline     rule = "a call ends soon after its context's deadline"
	ruleUnknown      rule = "a call that got no answer returns an error that claims nothing: neither a refusal nor ErrSessionGone"
	ruleUnsupported  rule = "what the store can't do it says with ErrUnsupported"
	ruleWholeListing rule = "a listing that ended early says so with an error"
)

// Reading.
const (
	ruleGet        rule = "Get returns the records of exactly those names that are held"
	ruleList       rule = "List yields every held record whose name begins with the prefix, byte by byte, once, and no other"
	ruleListed     rule = "List yields every record that stands under the session, once, and no other"
	ruleListedGone rule = "List of a session that is gone yields ErrSessionGone and nothing else"
	ruleRoundTrip  rule = "names, owners, nonces and metadata come back as they were given"
	ruleMapShared  rule = "maps and slices passed in or returned are not shared with the store"
	ruleRecordTTL  rule = "Record.TTL is the granted TTL of the record's session, and Left is not negative"
	ruleGranted    rule = "Record.Granted of an ownership is the same for each reader and however often it is renewed, and later than that of the one before it"
	ruleSeenByAll  rule = "what one client was told has happened, every other client sees"
)

// Watching.
const (
	ruleWatchSnapshot rule = "a watch begins with a put for each record that stands"
	ruleWatchSynced   rule = "a watch yields EventSynced exactly once, after its snapshot"
	ruleWatchChange   rule = "a watch tells of every change since its snapshot, or of every deletion, with no gap"
	ruleWatchOrder    rule = "a watch tells the changes of a name in their order, and nothing that did not happen"
	ruleWatchRevision rule = "an event's revision compares with tokens: of a put it is the record's token, of a deletion at least the removed token and below the next"
	ruleWatchPrefix   rule = "a watch tells of names with its prefix and of no other"
	ruleWatchEnd      rule = "a watch ends promptly when its context is done or its consumer stops, and leaves nothing running"
	ruleWatchRecord   rule = "the record in a put is the whole record"
	ruleDeletionsOnly rule = "a watch of deletions yields EventSynced once, first, and then nothing but deletions"
	ruleProgress      rule = "a watch that runs yields EventProgress as often as Scope.Progress says, behind what it has told"
)

// Foreign values, restarts.
const (
	ruleBadAcquire rule = "a name under which stands no record is not won: the claim is answered with ErrBadRecord"
	ruleBadList    rule = "List yields what is no record with its name and ErrBadRecord, and goes on"
	ruleBadRead    rule = "what is no record is never returned as one"
	ruleBadGet     rule = "what is no record holds its name: Get returns it with the name, and without a token or an owner"
	ruleBadWatch   rule = "a watch tells of what is no record with EventBad, in its snapshot and after"
	ruleRestart    rule = "after a restart of the backing store, live records stand and tokens go on increasing"
)

// The engine over the store.
const (
	ruleKeeper rule = "the lease engine works over the store"
)

// What is out of its bounds.
const (
	ruleInvalid rule = "a claim, session or move that store.Limits.ValidateClaim, ValidateSession or ValidateTransfer refuses is answered with ErrInvalid, and nothing of it is applied"
	ruleLimits  rule = "what is beyond the store's Limits is answered with ErrInvalid, and nothing of it is applied"
	ruleWithin  rule = "what is within the store's Limits is taken"
	ruleBadMove rule = "what is no record is not transferred"
	ruleOnly    rule = "a claim or move that is refused, and what is no record, harms no other name of the call"
)

// After a name has changed hands.
const (
	ruleRenewOnly rule = "a renewal extends no record of another session, also not under a name that was once its own"
)
