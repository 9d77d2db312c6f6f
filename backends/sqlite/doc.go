// Package sqlite keeps leases in a file of SQLite: for the processes of one machine, any number
// of them, without a server. It needs no cgo.
//
// What it can't promise: a second machine is not kept out by more than a check of the file
// system; one writer at a time, of whatever process, holds up all others; to take the file's two
// companions (-wal, -shm) away destroys it. docs/sqlite.md begins with that.
//
// # How it works
//
//	process ─┐                       ┌─ holdfast_session  id, owner, TTL, when it ends
//	process ─┼─▶ BEGIN IMMEDIATE ──▶ ├─ holdfast_lease    name, token, session, nonce
//	process ─┘   one at a time       ├─ holdfast_change   what changed, for watches
//	                                 └─ holdfast_meta     the last token; boot and generation
//
// Every call that changes something is one transaction, which holds the file's one write lock
// from its beginning; every call that reads sees one moment. So the store is linearizable.
//
// Time is CLOCK_BOOTTIME, which all processes of a machine share, which can't be set, and which
// goes on while the machine sleeps. No time of day is compared. A session has an end on that
// clock; from then on it is gone, for every process. With the machine's next boot every session is
// gone at once: its holders are, too.
//
// Tokens come from one counter in the file, raised to the microseconds since 1970, so that they
// grow also where an older copy of the file was put back, as far as the time of day did not go
// back as well. What issues a token is on the disk before the caller gets it (synchronous=FULL).
// Renewals and releases are not: what a power cut takes of them is of a boot that is over.
//
// Changes are logged by triggers, in the transaction that makes them. A watch of the same
// process hears of it at once; another process looks whether the file has changed, every 10 ms, and
// removes what has expired when it does.
//
// # The file
//
// The file must be the same for all processes. A small one beside it, .NAME-holdfast, says which it
// is and carries a lock of each process that uses it: while one is left of a file that was
// deleted or replaced, New refuses the file that came instead, and a process that still uses the former
// one is noticed (ErrReplaced, which ends every term).
//
// Guard makes a user's transaction, on data in the same file, fail if a lease is not
// held.
package sqlite
