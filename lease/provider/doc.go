// Package provider is leases by their owners' names, for short-lived programs: functions, commands,
// workers of a workflow engine. It does nothing in the background and keeps nothing in memory: what an
// owner holds is in the store, and any process may renew it, release it or hand it over in that owner's
// name. A process that holds a lease for long uses a lease.Keeper.
//
//	p, err := provider.New(store)
//	r, err := p.Acquire(ctx, "invoice/7", "run-42", 30*time.Second)
//	if err == nil && r.Acquired {
//		// no one else has it until r.Expires; r.Token is for what is written
//	}
//
// Of one key there is one owner at a time, by the store's clock. A Result that is Acquired holds until
// Expires, unless another call acquires, releases or transfers the key in the same owner's name: any
// caller with the name may. Expires is by this process's clock, nine tenths of the TTL from before the
// request was sent: the store's clock may run faster by the rest. This process's
// clock stands still while the machine is suspended; where this may happen compare Expires.Round(0)
// with time.Now().Round(0), too: these are by the wall clock. Tokens grow with every change of owner,
// and with every new term.
//
// An error that is lease.ErrUnknown says that the call may have been applied, or may be yet. Call
// again: Acquire, Release and Transfer find what stands, and go on from there. That is safe though an
// earlier request may land late: a call that gives a key up, or takes it for another time, first writes
// that into the record, under a new token, and then acts on that token alone. An owner that finds such
// a record when it acquires takes it back under another token, and the late request is refused. Two
// calls that give a key up in one owner's name at one time are each right by themselves, but what one
// frees the other may hand over; and what is freed while it is renewed for another TTL, by Renew or by
// a Transfer that is repeated, may be the owner's again.
//
// An error that is lease.ErrDenied, and not lease.ErrUnknown, says that nothing was changed. It is
// both where a Release or Transfer had begun: the key is the owner's, and stays so when it acquires it
// again.
//
// Over package observed the death of an owner is found by a process that looks for as long as its TTL.
// A Provider is safe for concurrent use. No call outlasts its context by more than the store does.
package provider
