package leasetest

// readCatches are the flaws in contexts, reading, watching and set-ups.
var readCatches = []catch{
	{ignoresContext, []by{
		{"context/cancelled", ruleContextDone},
		{"context/deadline-passed", ruleContextDone},
		{"deletions/ends-with-context", ruleContextDone},
	}},
	{refusesInDoubt, []by{
		{"context/cancelled", ruleContextDone},
		{"context/short-deadlines", ruleUnknown},
	}},
	{hangs, []by{
		{"context/unreachable", ruleDeadline},
	}},
	{hangsWatching, []by{
		{"context/unreachable", ruleDeadline},
	}},
	{refusesUnreachable, []by{
		{"context/unreachable", ruleUnknown},
	}},
	{goneUnreachable, []by{
		{"context/unreachable", ruleUnknown},
	}},
	{listEndsSilently, []by{
		{"context/cancelled", ruleContextDone},
		{"context/deadline-passed", ruleContextDone},
		{"context/cancelled-in-a-list", ruleWholeListing},
	}},
	{staleGet, []by{
		{"release/removes", ruleRelease},
		{"context/short-deadlines", ruleSeenByAll},
		{"read/owners", ruleRoundTrip},
		{"read/nonces", ruleRoundTrip},
		{"read/ttl", ruleRecordTTL},
		{"read/after-every-write", ruleSeenByAll},
		{"churn/thirty-clients", ruleLinear},
		{"churn/one-name", ruleLinear},
	}},
	{getsByPrefix, []by{
		{"acquire/other-names-stay-free", ruleGet},
		{"session/renewals-keep-all", ruleGet},
		{"read/get", ruleGet},
		{"read/names", ruleGet},
	}},
	{listsBySegment, []by{
		{"read/list-prefix", ruleList},
	}},
	{listsByPattern, []by{
		{"read/list-prefix", ruleList},
	}},
	{listsOnePage, []by{
		{"read/list-many", ruleList},
	}},
	{listPagesByIndex, []by{
		{"churn/hammer", ruleList},
		{"read/list-among-changes", ruleList},
	}},
	{listUnsupportedSometimes, []by{
		{"read/list-unsupported", ruleUnsupported},
	}},
	{losesMetadata, []by{
		{"read/metadata", ruleRecord},
	}},
	{losesAddress, []by{
		{"acquire/free", ruleRecord},
		{"read/list-prefix", ruleList},
	}},
	{roundsNonces, []by{
		{"late/acquire-lands-on-free", ruleFree},
		{"keeper/wait", ""},
	}},
	{grantedOfRenewals, []by{{"read/granted", ruleGranted}}},
	{grantedOfReading, []by{{"read/granted", ruleGranted}}},
	{grantedOnce, []by{{"read/granted", ruleGranted}}},
	{noRecordTTL, []by{
		{"acquire/free", ruleRecordTTL},
		{"read/owners", ruleRecordTTL},
		{"read/ttl", ruleRecordTTL},
	}},
	{watchDropsOne, []by{
		{"watch/prefix", ruleWatchPrefix},
		{"churn/hammer", ruleWatchOrder},
		{"watch/changes", ruleWatchChange},
		{"watch/no-gap", ruleWatchChange},
		{"deletions/changes", ruleDeletions},
	}},
	{watchMissesReplacing, []by{
		{"watch/changes", ruleWatchChange},
		{"watch/transfer", ruleWatchChange},
		{"watch/no-gap", ruleWatchChange},
		{"watch/slow-consumer", ruleWatchChange},
	}},
	{watchMissesDeletions, []by{
		{"watch/changes", ruleWatchChange},
		{"watch/close", ruleWatchChange},
		{"deletions/prefix", ruleDeletions},
	}},
	{expiryUntold, []by{
		{"watch/expiry", ruleLate},
		{"deletions/expiry", ruleLate},
	}},
	{watchStartsLate, []by{
		{"watch/no-gap", ruleWatchChange},
		{"watch/slow-consumer", ruleWatchChange},
	}},
	{watchBufferOverflows, []by{
		{"watch/close", ruleWatchChange},
		{"watch/prefix", ruleWatchChange},
		{"watch/slow-consumer", ruleWatchChange},
	}},
	{watchSwaps, []by{
		{"watch/transfer", ruleWatchRecord},
		{"churn/hammer", ruleWatchOrder},
	}},
	{watchInventsDeletions, []by{
		{"watch/empty", ruleWatchOrder},
		{"watch/prefix", ruleWatchPrefix},
		{"deletions/prefix", ruleDeletions},
	}},
	{watchNoSnapshot, []by{
		{"watch/record", ruleWatchRecord},
		{"setup/bad-record-in-watches", ruleBadWatch},
	}},
	{watchSnapshotTwice, []by{
		{"watch/snapshot", ruleWatchSnapshot},
		{"watch/close", ruleWatchSnapshot},
	}},
	{watchNeverSynced, []by{
		{"watch/ends-with-context", ruleWatchSynced},
		{"watch/leaves-nothing", ruleWatchEnd},
		{"deletions/leaves-nothing", ruleWatchEnd},
	}},
	{watchSyncedFirst, []by{
		{"watch/snapshot", ruleWatchSynced},
		{"watch/changes", ruleWatchOrder},
	}},
	{watchSyncedOften, []by{
		{"watch/transfer", ruleWatchSynced},
	}},
	{deletionRevisionZero, []by{
		{"watch/changes", ruleWatchRevision},
		{"watch/close", ruleWatchRevision},
		{"deletions/changes", ruleWatchRevision},
	}},
	{deletionRevisionAhead, []by{
		{"watch/changes", ruleWatchRevision},
		{"watch/expiry", ruleWatchRevision},
		{"deletions/changes", ruleWatchRevision},
	}},
	{putRevisionAhead, []by{
		{"watch/snapshot", ruleWatchRevision},
		{"watch/record", ruleWatchRevision},
	}},
	{putRevisionZero, []by{
		{"watch/snapshot", ruleWatchRevision},
		{"watch/empty", ruleWatchRevision},
	}},
	{watchIgnoresPrefix, []by{
		{"watch/snapshot", ruleWatchPrefix},
		{"watch/prefix", ruleWatchPrefix},
		{"deletions/prefix", ruleWatchPrefix},
	}},
	{watchNamesOnly, []by{
		{"watch/record", ruleWatchRecord},
	}},
	{watchLeaks, []by{
		{"watch/leaves-nothing", ruleWatchEnd},
		{"deletions/leaves-nothing", ruleWatchEnd},
	}},
	{watchOutlivesContext, []by{
		{"watch/ends-with-context", ruleWatchEnd},
		{"watch/ends-with-deadline", ruleWatchEnd},
		{"deletions/ends-with-context", ruleWatchEnd},
	}},
	{watchGivesUp, []by{
		{"watch/expiry", ruleLate},
		{"watch/ends-with-deadline", ruleWatchEnd},
	}},
	{watchUnsupportedSometimes, []by{
		{"watch/unsupported", ruleUnsupported},
	}},
	{deletionsTellPuts, []by{
		{"deletions/changes", ruleDeletionsOnly},
		{"deletions/expiry", ruleDeletionsOnly},
	}},
	{probeUnheard, []by{
		{"watch/probe", ruleProgress},
		{"deletions/probe", ruleProgress},
	}},
	{probeAhead, []by{
		{"watch/probe", ruleProgress},
		{"deletions/probe", ruleProgress},
	}},
	{deletionsSnapshot, []by{
		{"deletions/changes", ruleDeletionsOnly},
	}},
	{deletionsSyncedLast, []by{
		{"deletions/changes", ruleWatchSynced},
	}},
	{deletionsStartLate, []by{
		{"deletions/no-gap", ruleDeletions},
	}},
	{deletionsTellTransfers, []by{
		{"deletions/transfer", ruleDeletions},
	}},
	{badOverwritten, []by{
		{"setup/bad-record", ruleBadAcquire},
	}},
	{badFailsBatch, []by{
		{"setup/bad-record", ruleBadOther},
	}},
	{badEndsList, []by{
		{"setup/bad-record-in-lists", ruleBadList},
	}},
	{badFailsGet, []by{{"setup/bad-record", ruleBadGet}}},
	{badEndsGet, []by{{"setup/bad-record", ruleBadGet}}},
	{badUngot, []by{{"setup/bad-record", ruleBadGet}}},
	{badUnlisted, []by{
		{"setup/bad-record-in-lists", ruleBadList},
	}},
	{badIsRecord, []by{
		{"setup/bad-record", ruleBadGet},
		{"setup/bad-record-in-lists", ruleBadList},
	}},
	{badUntold, []by{
		{"setup/bad-record-in-watches", ruleBadWatch},
	}},
	{restartResetsTokens, []by{
		{"setup/restart", ruleToken},
	}},
	{restartLosesRecords, []by{
		{"setup/restart", ruleRestart},
	}},
}
