// Package storetest is the conformance kit of store.Store: every backend runs
// it, and a backend that passes may be trusted with leases.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb storetest.TB) func() store.Store {
//			b := newEmptyBacking(tb) // closed with tb.Cleanup
//			return func() store.Store { return mystore.New(b) }
//		})
//	}
//
// The kit of lease.Lease, for leases that are not a Keeper's, is leasetest.RunLease.
//
// Every failure begins with the rule that was broken. The first part of a case's name says what it
// is about: who wins (acquire, batch, while), tokens (token), what a former owner still tries
// (hands, release), sessions (session), transfers (transfer), late requests (late),
// contexts (context), reads (read, listed), names and bounds (alike, limits, invalid), watches (watch,
// deletions), random histories (churn), what a backend arranges (setup), and the engine over the
// store (keeper). Cases that need what a store may lack are left out, and the log says which; in
// their place the store must answer store.ErrUnsupported. Outside of the cases about contexts and
// watches a call that never returns hangs the run.
//
// With FakeTime every case runs in a testing/synctest bubble, waits cost nothing and expiry is checked
// to the millisecond. Without it the kit runs against real servers: no limit is tighter than
// ExpirySlack, and cases that wait for expiry wait at once. If a slow machine kept a case from its
// verdict, it is repeated with twice the TTL, and fails after the third time.
//
// With Disturbed the servers under the store may be killed, stopped and cut off meanwhile. The
// cases expect definite outcomes, so the client must repeat what got no answer, and settle it. A
// case whose answers or watches were lost all the same has no verdict, and is repeated.
//
// Draws come from one seed, which is logged; Seed repeats it. How goroutines interleave does not
// repeat. Owners and nonces are new in each run, so that many runs may share one server.
//
// The package's own tests break a small store in every known way, and say which cases must notice, and
// by which rule. Each case and each rule is named there.
package storetest
