package leasetest

// sessionCatches are the flaws in sessions and transfers.
var sessionCatches = []catch{
	{grantsLess, []by{
		{"late/acquire-lands-on-free", ruleGrant},
		{"late/reply-after-deadline", ruleGrant},
	}},
	{neverExpires, []by{
		{"session/expired-unseen-is-gone", ruleRevive},
		{"late/renewal-lands-after-expiry", ruleRevive},
	}},
	{expiresEarly, []by{
		{"session/expires", ruleEarly},
		{"session/expires-from-lists", ruleEarly},
		{"session/acquire-does-not-renew", ruleEarly},
		{"session/renewal-extends", ruleEarly},
		{"transfer/expired", ruleEarly},
	}},
	{expiresLate, []by{
		{"session/expires", ruleLate},
		{"session/expired-unseen-is-gone", ruleRevive},
	}},
	{expiresAll, []by{
		{"session/expires-alone", ruleEarly},
		{"transfer/to-expired-session", ruleTransferGone},
		{"transfer/outlives-mover", ruleTransferExpiry},
		{"transfer/renewed-by-target", ruleTransferExpiry},
	}},
	{expiryUnseen, []by{
		{"session/expires-for-acquirers", ruleLate},
		{"session/expired-unseen-is-gone", ruleRevive},
		{"session/expired-acquires-nothing", ruleGoneAcquire},
		{"late/renewal-lands-after-expiry", ruleRevive},
	}},
	{expiredBlocks, []by{
		{"token/over-expiry", ruleFree},
		{"session/expires-for-acquirers", ruleLate},
		{"session/expiry-frees-supersedes", ruleFree},
		{"keeper/crash", ""},
	}},
	{listShowsExpired, []by{
		{"session/expires-from-lists", ruleLate},
	}},
	{revivesSession, []by{
		{"session/expired-is-gone", ruleGoneRenew},
		{"session/expired-unseen-is-gone", ruleRevive},
		{"late/renewal-lands-after-expiry", ruleGoneRenew},
	}},
	{revivesRecords, []by{
		{"session/expired-unseen-is-gone", ruleRevive},
		{"session/expired-harms-no-successor", ruleRevive},
	}},
	{renewsGone, []by{
		{"session/renew-together", ruleGoneRenew},
		{"session/expired-unseen-is-gone", ruleRevive},
	}},
	{renewsAllOrNone, []by{
		{"session/close-through-another-client", ruleGoneRenew},
		{"session/closed-is-gone", ruleGoneRenew},
		{"session/renew-together", ruleGoneRenew},
	}},
	{renewsOneRecord, []by{
		{"session/renewals-keep-all", ruleRenew},
	}},
	{renewExtendsNothing, []by{
		{"session/renewal-extends", ruleEarly},
		{"session/expires-alone", ruleEarly},
		{"transfer/renewed-by-target", ruleEarly},
		{"keeper/renews", ""},
	}},
	{reopenExtendsNothing, []by{
		{"session/open-again-extends", ruleReopen},
	}},
	{reopenReplaces, []by{
		{"session/open-again", ruleReopen},
		{"session/open-again-extends", ruleReopen},
	}},
	{acquireRenews, []by{
		{"session/acquire-does-not-renew", ruleLate},
	}},
	{goneAcquires, []by{
		{"session/close-against-acquire", ruleClose},
		{"late/acquire-lands-under-closed-session", ruleGoneAcquire},
	}},
	{goneApplies, []by{
		{"session/closed-is-gone", ruleGoneAcquire},
		{"session/expired-acquires-nothing", ruleGoneAcquire},
		{"session/close-against-acquire", ruleClose},
		{"late/acquire-lands-under-closed-session", ruleGoneAcquire},
	}},
	{goneUnsaid, []by{
		{"session/closed-is-gone", ruleGoneAcquire},
		{"session/expired-is-gone", ruleGoneAcquire},
	}},
	{goneIsRefusal, []by{
		{"session/close-through-another-client", ruleGoneAcquire},
		{"session/closed-is-gone", ruleGoneAcquire},
		{"session/close-against-acquire", ruleHolder},
		{"session/expired-acquires-nothing", ruleGoneAcquire},
	}},
	{closesOwner, []by{
		{"acquire/supersedes-under-other-session", ruleCloseOnly},
		{"session/close-removes-no-others", ruleCloseOnly},
	}},
	{closesBygone, []by{
		{"session/close-spares-what-came-after", ruleCloseOnly},
		{"session/close-twice", ruleCloseOnly},
		{"session/expired-harms-no-successor", ruleCloseOnly},
		{"transfer/follows-target's-close", ruleTransferExpiry},
		{"late/close-lands-on-another's", ruleCloseOnly},
	}},
	{closeLeavesRecords, []by{
		{"token/over-close", ruleFree},
		{"session/close-removes-no-others", ruleClose},
	}},
	{closeTwiceFails, []by{
		{"session/close-twice", ruleCloseTwice},
		{"session/expired-is-gone", ruleCloseTwice},
		{"session/expired-harms-no-successor", ruleCloseTwice},
	}},
	{closeRaces, []by{
		{"session/close-against-acquire", ruleClose},
	}},
	{transfersAnything, []by{
		{"transfer/wrong-token", ruleTransferRefused},
		{"transfer/wrong-nonce", ruleTransferRefused},
		{"transfer/stale", ruleTransferRefused},
		{"transfer/two-targets-at-once", ruleTransferOnce},
		{"late/transfer-lands-after-settling", ruleLateTransfer},
		{"late/transfer-lands-on-another's", ruleLateTransfer},
	}},
	{transfersFree, []by{
		{"transfer/stale", ruleTransferRefused},
		{"transfer/unheld", ruleTransferRefused},
		{"transfer/expired", ruleTransferRefused},
	}},
	{transferIgnoresNonce, []by{
		{"transfer/wrong-nonce", ruleTransferRefused},
		{"transfer/mixed", ruleOrder},
	}},
	{transferIgnoresToken, []by{
		{"transfer/wrong-token", ruleTransferRefused},
	}},
	{transferKeepsToken, []by{
		{"token/over-transfer", ruleToken},
		{"transfer/through-any-client", ruleToken},
	}},
	{transferKeepsNonce, []by{
		{"late/transfer-unanswered", ruleTransfer},
	}},
	{transferKeepsSession, []by{
		{"token/over-many-changes", ruleFree},
		{"transfer/follows-target's-close", ruleTransferExpiry},
		{"transfer/outlives-mover", ruleTransferExpiry},
		{"transfer/expires-with-target", ruleLate},
		{"transfer/against-close", ruleClose},
	}},
	{transferKeepsMetadata, []by{
		{"transfer/metadata", ruleTransferMeta},
	}},
	{transferDropsMetadata, []by{
		{"transfer/metadata", ruleTransferMeta},
	}},
	{transferRenews, []by{
		{"transfer/expires-with-target", ruleLate},
	}},
	{transferLeavesGap, []by{
		{"transfer/no-gap", ruleTransferAtomic},
		{"churn/thirty-clients", ruleLinear},
		{"churn/one-name", ruleLinear},
		{"churn/requests-astray", ruleLinear},
	}},
	{transferHides, []by{
		{"transfer/no-gap", ruleTransferAtomic},
	}},
	{transferRaces, []by{
		{"transfer/two-targets-at-once", ruleTransferOnce},
		{"transfer/against-release", ruleTransferOnce},
	}},
	{transferCloseRaces, []by{
		{"transfer/against-close", ruleClose},
	}},
	{transfersToGone, []by{
		{"transfer/to-closed-session", ruleTransferGone},
		{"late/transfer-lands-on-closed-session", ruleTransferGone},
	}},
	{transferGoneRemoves, []by{
		{"transfer/to-closed-session", ruleTransferGone},
		{"late/transfer-lands-on-closed-session", ruleTransferGone},
	}},
	{transferGoneUnsaid, []by{
		{"transfer/to-closed-session", ruleTransferGone},
		{"transfer/to-expired-session", ruleTransferGone},
	}},
	{transferOrder, []by{
		{"transfer/mixed", ruleTransferGone},
	}},
	{transferUnsupportedApplies, []by{
		{"token/over-transfer", ruleTransfer},
		{"transfer/through-any-client", ruleTransfer},
		{"transfer/there-and-back", ruleTransfer},
		{"transfer/unsupported", ruleUnsupported},
		{"transfer/no-gap", ruleTransfer},
		{"keeper/transfer", ""},
	}},
}
