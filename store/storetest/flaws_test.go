package storetest

// flaw is one way to break the contract, in words.
type flaw struct {
	text   string
	by     []by // the cases that must notice it; others may, too
	chance bool // it does harm only if another call comes in between
}

// by is a case, and the rule that it must report.
type by struct {
	name string
	rule rule // "": any, where it is for the engine to say
}

var (
	flawless *flaw
	flaws    []*flaw // in any order
	lawful   []*flaw // what the contract allows
)

func breaks(text string, by ...by) *flaw {
	flaws = append(flaws, &flaw{text: text, by: by})
	return flaws[len(flaws)-1]
}

func breaksByChance(text string, by ...by) *flaw {
	f := breaks(text, by...)
	f.chance = true
	return f
}

func allowed(text string) *flaw {
	lawful = append(lawful, &flaw{text: text})
	return lawful[len(lawful)-1]
}

// Who wins.
var (
	grantsTwice = breaks("acquire ignores the holder",
		by{"hands/nothing", ruleHeld}, by{"keeper/one-holder", ""}, by{"keeper/contention-astray", ""})
	acquireRaces = breaksByChance("acquire looks and writes in two steps",
		by{"acquire/at-once", ruleOneWinner}, by{"batch/at-once", ruleOneWinner},
		by{"churn/thirty-clients", ruleLinear}, by{"churn/one-name", ruleLinear}, by{"churn/requests-astray", ruleLinear})
	ownAgain = breaks("the own incarnation gets its record again, under the old token",
		by{"acquire/at-once", ""}, by{"hands/nothing", ruleHeld},
		by{"keeper/transfer", ""})
	ownTakesOver = breaks("a claim of the own incarnation always replaces its record",
		by{"hands/nothing", ruleHeld})
	identityByID = breaks("owners are compared by ID, not by incarnation", by{"hands/nothing", ruleSupersedeOf})
	holderStale  = breaks("a refusal names the holder before this one",
		by{"acquire/at-once", ruleHolder},
		by{"churn/one-name", ruleLinear})
	holderHidden = breaks("a refusal does not say who holds the name",
		by{"hands/nothing", ruleHolder}, by{"acquire/at-once", ruleHolder},
		by{"keeper/one-holder", ruleKeeper}, by{"keeper/batches", ""})
	foldsCase          = breaks("names are folded to lower case", by{"alike/list", ruleAlike})
	truncatesNames     = breaks("names are cut at 255 bytes", by{"limits/names", ruleRecord})
	supersedesAnybody  = breaks("Supersedes works on other incarnations' records", by{"hands/nothing", ruleSupersedeOf})
	supersedesAnyToken = breaks("Supersedes does not compare the token",
		by{"hands/supersede", ruleSupersedeBy}, by{"acquire/supersedes-at-once", ruleSupersedeBy})
	supersedesNever = breaks("Supersedes is ignored",
		by{"hands/supersede", ruleSupersede})
	supersedesOnlyHeld = breaks("Supersedes makes a claim of a free name fail",
		by{"acquire/supersedes-free", ruleFree}, by{"session/expiry-frees-supersedes", ruleFree})
	supersedesUnseen = breaks("a claim of a free name says that it replaced what it was to supersede",
		by{"acquire/supersedes-free", ruleReplaced}, by{"session/expiry-frees-supersedes", ruleReplaced})
	supersedeRaces        = breaksByChance("a superseding claim looks and writes in two steps", by{"acquire/supersedes-at-once", ruleSupersedeBy})
	supersedeKeepsSession = breaks("a superseding claim leaves the record under its old session",
		by{"hands/supersede-elsewhere", ruleCloseOnly})
	supersedeKeepsMetadata = breaks("a superseding claim leaves the old metadata", by{"acquire/supersedes-metadata", ruleRecord})
)

// Tokens.
var (
	tokenZero = breaks("tokens begin at 0",
		by{"hands/release", ruleTokenZero}, by{"setup/bad-record-in-lists", ruleBadRead})
	tokensRestart = breaks("a name's tokens begin again when it was deleted",
		by{"read/list-among-changes", ruleToken})
	tokensRestartAfterClose = breaks("a name's tokens begin again when its session was closed",
		by{"hands/close", ruleToken}, by{"token/over-many-changes", ruleToken}, by{"session/close", ruleToken})
	tokensRestartAfterExpiry = breaks("a name's tokens begin again when it expired", by{"hands/expiry", ruleToken})
	tokensByTime             = breaks("tokens are taken from a clock of whole seconds", by{"token/over-many-changes", ruleToken})
	supersedeKeepsToken      = breaks("a superseding claim keeps the token",
		by{"hands/supersede", ruleToken})
)

// Release.
var (
	releasesByName = breaks("release deletes by name",
		by{"hands/nothing", ruleReleaseToken}, by{"hands/release", ruleReleaseOnly}, by{"hands/revoke", ruleReleaseOnly},
		by{"hands/transfer", ruleReleaseToken}, by{"hands/transfer-and-back", ruleReleaseToken})
	releasesByToken     = breaks("release finds the record by token, whatever the name", by{"hands/nothing", ruleReleaseOnly})
	releaseIgnoresNonce = breaks("release ignores the nonce", by{"hands/nothing", ruleReleaseNonce})
	releaseIgnoresToken = breaks("release ignores the token", by{"hands/nothing", ruleReleaseToken}, by{"hands/revoke", ruleReleaseToken})
	releasesNothing     = breaks("releasing what does not stand is reported as done",
		by{"hands/release", ruleReleaseOnce}, by{"release/at-once", ruleTransferOnce})
	releaseDenies = breaks("a release that removed the record is reported as refused",
		by{"hands/release", ruleRelease}, by{"acquire/supersedes-free", ruleRelease},
		by{"read/values", ruleRelease})
	releaseOnlySays = breaks("release removes nothing and says that it did",
		by{"hands/release", ruleRelease}, by{"read/get", ruleGet}, by{"keeper/batches", ""})
	releaseRaces = breaksByChance("release looks and deletes in two steps",
		by{"release/at-once", ruleTransferOnce})
	releaseOrder = breaks("outcomes of a release come in reverse", by{"batch/large", ruleOrder})
)

// Batches.
var (
	batchOrder = breaks("outcomes come in the order of the names",
		by{"batch/one-name-twice", ruleBatchTwice}, by{"session/close", ruleRecord},
		by{"read/list-among-changes", ruleRecord})
	batchStopsAtRefusal = breaks("a batch stops at the first refusal", by{"batch/at-once", ruleHolder})
	batchTruncates      = breaks("a batch is cut at 128 claims",
		by{"batch/large", ruleOrder}, by{"context/cancelled-in-a-list", ruleFree}, by{"read/list-many", ruleBatchAll})
	batchTwiceWins   = breaks("each claim of a batch is judged by what stood before it", by{"batch/one-name-twice", ruleBatchTwice})
	batchInterrupted = allowed("a batch is interrupted between names")
	emptyFails       = breaks("an empty batch is an error", by{"batch/empty", ruleEmpty})
	keepsArguments   = breaks("the claim's metadata map is kept", by{"batch/arguments-are-not-kept", ruleMapShared})
	sharesMetadata   = breaks("returned records share the store's metadata map",
		by{"batch/arguments-are-not-kept", ruleMapShared}, by{"watch/record", ruleMapShared})
)

// Sessions.
var (
	grantsLess   = breaks("less TTL is granted than asked for", by{"acquire/free", ruleGrant})
	neverExpires = breaks("records never expire",
		by{"session/expired-unseen-is-gone", ruleRevive})
	expiresEarly = breaks("sessions expire before their TTL",
		by{"session/expires-from-lists", ruleEarly},
		by{"session/acquire-does-not-renew", ruleEarly}, by{"hands/expiry", ruleEarly})
	expiresLate = breaks("sessions expire long after their TTL",
		by{"session/expired-unseen-is-gone", ruleRevive})
	expiresAll = breaks("when one session expires, all records go",
		by{"session/expires-alone", ruleEarly}, by{"transfer/to-expired-session", ruleTransferGone},
		by{"transfer/renewed-by-target", ruleTransferExpiry})
	expiryUnseen = breaks("acquirers do not see that a record expired",
		by{"session/expires-for-acquirers", ruleLate}, by{"session/expired-unseen-is-gone", ruleRevive},
		by{"session/expired-acquires-nothing", ruleGoneAcquire})
	expiredBlocks = breaks("a name whose record expired is refused to everybody",
		by{"hands/expiry", ruleFree}, by{"session/expires-for-acquirers", ruleLate},
		by{"session/expiry-frees-supersedes", ruleFree}, by{"keeper/crash", ""})
	listShowsExpired = breaks("List shows expired records", by{"session/expires-from-lists", ruleLate})
	revivesSession   = breaks("an expired session loses its records and lives on",
		by{"hands/expiry", ruleGoneRenew}, by{"session/expired-unseen-is-gone", ruleRevive})
	revivesRecords = breaks("renewing an expired session brings its records back",
		by{"session/expired-unseen-is-gone", ruleRevive}, by{"hands/expiry", ruleGoneRenew})
	renewsGone = breaks("renewing a session that is gone is granted",
		by{"session/expired-unseen-is-gone", ruleRevive})
	renewsAllOrNone = breaks("one session that is gone fails the whole renewal",
		by{"hands/close-by-another", ruleGoneRenew}, by{"hands/close", ruleGoneRenew})
	renewsOneRecord     = breaks("a renewal keeps only one of the session's records", by{"session/renewals-keep-all", ruleRenew})
	renewExtendsNothing = breaks("a renewal does not extend the session",
		by{"session/expires-alone", ruleEarly},
		by{"transfer/renewed-by-target", ruleEarly})
	reopenExtendsNothing = breaks("opening a session again does not extend it", by{"session/open-again-extends", ruleReopen})
	reopenReplaces       = breaks("opening a session again removes its records",
		by{"session/open-again-extends", ruleReopen})
	acquireRenews = breaks("acquiring extends the session", by{"session/acquire-does-not-renew", ruleLate})
	goneAcquires  = breaks("claims under a session that is gone succeed",
		by{"session/close-against-acquire", ruleClose})
	goneApplies = breaks("claims under a session that is gone are applied, and ErrSessionGone is said",
		by{"hands/close", ruleGoneAcquire}, by{"session/expired-acquires-nothing", ruleGoneAcquire},
		by{"session/close-against-acquire", ruleClose})
	goneUnsaid = breaks("claims under a session that is gone fail, and it is not said why",
		by{"hands/close", ruleGoneAcquire}, by{"hands/expiry", ruleGoneAcquire})
	goneIsRefusal = breaks("claims under a session that is gone are refused as if the name was held",
		by{"hands/close-by-another", ruleGoneAcquire}, by{"hands/close", ruleGoneAcquire},
		by{"session/close-against-acquire", ruleHolder}, by{"session/expired-acquires-nothing", ruleGoneAcquire})
	closesOwner = breaks("closing a session removes all records of its owner",
		by{"hands/supersede-elsewhere", ruleCloseOnly}, by{"session/close", ruleCloseOnly})
	closesBygone = breaks("closing a session removes every name it once held",
		by{"hands/release", ruleCloseOnly}, by{"hands/close", ruleCloseOnly}, by{"hands/expiry", ruleCloseOnly},
		by{"hands/transfer", ruleCloseOnly})
	closeLeavesRecords = breaks("closing a session leaves its records", by{"hands/close", ruleClose}, by{"session/close", ruleClose})
	closeTwiceFails    = breaks("closing a session that is gone is an error",
		by{"hands/close", ruleCloseTwice}, by{"hands/expiry", ruleCloseTwice})
	closeRaces = breaksByChance("closing removes the records first and the session later", by{"session/close-against-acquire", ruleClose})
)

// Transfer.
var (
	transfersAnything = breaks("transfer is unconditional",
		by{"hands/nothing", ruleTransferRefused}, by{"hands/transfer", ruleTransferRefused},
		by{"release/at-once", ruleTransferOnce})
	transfersFree = breaks("transfer of a free name creates a record",
		by{"hands/transfer", ruleTransferRefused}, by{"hands/release", ruleTransferRefused},
		by{"hands/expiry", ruleTransferRefused})
	transferIgnoresNonce = breaks("transfer ignores the nonce", by{"hands/nothing", ruleTransferRefused}, by{"transfer/mixed", ruleOrder})
	transferIgnoresToken = breaks("transfer ignores the token", by{"hands/nothing", ruleTransferRefused})
	transferKeepsToken   = breaks("transfer keeps the token", by{"hands/transfer", ruleToken}, by{"hands/transfer-by-another", ruleToken})
	transferKeepsNonce   = breaks("transfer keeps the mover's nonce", by{"hands/transfer", ruleTransfer})
	transferKeepsSession = breaks("a transferred record expires with the mover's session",
		by{"token/over-many-changes", ruleFree}, by{"hands/transfer", ruleCloseOnly},
		by{"transfer/expires-with-target", ruleLate},
		by{"transfer/against-close", ruleClose})
	transferKeepsMetadata = breaks("transfer ignores the metadata it is given", by{"transfer/metadata", ruleTransferMeta})
	transferDropsMetadata = breaks("transfer drops the metadata", by{"transfer/metadata", ruleTransferMeta})
	transferRenews        = breaks("transfer extends the target's session", by{"transfer/expires-with-target", ruleLate})
	transferLeavesGap     = breaksByChance("transfer deletes and writes in two steps",
		by{"transfer/no-gap", ruleTransferAtomic}, by{"churn/thirty-clients", ruleLinear}, by{"churn/one-name", ruleLinear},
		by{"churn/requests-astray", ruleLinear})
	transferHides = breaks("a name cannot be read while it is transferred", by{"transfer/no-gap", ruleTransferAtomic})
	transferRaces = breaksByChance("transfer looks and writes in two steps",
		by{"release/at-once", ruleTransferOnce})
	transferCloseRaces = breaksByChance("transfer looks at the target's session first and writes later",
		by{"transfer/against-close", ruleClose})
	transfersToGone = breaks("transfer to a session that is gone succeeds",
		by{"hands/close", ruleTransferGone})
	transferGoneRemoves = breaks("transfer to a session that is gone removes the record",
		by{"hands/close", ruleTransferGone})
	transferGoneUnsaid = breaks("transfer to a session that is gone is refused with no reason",
		by{"hands/close", ruleTransferGone}, by{"transfer/to-expired-session", ruleTransferGone})
	transferOrder              = breaks("outcomes of a transfer come in reverse", by{"transfer/mixed", ruleTransferGone})
	transferUnsupported        = allowed("transfer is not supported")
	transferUnsupportedApplies = breaks("transfer says that it is not supported, and is applied",
		by{"hands/transfer", ruleTransfer}, by{"hands/transfer-by-another", ruleTransfer},
		by{"hands/transfer-and-back", ruleTransfer}, by{"transfer/unsupported", ruleUnsupported},
		by{"transfer/no-gap", ruleTransfer}, by{"keeper/transfer", ""})
)

// Contexts and reading.
var (
	ignoresContext = breaks("contexts are ignored", by{"context/done", ruleContextDone})
	refusesInDoubt = breaks("a claim with no time left is refused as if the name was held",
		by{"context/done", ruleContextDone}, by{"context/short-deadlines", ruleUnknown})
	hangs              = breaks("calls that get no answer outlast their context", by{"context/unreachable", ruleDeadline})
	hangsWatching      = breaks("a watch that gets no answer outlasts its context", by{"context/unreachable", ruleDeadline})
	refusesUnreachable = breaks("claims that get no answer are refused as if the name was held", by{"context/unreachable", ruleUnknown})
	goneUnreachable    = breaks("calls that get no answer say ErrSessionGone", by{"context/unreachable", ruleUnknown})
	listEndsSilently   = breaks("List that is cancelled ends as if it was complete",
		by{"context/done", ruleContextDone}, by{"context/cancelled-in-a-list", ruleWholeListing})
	staleGet = breaks("Get sometimes reads an old copy",
		by{"context/short-deadlines", ruleSeenByAll}, by{"read/values", ruleRoundTrip}, by{"churn/thirty-clients", ruleLinear}, by{"churn/one-name", ruleLinear})
	getsByPrefix = breaks("Get also returns names that begin with the one asked for",
		by{"session/renewals-keep-all", ruleGet}, by{"read/get", ruleGet})
	listsBySegment   = breaks("List takes the prefix for whole segments", by{"alike/list", ruleList})
	listsOnePage     = breaks("List ends after a page", by{"read/list-many", ruleList})
	listPagesByIndex = breaksByChance("List pages by position while names come and go",
		by{"read/list-among-changes", ruleList})
	listUnsupported          = allowed("List is not supported")
	listUnsupportedSometimes = breaks("List answers only the empty prefix", by{"read/list-unsupported", ruleUnsupported})
	losesMetadata            = breaks("empty metadata values are dropped", by{"read/values", ruleRecord})
	losesAddress             = breaks("the owner's address is dropped", by{"acquire/free", ruleRecord}, by{"alike/list", ruleRecord})
	roundsNonces             = breaks("nonces are rounded to 53 bits", by{"read/values", ruleRecord})
	noRecordTTL              = breaks("Record.TTL is not filled in",
		by{"acquire/free", ruleRecordTTL}, by{"read/values", ruleRecordTTL})
	grantedOfRenewals = breaks("Record.Granted is when the record was renewed last", by{"read/granted", ruleGranted})
	grantedOfReading  = breaks("Record.Granted is when the record is read", by{"read/granted", ruleGranted})
	grantedOnce       = breaks("Record.Granted is that of the name's first ownership", by{"read/granted", ruleGranted})
)

// Watching.
var (
	watchDropsOne = breaks("a watch misses an event now and then",
		by{"watch/changes", ruleWatchChange},
		by{"watch/no-gap", ruleWatchChange}, by{"deletions/changes", ruleWatchChange})
	watchMissesReplacing = breaks("a watch misses that a record replaces another",
		by{"watch/changes", ruleWatchChange}, by{"watch/transfer", ruleWatchChange}, by{"watch/no-gap", ruleWatchChange})
	watchMissesDeletions = breaks("a watch misses deletions",
		by{"watch/changes", ruleWatchChange}, by{"watch/close", ruleWatchChange}, by{"deletions/close", ruleWatchChange})
	expiryUntold = breaks("a watch tells of an expiry only when somebody calls the store",
		by{"watch/expiry", ruleLate}, by{"deletions/expiry", ruleLate})
	watchStartsLate = breaksByChance("changes between the snapshot and the subscription are missed",
		by{"watch/no-gap", ruleWatchChange}, by{"watch/slow-consumer", ruleWatchChange})
	watchBufferOverflows = breaksByChance("a slow watcher silently misses events",
		by{"watch/close", ruleWatchChange}, by{"watch/slow-consumer", ruleWatchChange})
	watchSwaps            = breaksByChance("events that wait are swapped", by{"watch/transfer", ruleWatchRecord})
	watchInventsDeletions = breaks("a watch tells of deletions that did not happen", by{"watch/changes", ruleWatchOrder})
	watchNoSnapshot       = breaks("a watch has no snapshot", by{"watch/record", ruleWatchChange}, by{"setup/bad-record-in-watches", ruleBadWatch})
	watchSnapshotTwice    = breaks("the snapshot comes twice", by{"watch/snapshot", ruleWatchSnapshot})
	watchNeverSynced      = breaks("EventSynced never comes", by{"watch/ends-with-context", ruleWatchSynced})
	watchSyncedFirst      = breaks("EventSynced comes before the snapshot", by{"watch/snapshot", ruleWatchSynced})
	watchSyncedOften      = breaks("EventSynced comes again and again", by{"watch/transfer", ruleWatchSynced})
	deletionRevisionZero  = breaks("deletions have no revision",
		by{"watch/changes", ruleWatchRevision}, by{"watch/close", ruleWatchRevision},
		by{"deletions/changes", ruleWatchRevision})
	deletionRevisionAhead = breaks("a deletion's revision is ahead of the next token",
		by{"watch/changes", ruleWatchRevision}, by{"watch/expiry", ruleWatchRevision},
		by{"deletions/changes", ruleWatchRevision})
	putRevisionAhead = breaks("a put's revision is not its token",
		by{"watch/snapshot", ruleWatchRevision}, by{"watch/record", ruleWatchRevision})
	putRevisionZero    = breaks("puts have no revision", by{"watch/snapshot", ruleWatchRevision})
	watchIgnoresPrefix = breaks("a watch tells of every name",
		by{"watch/snapshot", ruleWatchPrefix})
	watchNamesOnly = breaks("puts carry no metadata", by{"watch/record", ruleWatchRecord})
	watchLeaks     = breaks("every watch leaves a goroutine",
		by{"watch/leaves-nothing", ruleWatchEnd}, by{"deletions/leaves-nothing", ruleWatchEnd})
	watchOutlivesContext = breaks("a watch does not look at its context",
		by{"watch/ends-with-context", ruleWatchEnd}, by{"deletions/ends-with-context", ruleWatchEnd})
	watchGivesUp              = breaks("a quiet watch ends without a word", by{"watch/expiry", ruleLate})
	watchUnsupported          = allowed("Watch is not supported")
	watchUnsupportedSometimes = breaks("Watch says that it is not supported only of some prefixes", by{"watch/unsupported", ruleUnsupported})
	deletionsTellPuts         = breaks("a watch of deletions tells of puts",
		by{"deletions/changes", ruleDeletionsOnly}, by{"deletions/expiry", ruleDeletionsOnly})
	progressUntold         = breaks("a watch does not say that it runs", by{"watch/progress", ruleProgress}, by{"deletions/progress", ruleProgress})
	deletionsSnapshot      = breaks("a watch of deletions has a snapshot", by{"deletions/changes", ruleDeletionsOnly})
	deletionsSyncedLast    = breaks("EventSynced of a watch of deletions comes with the first of them", by{"deletions/changes", ruleWatchSynced})
	deletionsStartLate     = breaksByChance("a watch of deletions says that it has begun and then begins", by{"deletions/no-gap", ruleWatchChange})
	deletionsTellTransfers = breaksByChance("a watch of deletions takes a transfer for one", by{"deletions/transfer", ruleWatchChange})
)

// Foreign values, restarts.
var (
	badOverwritten = breaks("what is no record is overwritten", by{"setup/bad-record", ruleBadAcquire})
	badFailsBatch  = breaks("what is no record fails the whole batch", by{"setup/bad-record", ruleOnly})
	badEndsList    = breaks("what is no record ends the listing", by{"setup/bad-record-in-lists", ruleBadList})
	badFailsGet    = breaks("what is no record fails the whole Get", by{"setup/bad-record", ruleBadGet})
	badEndsGet     = breaks("Get looks at nothing behind what is no record", by{"setup/bad-record", ruleBadGet})
	badUngot       = breaks("what is no record is left out by Get", by{"setup/bad-record", ruleBadGet})
	badUnlisted    = breaks("what is no record is left out of lists", by{"setup/bad-record-in-lists", ruleBadList})
	badIsRecord    = breaks("what is no record is returned as an empty one",
		by{"setup/bad-record", ruleBadGet}, by{"setup/bad-record-in-lists", ruleBadList})
	badUntold           = breaks("watches leave out what is no record", by{"setup/bad-record-in-watches", ruleBadWatch})
	restartResetsTokens = breaks("tokens begin again after a restart", by{"setup/restart", ruleToken})
	restartLosesRecords = breaks("a restart loses live records", by{"setup/restart", ruleRestart})
)

// What is out of its bounds, and what was once one's own.
var (
	claimsUnchecked   = breaks("metadata is written as it comes", by{"invalid/claims", ruleInvalid})
	badClaimFailsAll  = breaks("a claim that is invalid fails the whole batch", by{"invalid/claims", ruleOnly})
	sessionsUnchecked = breaks("sessions are opened for anybody", by{"invalid/sessions", ruleInvalid})
	movesUnchecked    = breaks("transfer looks at nothing of an offer but its session", by{"invalid/offers", ruleInvalid})
	movesBad          = breaks("transfer writes over what is no record", by{"setup/bad-record", ruleBadMove})
	badMoveFailsAll   = breaks("a move that is invalid fails the whole call", by{"invalid/offers", ruleOnly})
	renewsByName      = breaks("a renewal extends every record under a name that was once the session's",
		by{"hands/renewal-of-another's", ruleRenewOnly})
	revivesHeld = breaks("a release by token or by nonce will do",
		by{"hands/release", ""}, by{"hands/revoke", ""}, by{"hands/close", ""}, by{"hands/close-by-another", ""},
		by{"hands/expiry", ""}, by{"hands/supersede", ""}, by{"hands/supersede-elsewhere", ""}, by{"hands/transfer", ""},
		by{"hands/transfer-by-another", ""})
	movesByEither     = breaks("a transfer by token or by nonce will do", by{"hands/revoke", ""}, by{"hands/transfer", ""})
	supersedesByNonce = breaks("a claim with the nonce of the record supersedes it",
		by{"hands/release", ""}, by{"hands/transfer-by-another", ""})
)

// Of observed.Objects.
var (
	objectsPutAlways = breaks("Objects: Put does not compare the version",
		by{"acquire/at-once", ruleOneWinner}, by{"acquire/supersedes-at-once", ""})
	objectsPutAgain      = breaks("Objects: Put with a version makes an object that was deleted", by{"hands/close-by-another", ruleGoneRenew})
	objectsDeleteNothing = breaks("Objects: Delete says that it did, and does nothing",
		by{"session/close", ruleClose}, by{"hands/expiry", ruleGoneRenew})
	objectsForget     = breaks("Objects: what says that a name is free is deleted", by{"hands/release", ruleToken})
	objectsNumberAnew = breaks("Objects: numbers of versions begin again with a new object", by{"hands/release", ruleToken})
	objectsSilentMiss = breaks("Objects: a Get without an answer finds nothing", by{"context/unreachable", ruleUnknown})
	objectsListPage   = breaks("Objects: List ends after a page", by{"read/list-many", ruleList})
)

// Listing by session.
var (
	listedLeavesOut = breaks("List of a session leaves the first of more than two records out",
		by{"listed/many", ruleListed}, by{"listed/among-changes", ruleListed})
	listedOthers = breaks("List of a session yields the records of the owner's other sessions",
		by{"listed/moved", ruleListed})
	listedReleased   = breaks("List of a session yields what was released", by{"listed/after-every-write", ruleListed})
	listedStale      = breaks("List of a session reads an old copy of what was superseded", by{"listed/after-every-write", ruleListed})
	listedByClaimant = breaks("List of a session goes by the session that first held the name", by{"listed/moved", ruleListed})
	listedPage       = breaks("List of a session ends after a page", by{"listed/many", ruleListed})
	listedGoneUnsaid = breaks("List of a session that is gone is empty",
		by{"hands/close", ruleListedGone}, by{"hands/expiry", ruleListedGone})
	listedSilent      = breaks("List of a session with a context that is done ends without a word", by{"context/done", ruleContextDone})
	listedUnsupported = allowed("sessions are not listed")
)

// What databases do to names.
var (
	collatesCase    = breaks("names are compared without their case", by{"alike/claims", ruleAlike}, by{"alike/list", ruleAlike})
	collatesPadding = breaks("names are compared without the spaces at their end", by{"alike/claims", ruleAlike})
	collatesForms   = breaks("names are compared in a normal form", by{"alike/claims", ruleAlike})
	listsByLike     = breaks("List takes the prefix for a pattern of LIKE", by{"alike/list", ruleList})
	listsByGlob     = breaks("List takes the prefix for a glob", by{"alike/list", ruleList})
	listsFolded     = breaks("List compares without case", by{"alike/list", ruleList})
	listsTrimmed    = breaks("List trims the prefix", by{"alike/list", ruleList})
	watchesByLike   = breaks("a watch takes the prefix for a pattern of LIKE",
		by{"watch/alike", ruleWatchPrefix}, by{"deletions/alike", ruleWatchPrefix})
	watchesEscaped = breaks("a watch takes a backslash in the prefix for an escape",
		by{"watch/alike", ruleWatchPrefix}, by{"deletions/alike", ruleWatchPrefix})
	listsByCharacter = breaks("List compares character by character: a letter without its accent is no prefix", by{"alike/list", ruleList})
)

// Bounds.
var (
	limitTTLUnkept      = breaks("a TTL above MaxTTL is granted", by{"limits/ttl", ruleLimits})
	limitTTLCut         = breaks("MaxTTL itself is not granted", by{"limits/ttl", ruleGrant})
	limitNameUnkept     = breaks("a name that CheckName refuses is taken", by{"limits/names", ruleLimits})
	limitNameSilent     = breaks("a name that CheckName refuses is refused as if it was held", by{"limits/names", ruleLimits})
	limitNameTight      = breaks("a name that CheckName allows is refused", by{"limits/names", ruleWithin})
	limitMetadataUnkept = breaks("metadata above MaxMetadata is taken", by{"limits/metadata", ruleLimits})
	limitMetadataTight  = breaks("metadata of MaxMetadata is refused", by{"limits/metadata", ruleWithin})
	limitMetadataCoded  = breaks("MaxMetadata is compared with the length of an encoding", by{"limits/metadata", ruleWithin})
	limitMoveUnkept     = breaks("a transfer takes metadata above MaxMetadata", by{"limits/metadata", ruleLimits})
	limitMoveTight      = breaks("a transfer refuses metadata of MaxMetadata", by{"limits/metadata", ruleWithin})
)

// Claims with a While.
var (
	whileIgnored = breaks("a claim ignores While",
		by{"while/superseding", ruleWhile}, by{"while/in-a-batch", ruleWhile},
		by{"while/as-it-goes", ruleWhile}, by{"keeper/parent", ""})
	whileByName  = breaks("a claim looks only whether the name of While is held", by{"hands/nothing", ruleWhile})
	whileNoToken = breaks("While is compared without its token", by{"hands/supersede", ruleWhile})
	whileNoNonce = breaks("While is compared without its nonce", by{"hands/supersede", ruleWhile})
	whileOwnOnly = breaks("While has to be the claimant's own", by{"while/stands", ""})
	whileUnsaid  = breaks("a claim whose While does not stand is refused as if the name was held",
		by{"keeper/parent", ""})
	whileHolderFirst        = breaks("a claim of a held name does not look at While", by{"while/in-a-batch", ruleWhile})
	whileFreeOnly           = breaks("a claim that supersedes does not look at While", by{"while/superseding", ruleWhile})
	whileRaces              = breaks("While is looked at first, and the record written later", by{"while/as-it-goes", ruleWhile})
	whileFailsBatch         = breaks("a claim whose While does not stand fails the whole batch", by{"while/in-a-batch", ruleWhile})
	whileTakesAlong         = breaks("what was won under an ownership goes when that is released", by{"while/stands", ruleWhileStays})
	whileSticks             = breaks("a claim that supersedes has the While of what it supersedes", by{"while/stands", ""})
	whileUnchecked          = breaks("a While that is no ownership is a condition that is not met", by{"while/invalid", ruleInvalid})
	whileUnsupported        = allowed("While is not supported")
	whileUnsupportedIgnored = breaks("While is not supported, and ignored", by{"while/unsupported", ruleUnsupported})
)
