// Package leasetest is the conformance kit of lease.Store: every backend runs
// it, and a backend that passes may be trusted with leases.
//
//	func TestConformance(t *testing.T) {
//		leasetest.Run(t, func(tb leasetest.TB) func() lease.Store {
//			b := newEmptyBacking(tb) // closed with tb.Cleanup
//			return func() lease.Store { return mystore.New(b) }
//		})
//	}
//
// # What is checked
//
// A store is asked everything that the contract in package lease promises, and
// every failure begins with the rule that was broken, in words. The cases, by the first part of their names:
//
//	acquire   who wins a name, and what the losers are told
//	token     fencing tokens over every way in which a name changes hands
//	release   removes one ownership and no other
//	batch     many names in one call: order, mixtures, size
//	session   opening, renewing, closing, expiring
//	handles   what a store wants to get back with every call on a session
//	transfer  moving an ownership, with no moment for a third
//	while     claims that are won only while another ownership stands
//	late      requests that land after their caller gave up
//	context   deadlines and cancellation
//	read      Get, List and what records carry
//	listed    the records of one session
//	watch     snapshot, then every change, in order, with no gap
//	deletions the same of deletions alone
//	churn     random histories of many clients, checked for linearizability
//	setup     foreign values and restarts, for backends that can arrange them
//	keeper    the engine, run over the store
//	alike     names that differ in case, spaces, normal form, or only look like patterns
//	limits    what is within the store's StoreLimits, and beyond them
//	invalid   what no record can be made of that everybody reads
//	hands     what a former owner still tries, after each way in which a name
//	          changes hands
//
// Cases that need what a store may lack (lease.TransferStore, lease.Watcher,
// lease.DeletionWatcher, lease.SessionLister, listing) are left out for a store without it; in their place the store must
// say lease.ErrUnsupported. The run's log says which were left out.
//
// A watch that does not end, and a call that outlasts its context in the cases
// about contexts, are reported. Elsewhere a call that never returns hangs the
// run, until the go command's -timeout shows where.
//
// # Time
//
// With FakeTime every case runs in a testing/synctest bubble of its own, waits
// cost nothing and expiry is checked to the millisecond. Without it the kit
// runs against real servers: no limit is tighter than ExpirySlack, all cases
// that wait for expiry wait at once, and with a TTL of 2 s a run takes well
// under a minute. A case that a slow machine robbed of its verdict is repeated
// with twice the TTL, and fails after the third time.
//
// # Disturbance
//
// With Disturbed the kit may run while the servers under the store are killed,
// stopped and cut off. The cases expect definite outcomes, and a store that is
// disturbed has errors to offer: between the two has to stand a client that
// repeats what got no answer, and settles it. What such a client can't settle, and
// a watch that was ended, take the verdict from a case; then it is repeated.
//
// # Randomness
//
// Histories and faults are drawn from one seed, which is logged; Seed repeats
// it. The draws repeat exactly, the interleaving of goroutines does not. Clients,
// owners and nonces are drawn anew each time, so that many runs may share one
// server.
//
// # Leases that are none of a Keeper's
//
// RunLease is the kit of lease.Lease itself, for who writes one: over a lock service, or a
// leader that something else elects. A Bare says what can be done to its nodes; what can't be
// is left out, and the log says so.
//
// # The kit's own tests
//
// A check that nothing fails is no check. The tests of this package break a
// small store in every way that is known, and say which cases must notice, and by
// which rule. Every case and every rule is named there.
package leasetest
