// Package observed makes a lease.Store of objects with compare-and-swap: of an
// object store, of Kubernetes objects, of a key-value store without a clock of use.
//
//	store, err := observed.New(objects)
//	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
//
// Such a store can't say when a record expires. Its users find out by looking:
//
//	sessions/<id>       owner, TTL, life, beat: written anew by each renewal
//	records/<name>      session, life, nonce, token: written when the name changes hands
//
// A record is held while the object of its session, of the same life, is there. A
// life is drawn when a session is opened, so that one that was opened again keeps
// nothing of what it had.
//
// # Who observes what, and when
//
// A Store that meets a record of another (Acquire, Get, List, Release, Transfer) looks at
// its session. A session is dead when its version was the same for the TTL and a
// margin, by the monotonic clock of the one Store that looks:
//
//	owner     send renewal ──────────────── trust ends ─ TTL since the sending
//	               ╲                              │
//	objects         beat 7 ───────────────────────┼──────────────── deleted if still beat 7
//	                    ╲                         │                ╱
//	observer             first sees beat 7 ───────┼── TTL + margin, dead
//
// Death is made final before anything is taken: the observer deletes the session's
// object on the condition of the version it saw. If that is refused, a renewal came
// first, and the session lives. If it succeeds, every renewal that is under way is
// refused, for it has the condition of a version that is gone: the owner is told
// lease.ErrSessionGone, and nobody brings the object back. Only then is the record
// taken, by compare-and-swap on its own version.
//
// No time of day is compared with another machine's, and none is written. A Store
// inherits nobody's observations: one that was just made waits a whole TTL and the
// margin from its own first look. One Store per process is enough, and best: its
// observations are shared by all who use it. The owner's Store observes its own
// sessions too: a session that it has not renewed for as long, it ends itself.
//
// # Why there is one holder
//
// A holder trusts for less than the TTL since its renewal was sent. The version
// changes after the sending, and an observer sees the change after that. So its wait
// begins later than the trust, and is longer. Clocks may differ in rate by the
// margin of the lease.Keeper and a tenth together. Who wins meanwhile
// needs either no record, or a session that is gone, or the holder's own
// incarnation; and of two who found the same, one swaps. A record that lands under a
// session that ended is of a life that is gone, so free at once.
//
// # Tokens
//
// If the objects' versions grow for ever (Numbered), a token is the version that the
// swap made; a released record is deleted, and a listing deletes those whose session
// is gone. Else tokens are counted in the record, and a release leaves a tombstone with
// the count. Nobody deletes tombstones: the name's tokens would begin again. They
// cost one small object for each name that was ever used.
//
// # What is not known
//
// An error of the objects means that a write may land, now or later. It never counts
// as a renewal or as a win: the error is returned. A write that lands late does so on
// the condition of the version it was made for; so at most one of it and what came
// after is applied, and the next look sees which. No two writes of an object have the
// same value, so versions that are made of it (an ETag) serve as well.
//
// # What it costs, and what it weakens
//
//   - A renewal is one request per session, whatever it holds. Acquire and Release
//     are three requests per name (record, session, swap), at most 16 at
//     once; the session's is shared by a batch. Get is two.
//   - After a crash another acquires up to a TTL and the margin after its own first
//     look, not after the last renewal. Waiters poll: there is no lease.Watcher.
//   - Two objects are not compared in one write: Claim.While is lease.ErrUnsupported.
//   - A record is seen with its session in two reads. If the session into which a name
//     is superseded or transferred ends between them and the swap, the swap is
//     told OK, and the name is free; a reader may have seen the former ownership
//     until then. Nobody trusts in it: its holder gave it up.
//   - A session that nobody has anything to do with is ended by the next listing: once
//     it looks for longer than the TTL and the margin.
//
// Names become keys of lower-case letters, digits, '-' and '_', with every other byte
// as _ and two digits, in the order of the bytes. What stands under a key and is no
// record of this format holds its name (lease.ErrBadRecord), and so does a record
// whose session can't be read.
package observed
