// Package leasetest is the conformance kit of lease.Lease, for leases that are not a Keeper's:
//
//	leasetest.RunLease(t, func(tb leasetest.TB) leasetest.Bare {
//		w := newWorld(tb) // closed with tb.Cleanup
//		return leasetest.Bare{TTL: w.ttl, Lease: w.lease, Cut: w.cut}
//	})
//
// Every failure begins with the rule that was broken. The kit of stores is package storetest.
package leasetest
