// Package provider is leases by their owners' names, for those who live shortly: functions,
// commands, workers of a workflow engine. It does nothing in the background, and keeps nothing in
// memory: what an owner holds is in the store, and any process may renew it, release it or hand it
// over in that owner's name. For one process that holds a lease for long use a lease.Keeper, which
// renews it and tells of its loss.
//
//	p, err := provider.New(store)
//	r, err := p.Acquire(ctx, "invoice/7", "run-42", 30*time.Second)
//	if err == nil && r.Acquired {
//		// until r.Expires nobody else has it; r.Token is for what is written
//	}
//
// # What it promises
//
// Of one key there is one owner at a time, by the store's clock. A Result that is Acquired was true
// when it was asked for, and is until Expires, unless another call acquires, releases or transfers the
// key in the same owner's name: any caller with the name may. Expires is by this process's clock, from
// before the request was sent. That clock stands still while the machine is suspended; where this
// may happen compare Expires.Round(0) with time.Now().Round(0), too: these are by the wall clock.
// Tokens grow with every change of owner, and with every new term of one.
//
// # Unknown outcomes
//
// An error that is lease.ErrUnknown says that the call may have been applied, or may be yet. Call
// again: Acquire, Release and Transfer find what stands, and go on from there. That is safe though
// a request of an earlier call may land late, in this process or in another: who gives a key up, or
// takes it for another time, first writes that into the record, under a new token, and does it to
// what has that token alone. An owner that finds such a record when it acquires takes it back under
// another token, by which the late request is refused. This is the settling of package lease, with
// the store in place of memory. Two calls that give a key up in one owner's name at one time are
// each right by themselves, but what one frees the other may hand over.
//
// An error that is lease.ErrDenied, and not lease.ErrUnknown, says that nothing was changed. It is
// both where a Release or Transfer had begun: the key is the owner's, and stays so when it
// acquires it again.
//
// # Stores
//
// Over package observed an owner that died is found out by those who look for as long as its TTL:
// a process must live so long.
//
// A Provider is safe for concurrent use. No call outlasts its context by more than the store does.
package provider
