// Package pername makes a lease.Store of a backend that knows names only: keys with a TTL
// each, and no sessions.
//
//	store, err := pername.New(backend) // backend implements pername.Backend
//
// A session is then a batch of names, kept in the memory of this Store: renewing it renews
// each of its names.
//
//	Acquire: success ────▶ held ── Renew: false ───────▶ lost: told in Grant.Lost
//	Acquire: unknown       │ ▲╰─ Renew: true, unknown
//	   │                   │ ╰── Transfer: surely not applied
//	   ▼                   ▼
//	never renewed      Release, Transfer, a claim that supersedes it,
//	                   the session's end: not renewed any more
//
// What differs from a store with sessions:
//
//   - A session is known only to the Store it was opened with, and is gone for it
//     after CloseSession or once its TTL has passed, by this Store's clock, since
//     the last answer that renewed all of it.
//   - A record lives for a TTL since it was itself acquired or renewed, so up to
//     one TTL longer than its session. One that was acquired by a request which
//     lands after the session ended stands for one TTL.
//   - If it is not known whether some name was renewed, Grant.Err says so for
//     its session. StoreLimits.NamesPerSession is therefore 1 unless the backend says
//     otherwise: a failing name holds up no other, nor does one that hangs.
//   - An error of Acquire, Release or Transfer ends the renewing of what the call
//     was to supersede or to give up, as its caller can't trust in it any more.
//   - Transfer does not look at the target's session. The target's Store renews
//     the record only after Acquire with Claim.Supersedes, as the Keeper does to
//     adopt it.
//   - Claim.While is for the backend: lease.ErrUnsupported unless it is a lease.Limiter with
//     StoreLimits.While.
//   - There is no Watcher. List answers lease.ErrUnsupported unless the backend is a
//     Lister.
package pername
