package leasetest

// handsCatches are the flaws in what is out of its bounds, and in what a former owner
// still can do.
var handsCatches = []catch{
	{claimsUnchecked, []by{{"invalid/claims", ruleInvalid}}},
	{badClaimFailsAll, []by{{"invalid/claims", ruleInvalidOnly}}},
	{sessionsUnchecked, []by{{"invalid/sessions", ruleInvalid}}},
	{movesUnchecked, []by{{"invalid/offers", ruleInvalid}}},
	{movesBad, []by{{"invalid/bad-record-moved", ruleBadMove}}},
	{badMoveFailsAll, []by{{"invalid/offers", ruleInvalidOnly}}},
	{renewsByName, []by{{"hands/renewal-of-another's", ruleRenewOnly}}},
	{revivesHeld, []by{
		{"hands/release", ruleHands},
		{"hands/revoke", ruleHands},
		{"hands/close", ruleHands},
		{"hands/close-by-another", ruleHands},
		{"hands/expiry", ruleHands},
		{"hands/supersede", ruleHands},
		{"hands/supersede-elsewhere", ruleHands},
		{"hands/transfer", ruleHands},
		{"hands/transfer-by-another", ruleHands},
	}},
	{movesByEither, []by{
		{"hands/revoke", ruleHands},
		{"hands/transfer", ruleHands},
	}},
	{supersedesByNonce, []by{
		{"hands/release", ruleHands},
		{"hands/transfer-by-another", ruleHands},
	}},
}
