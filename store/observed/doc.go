// Package observed makes a store.Store of objects with compare-and-swap: of an object store, of
// Kubernetes objects, of a key-value store without a clock of use.
//
//	store, err := observed.New(objects)
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//
// Such a store can't say when a record expires; its users find out by looking:
//
//	sessions/<id>       owner, TTL, life, beat: rewritten by each renewal
//	records/<name>      session, life, nonce, token: written when the name changes hands
//
// A record is held while the object of its session, of the same life, is there. A life is drawn when a
// session is opened. A Store that meets a record of another looks at its session. The session is dead
// when its version was the same for the TTL and a margin, by the monotonic clock of that one Store:
//
//	owner     send renewal ──────────────── trust ends ─ TTL since the sending
//	               ╲                              │
//	objects         beat 7 ───────────────────────┼──────────────── deleted if still beat 7
//	                    ╲                         │                ╱
//	observer             first sees beat 7 ───────┼── TTL + margin, dead
//
// The observer then deletes the session's object on the condition of the version it saw. If that is
// refused, the session lives. Else every renewal under way is refused, and the owner gets
// store.ErrSessionGone. Only then is the record taken, by compare-and-swap. An observer's wait begins
// later than the holder's trust, and is longer; so there is one holder, while clocks differ in rate by
// less than the margin of the lease.Keeper and a tenth together. No time of day is compared with another
// machine's. A new Store waits a whole TTL and the margin from its own first look.
//
// If the objects' versions grow for ever (Numbered), a token is the version that the swap made. Else
// tokens are counted in the record, and a release leaves a tombstone with the count: one small object
// for each name that was ever used, which must not be deleted.
//
// A listing ends dead sessions, and deletes free records of a Numbered; so does opening a session, if there
// was none for a minute. A Store has to be in use for longer than that and the TTL to find them dead.
//
// An error of the objects never counts as a renewal or as a win. A write that lands late does so on the
// condition of the version it was made for. A renewal is one request per session, Acquire and Release
// are three per name, at most 16 at once, Get is two. Claim.While is store.ErrUnsupported. A Store is no
// store.Watcher: see View. A record is seen with its session in two reads: if the session into which a name
// is superseded or transferred ends between them and the swap, the swap is OK, and the name is free.
package observed
