package leasetest

// Listing by session.
const (
	listedLeavesOut   flaw = "ListSession leaves the first of more than two records out"
	listedOthers      flaw = "ListSession yields the records of the owner's other sessions"
	listedReleased    flaw = "ListSession yields what was released"
	listedStale       flaw = "ListSession reads an old copy of what was superseded"
	listedByClaimant  flaw = "ListSession goes by the session that first held the name"
	listedPage        flaw = "ListSession ends after a page"
	listedGoneUnsaid  flaw = "ListSession of a session that is gone is empty"
	listedSilent      flaw = "ListSession with a context that is done ends without a word"
	listedUnsupported flaw = "ListSession is not supported" // which the contract allows
)

// listedCatches are the flaws in listing by session.
var listedCatches = []catch{
	{listedLeavesOut, []by{
		{"listed/own", ruleListed},
		{"listed/many", ruleListed},
		{"listed/among-changes", ruleListed},
	}},
	{listedOthers, []by{
		{"listed/own", ruleListed},
		{"listed/superseded-elsewhere", ruleListed},
	}},
	{listedReleased, []by{
		{"listed/after-every-write", ruleListed},
	}},
	{listedStale, []by{
		{"listed/after-every-write", ruleListed},
	}},
	{listedByClaimant, []by{
		{"listed/transferred", ruleListed},
		{"listed/superseded-elsewhere", ruleListed},
	}},
	{listedPage, []by{
		{"listed/many", ruleListed},
	}},
	{listedGoneUnsaid, []by{
		{"listed/gone", ruleListedGone},
		{"listed/expired", ruleListedGone},
	}},
	{listedSilent, []by{
		{"listed/own", ruleWholeListing},
	}},
}
