package leasetest

// claimCatches are the flaws in who wins, tokens, releases and batches.
var claimCatches = []catch{
	{grantsTwice, []by{
		{"acquire/held", ruleHeld},
		{"late/acquire-lands-on-another's", ruleLateAcquire},
		{"late/acquire-lands-after-settling", ruleLateAcquire},
		{"late/superseding-lands-on-another's", ruleLateAcquire},
		{"keeper/one-holder", ""},
		{"keeper/contention-astray", ""},
	}},
	{acquireRaces, []by{
		{"acquire/two-at-once", ruleOneWinner},
		{"acquire/sixty-four-at-once", ruleOneWinner},
		{"acquire/one-owner-at-once", ruleOneWinner},
		{"batch/at-once", ruleOneWinner},
		{"churn/thirty-clients", ruleLinear},
		{"churn/one-name", ruleLinear},
		{"churn/requests-astray", ruleLinear},
	}},
	{ownAgain, []by{
		{"acquire/one-owner-at-once", ruleOneWinner},
		{"acquire/own-without-supersedes", ruleHeld},
		{"late/acquire-unanswered", ruleHeld},
		{"keeper/transfer", ""},
	}},
	{ownTakesOver, []by{
		{"acquire/own-without-supersedes", ruleHeld},
		{"late/acquire-unanswered", ruleHeld},
		{"late/acquire-lands-after-settling", ruleLateAcquire},
	}},
	{identityByID, []by{
		{"acquire/same-id-new-incarnation", ruleSupersedeOf},
	}},
	{holderStale, []by{
		{"acquire/two-at-once", ruleHolder},
		{"acquire/sixty-four-at-once", ruleHolder},
		{"churn/one-name", ruleLinear},
	}},
	{holderHidden, []by{
		{"acquire/held", ruleHolder},
		{"acquire/two-at-once", ruleHolder},
		{"acquire/sixty-four-at-once", ruleHolder},
		{"acquire/supersedes-another's", ruleHolder},
		{"keeper/one-holder", ruleKeeper},
		{"keeper/batches", ""},
		{"keeper/renews", ""},
	}},
	{foldsCase, []by{
		{"acquire/other-names-stay-free", ruleFree},
		{"read/list-prefix", ruleFree},
	}},
	{truncatesNames, []by{
		{"read/names", ruleRecord},
	}},
	{supersedesAnybody, []by{
		{"acquire/same-id-new-incarnation", ruleSupersedeOf},
		{"acquire/supersedes-another's", ruleSupersedeOf},
	}},
	{supersedesAnyToken, []by{
		{"acquire/supersedes-wrong-token", ruleSupersedeBy},
		{"acquire/supersedes-at-once", ruleSupersedeBy},
		{"late/superseding-lands-after-settling", ruleLateAcquire},
	}},
	{supersedesNever, []by{
		{"token/over-supersede", ruleSupersede},
		{"late/transfer-unanswered", ruleSupersede},
		{"read/after-every-write", ruleSupersede},
	}},
	{supersedesOnlyHeld, []by{
		{"acquire/supersedes-free", ruleFree},
		{"session/expiry-frees-supersedes", ruleFree},
	}},
	{supersedesUnseen, []by{
		{"acquire/supersedes-free", ruleReplaced},
		{"session/expiry-frees-supersedes", ruleReplaced},
	}},
	{supersedeRaces, []by{
		{"acquire/supersedes-at-once", ruleSupersedeBy},
	}},
	{supersedeKeepsSession, []by{
		{"acquire/supersedes-under-other-session", ruleCloseOnly},
	}},
	{supersedeKeepsMetadata, []by{
		{"acquire/supersedes-own", ruleRecord},
	}},
	{tokenZero, []by{
		{"acquire/after-release", ruleTokenZero},
		{"setup/bad-record-in-lists", ruleBadRead},
		{"keeper/wait", ""},
	}},
	{tokensRestart, []by{
		{"token/never-shared", ruleToken},
		{"read/list-among-changes", ruleToken},
	}},
	{tokensRestartAfterClose, []by{
		{"token/over-close", ruleToken},
		{"token/over-many-changes", ruleToken},
		{"session/close-removes-its-records", ruleToken},
	}},
	{tokensRestartAfterExpiry, []by{
		{"token/over-expiry", ruleToken},
	}},
	{tokensByTime, []by{
		{"token/never-shared", ruleToken},
		{"late/superseding-lands-after-settling", ruleLateAcquire},
	}},
	{supersedeKeepsToken, []by{
		{"acquire/supersedes-wrong-token", ruleToken},
		{"token/over-supersede", ruleToken},
		{"transfer/moves", ruleToken},
		{"late/superseding-lands-after-settling", ruleLateAcquire},
		{"late/release-lands-on-own-next", ruleToken},
		{"late/transfer-lands-after-settling", ruleToken},
		{"read/after-every-write", ruleToken},
	}},
	{releasesByName, []by{
		{"acquire/supersedes-own", ruleReleaseToken},
		{"release/wrong-token", ruleReleaseToken},
		{"release/wrong-nonce", ruleReleaseNonce},
		{"release/wrong-name", ruleReleaseOnly},
		{"release/stale-after-takeover", ruleReleaseToken},
		{"release/stale-after-own-return", ruleReleaseToken},
		{"transfer/moves", ruleSupersedeOf},
		{"transfer/there-and-back", ruleReleaseToken},
		{"late/release-lands-on-own-next", ruleLateRelease},
		{"late/release-lands-on-another's", ruleLateRelease},
	}},
	{releasesByToken, []by{
		{"release/wrong-name", ruleReleaseOnly},
	}},
	{releaseIgnoresNonce, []by{
		{"release/wrong-nonce", ruleReleaseNonce},
		{"release/mixed", ruleReleaseNonce},
	}},
	{releaseIgnoresToken, []by{
		{"release/wrong-token", ruleReleaseToken},
		{"release/stale-after-own-return", ruleReleaseToken},
	}},
	{releasesNothing, []by{
		{"release/unheld", ruleReleaseOnce},
		{"release/at-once", ruleReleaseOnce},
		{"late/release-unanswered", ruleReleaseOnce},
	}},
	{releaseDenies, []by{
		{"acquire/after-release", ruleRelease},
		{"acquire/supersedes-free", ruleRelease},
		{"token/over-release", ruleRelease},
		{"late/reply-after-deadline", ruleRelease},
		{"read/nonces", ruleRelease},
	}},
	{releaseOnlySays, []by{
		{"acquire/after-release", ruleFree},
		{"token/over-release", ruleFree},
		{"release/removes", ruleRelease},
		{"release/stale-after-takeover", ruleFree},
		{"release/unheld", ruleReleaseOnce},
		{"session/close-spares-what-came-after", ruleFree},
		{"session/open-again", ruleFree},
		{"late/acquire-lands-on-another's", ruleLateAcquire},
		{"late/superseding-lands-on-another's", ruleFree},
		{"late/release-unanswered", ruleReleaseOnce},
		{"late/release-lands-on-another's", ruleFree},
		{"late/transfer-lands-on-another's", ruleFree},
		{"late/close-lands-on-another's", ruleFree},
		{"read/get", ruleGet},
		{"keeper/settles-what-went-astray", ""},
		{"keeper/batches", ""},
	}},
	{releaseRaces, []by{
		{"release/at-once", ruleReleaseOnce},
		{"transfer/against-release", ruleTransferOnce},
	}},
	{releaseOrder, []by{
		{"release/mixed", ruleOrder},
		{"batch/large", ruleOrder},
	}},
	{batchOrder, []by{
		{"batch/mixed", ruleOrder},
		{"batch/one-name-twice", ruleBatchTwice},
		{"session/close-removes-its-records", ruleRecord},
		{"read/list-among-changes", ruleRecord},
	}},
	{batchStopsAtRefusal, []by{
		{"batch/mixed", ruleOrder},
		{"batch/at-once", ruleHolder},
	}},
	{batchTruncates, []by{
		{"batch/large", ruleOrder},
		{"context/cancelled-in-a-list", ruleFree},
		{"read/list-many", ruleBatchAll},
	}},
	{batchTwiceWins, []by{
		{"batch/one-name-twice", ruleBatchTwice},
	}},
	{emptyFails, []by{
		{"batch/empty", ruleEmpty},
	}},
	{keepsArguments, []by{
		{"batch/arguments-are-not-kept", ruleMapShared},
	}},
	{sharesMetadata, []by{
		{"batch/arguments-are-not-kept", ruleMapShared},
		{"watch/record", ruleMapShared},
	}},
}
