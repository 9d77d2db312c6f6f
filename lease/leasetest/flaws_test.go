package leasetest

// flaw is one way to break the contract, in words.
type flaw string

// Who wins.
const (
	flawless               flaw = ""
	grantsTwice            flaw = "acquire ignores the holder"
	acquireRaces           flaw = "acquire looks and writes in two steps"
	ownAgain               flaw = "the own incarnation gets its record again, under the old token"
	ownTakesOver           flaw = "a claim of the own incarnation always replaces its record"
	identityByID           flaw = "owners are told apart by ID, not by incarnation"
	holderStale            flaw = "a refusal names the holder before this one"
	holderHidden           flaw = "a refusal does not say who holds the name"
	foldsCase              flaw = "names are folded to lower case"
	truncatesNames         flaw = "names are cut at 255 bytes"
	supersedesAnybody      flaw = "Supersedes works on other incarnations' records"
	supersedesAnyToken     flaw = "Supersedes does not compare the token"
	supersedesNever        flaw = "Supersedes is ignored"
	supersedesOnlyHeld     flaw = "Supersedes makes a claim of a free name fail"
	supersedesUnseen       flaw = "a claim of a free name says that it replaced what it was to supersede"
	supersedeRaces         flaw = "a superseding claim looks and writes in two steps"
	supersedeKeepsSession  flaw = "a superseding claim leaves the record under its old session"
	supersedeKeepsMetadata flaw = "a superseding claim leaves the old metadata"
)

// Tokens.
const (
	tokenZero                flaw = "tokens begin at 0"
	tokensRestart            flaw = "a name's tokens begin again when it was deleted"
	tokensRestartAfterClose  flaw = "a name's tokens begin again when its session was closed"
	tokensRestartAfterExpiry flaw = "a name's tokens begin again when it expired"
	tokensByTime             flaw = "tokens are taken from a clock of whole seconds"
	supersedeKeepsToken      flaw = "a superseding claim keeps the token"
)

// Release.
const (
	releasesByName      flaw = "release deletes by name"
	releasesByToken     flaw = "release finds the record by token, whatever the name"
	releaseIgnoresNonce flaw = "release ignores the nonce"
	releaseIgnoresToken flaw = "release ignores the token"
	releasesNothing     flaw = "releasing what does not stand is reported as done"
	releaseDenies       flaw = "a release that removed the record is reported as refused"
	releaseOnlySays     flaw = "release removes nothing and says that it did"
	releaseRaces        flaw = "release looks and deletes in two steps"
	releaseOrder        flaw = "outcomes of a release come in reverse"
)

// Batches.
const (
	batchOrder          flaw = "outcomes come in the order of the names"
	batchStopsAtRefusal flaw = "a batch stops at the first refusal"
	batchTruncates      flaw = "a batch is cut at 128 claims"
	batchTwiceWins      flaw = "each claim of a batch is judged by what stood before it"
	batchInterrupted    flaw = "a batch is interrupted between names" // which the contract allows
	emptyFails          flaw = "an empty batch is an error"
	keepsArguments      flaw = "the claim's metadata map is kept"
	sharesMetadata      flaw = "returned records share the store's metadata map"
)

// Sessions.
const (
	grantsLess           flaw = "less TTL is granted than asked for"
	neverExpires         flaw = "records never expire"
	expiresEarly         flaw = "sessions expire before their TTL"
	expiresLate          flaw = "sessions expire long after their TTL"
	expiresAll           flaw = "when one session expires, all records go"
	expiryUnseen         flaw = "acquirers do not see that a record expired"
	expiredBlocks        flaw = "a name whose record expired is refused to everybody"
	listShowsExpired     flaw = "List shows expired records"
	revivesSession       flaw = "an expired session loses its records and lives on"
	revivesRecords       flaw = "renewing an expired session brings its records back"
	renewsGone           flaw = "renewing a session that is gone is granted"
	renewsAllOrNone      flaw = "one session that is gone fails the whole renewal"
	renewsOneRecord      flaw = "a renewal keeps only one of the session's records"
	renewExtendsNothing  flaw = "a renewal does not extend the session"
	reopenExtendsNothing flaw = "opening a session again does not extend it"
	reopenReplaces       flaw = "opening a session again removes its records"
	acquireRenews        flaw = "acquiring extends the session"
	goneAcquires         flaw = "claims under a session that is gone succeed"
	goneApplies          flaw = "claims under a session that is gone are applied, and ErrSessionGone is said"
	goneUnsaid           flaw = "claims under a session that is gone fail, and it is not said why"
	goneIsRefusal        flaw = "claims under a session that is gone are refused as if the name was held"
	closesOwner          flaw = "closing a session removes all records of its owner"
	closesBygone         flaw = "closing a session removes every name it once held"
	closeLeavesRecords   flaw = "closing a session leaves its records"
	closeTwiceFails      flaw = "closing a session that is gone is an error"
	closeRaces           flaw = "closing removes the records first and the session later"
)

// Transfer.
const (
	transfersAnything          flaw = "transfer is unconditional"
	transfersFree              flaw = "transfer of a free name creates a record"
	transferIgnoresNonce       flaw = "transfer ignores the nonce"
	transferIgnoresToken       flaw = "transfer ignores the token"
	transferKeepsToken         flaw = "transfer keeps the token"
	transferKeepsNonce         flaw = "transfer keeps the mover's nonce"
	transferKeepsSession       flaw = "a transferred record expires with the mover's session"
	transferKeepsMetadata      flaw = "transfer ignores the metadata it is given"
	transferDropsMetadata      flaw = "transfer drops the metadata"
	transferRenews             flaw = "transfer extends the target's session"
	transferLeavesGap          flaw = "transfer deletes and writes in two steps"
	transferHides              flaw = "a name cannot be read while it is transferred"
	transferRaces              flaw = "transfer looks and writes in two steps"
	transferCloseRaces         flaw = "transfer looks at the target's session first and writes later"
	transfersToGone            flaw = "transfer to a session that is gone succeeds"
	transferGoneRemoves        flaw = "transfer to a session that is gone removes the record"
	transferGoneUnsaid         flaw = "transfer to a session that is gone is refused with no reason"
	transferOrder              flaw = "outcomes of a transfer come in reverse"
	transferUnsupported        flaw = "transfer is not supported" // which the contract allows
	transferUnsupportedApplies flaw = "transfer says that it is not supported, and is applied"
)

// Contexts and reading.
const (
	ignoresContext           flaw = "contexts are ignored"
	refusesInDoubt           flaw = "a claim with no time left is refused as if the name was held"
	hangs                    flaw = "calls that get no answer outlast their context"
	hangsWatching            flaw = "a watch that gets no answer outlasts its context"
	refusesUnreachable       flaw = "claims that get no answer are refused as if the name was held"
	goneUnreachable          flaw = "calls that get no answer say ErrSessionGone"
	listEndsSilently         flaw = "List that is cancelled ends as if it was complete"
	staleGet                 flaw = "Get sometimes reads an old copy"
	getsByPrefix             flaw = "Get also returns names that begin with the one asked for"
	listsBySegment           flaw = "List takes the prefix for whole segments"
	listsByPattern           flaw = "List takes the prefix for a pattern"
	listsOnePage             flaw = "List ends after a page"
	listPagesByIndex         flaw = "List pages by position while names come and go"
	listUnsupported          flaw = "List is not supported" // which the contract allows
	listUnsupportedSometimes flaw = "List answers only the empty prefix"
	losesMetadata            flaw = "empty metadata values are dropped"
	losesAddress             flaw = "the owner's address is dropped"
	roundsNonces             flaw = "nonces are rounded to 53 bits"
	noRecordTTL              flaw = "Record.TTL is not filled in"
	grantedOfRenewals        flaw = "Record.Granted is when the record was renewed last"
	grantedOfReading         flaw = "Record.Granted is when the record is read"
	grantedOnce              flaw = "Record.Granted is that of the name's first ownership"
)

// Watching.
const (
	watchDropsOne             flaw = "a watch misses an event now and then"
	watchMissesReplacing      flaw = "a watch is not told when a record replaces another"
	watchMissesDeletions      flaw = "a watch is not told of deletions"
	expiryUntold              flaw = "a watch is told of an expiry only when somebody calls the store"
	watchStartsLate           flaw = "changes between the snapshot and the subscription are missed"
	watchBufferOverflows      flaw = "a slow watcher silently misses events"
	watchSwaps                flaw = "events that wait are swapped"
	watchInventsDeletions     flaw = "a watch tells of deletions that did not happen"
	watchNoSnapshot           flaw = "a watch has no snapshot"
	watchSnapshotTwice        flaw = "the snapshot comes twice"
	watchNeverSynced          flaw = "EventSynced never comes"
	watchSyncedFirst          flaw = "EventSynced comes before the snapshot"
	watchSyncedOften          flaw = "EventSynced comes again and again"
	deletionRevisionZero      flaw = "deletions have no revision"
	deletionRevisionAhead     flaw = "a deletion's revision is ahead of the next token"
	putRevisionAhead          flaw = "a put's revision is not its token"
	putRevisionZero           flaw = "puts have no revision"
	watchIgnoresPrefix        flaw = "a watch tells of every name"
	watchNamesOnly            flaw = "puts carry no metadata"
	watchLeaks                flaw = "every watch leaves a goroutine"
	watchOutlivesContext      flaw = "a watch does not look at its context"
	watchGivesUp              flaw = "a quiet watch ends without a word"
	watchUnsupported          flaw = "Watch is not supported" // which the contract allows
	watchUnsupportedSometimes flaw = "Watch says that it is not supported only of some prefixes"
	deletionsTellPuts         flaw = "a watch of deletions tells of puts"
	probeUnheard              flaw = "a watch does not answer a probe"
	probeAhead                flaw = "a watch answers a probe ahead of what it has to tell"
	deletionsSnapshot         flaw = "a watch of deletions has a snapshot"
	deletionsSyncedLast       flaw = "EventSynced of a watch of deletions comes with the first of them"
	deletionsStartLate        flaw = "a watch of deletions says that it has begun and then begins"
	deletionsTellTransfers    flaw = "a watch of deletions takes a transfer for one"
	deletionsUnsupported      flaw = "WatchDeletions is not supported" // which the contract allows
)

// Foreign values, restarts.
const (
	badOverwritten      flaw = "what is no record is overwritten"
	badFailsBatch       flaw = "what is no record fails the whole batch"
	badEndsList         flaw = "what is no record ends the listing"
	badFailsGet         flaw = "what is no record fails the whole Get"
	badEndsGet          flaw = "Get looks at nothing behind what is no record"
	badUngot            flaw = "what is no record is left out by Get"
	badUnlisted         flaw = "what is no record is left out of lists"
	badIsRecord         flaw = "what is no record is returned as an empty one"
	badUntold           flaw = "watches are not told of what is no record"
	restartResetsTokens flaw = "tokens begin again after a restart"
	restartLosesRecords flaw = "a restart loses live records"
)

// What is out of its bounds, and what was once one's own.
const (
	claimsUnchecked   flaw = "metadata is written as it comes"
	badClaimFailsAll  flaw = "a claim that is invalid fails the whole batch"
	sessionsUnchecked flaw = "sessions are opened for anybody"
	movesUnchecked    flaw = "transfer looks at nothing of an offer but its session"
	movesBad          flaw = "transfer writes over what is no record"
	badMoveFailsAll   flaw = "a move that is invalid fails the whole call"
	renewsByName      flaw = "a renewal extends every record under a name that was once the session's"
	revivesHeld       flaw = "a release by token or by nonce will do"
	movesByEither     flaw = "a transfer by token or by nonce will do"
	supersedesByNonce flaw = "a claim with the nonce of the record supersedes it"
)

// Of observed.Objects.
const (
	objectsPutAlways     flaw = "Objects: Put does not compare the version"
	objectsPutAgain      flaw = "Objects: Put with a version makes an object that was deleted"
	objectsDeleteNothing flaw = "Objects: Delete says that it did, and does nothing"
	objectsForget        flaw = "Objects: what says that a name is free is deleted"
	objectsNumberAnew    flaw = "Objects: numbers of versions begin again with a new object"
	objectsSilentMiss    flaw = "Objects: a Get without an answer finds nothing"
	objectsListPage      flaw = "Objects: List ends after a page"
)
