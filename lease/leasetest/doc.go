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
// every failure begins with the rule that was broken, in words (rules.go lists
// them all). The cases, by the first part of their names:
//
//	acquire   who wins a name, and what the losers are told
//	token     fencing tokens over every way in which a name changes hands
//	release   removes one ownership and no other
//	batch     many names in one call: order, mixtures, size
//	session   opening, renewing, closing, expiring
//	transfer  moving an ownership, with no moment for a third
//	late      requests that land after their caller gave up
//	context   deadlines and cancellation
//	read      Get, List and what records carry
//	watch     snapshot, then every change, in order, with no gap
//	churn     random histories of many clients, checked for linearizability
//	setup     foreign values and restarts, for backends that can arrange them
//	keeper    the engine, run over the store
//
// Cases that need what a store may lack (lease.Transferer, lease.Watcher,
// listing) are left out for a store without it; in their place the store must
// say lease.ErrUnsupported. The run's log says which were left out.
//
// # Time
//
// With FakeTime every case runs in a testing/synctest bubble of its own, waits
// cost nothing and expiry is checked to the millisecond. Without it the kit
// runs against real servers: cases that wait for expiry run at once, no
// limit is tighter than ExpirySlack, and a run with a TTL of 2 s takes well
// under a minute.
//
// # Randomness
//
// Histories and faults are drawn from one seed, which is logged; Seed repeats
// it. The draws repeat exactly, the interleaving of goroutines does not.
package leasetest
